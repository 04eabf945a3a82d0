"""The distribution's modules by the names that scripts import, copied and pickled, and its page."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import trackers_frameworks

from tests import ROOT, again
from tests.e2e import test_docs
from tests.frameworks import test_copies as copies

test_callback_can_be_copied_before_and_in_its_run = again.with_values(
    copies.test_callback_can_be_copied_before_and_in_its_run,
    [name for name in copies.KNOWN if name in copies.MOVED], "module",
)  # fmt: skip
test_page_does_what_it_shows = again.with_values(
    test_docs.test_page_does_what_it_shows, [ROOT / "docs/more-frameworks.md"]
)


def test_all_modules_are_named() -> None:
    """Each is imported as trackers.frameworks.NAME."""
    folder = Path(str(trackers_frameworks.__file__)).parent
    assert {path.stem for path in folder.glob("*.py")} - {"__init__", "fits"} == set(copies.MOVED)


@pytest.mark.parametrize("module", [name for name in copies.INSTALLED if name in copies.MOVED] + ["gymnasium"])
def test_public_names_are_those_of_trackers_frameworks(module: str) -> None:
    """Classes and functions: the same objects by either name."""
    ours = importlib.import_module(f"trackers_frameworks.{module}")
    public = {
        name: thing for name, thing in vars(ours).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == ours.__name__
    }  # fmt: skip
    there = vars(importlib.import_module(f"trackers.frameworks.{module}"))
    assert public
    assert {name: there.get(name) for name in public} == public
