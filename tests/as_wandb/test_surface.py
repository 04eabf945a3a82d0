"""W&B's public API, call by call, with W&B's client and with this package under its name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import forked
from tests.as_wandb import surface, versions
from trackers.backends.wandb import precheck

PAGE = Path(__file__).parents[2] / "docs" / "wandb-scripts.md"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[surface.Call]:
    """All calls, made twice."""
    return surface.compared(tmp_path_factory.mktemp("surface"), forked.run)


@pytest.mark.slow
def test_calls_differ_for_a_reason_alone(made: list[surface.Call]) -> None:
    """Values and exceptions are W&B's unless the call says why not, and no reason stands where nothing differs."""
    older = versions.otherwise(versions.CALLS)
    odd = [one for one in made if (one.why in surface.REASONS) == surface.same(one.theirs, one.ours)]
    assert [one for one in odd if (one.section, one.call) not in older] == []
    assert older == {(one.section, one.call) for one in odd}


@pytest.mark.slow
def test_page_has_the_table_of_what_differs(made: list[surface.Call]) -> None:
    """docs/wandb-scripts.md shows what the tool prints."""
    page = PAGE.read_text("utf-8")
    assert f"\n{len(made)} calls of W&B's API" in page
    shown = page.partition("<!-- surface -->\n")[2].partition("<!-- end of surface -->")[0]
    found = surface.table(made)
    if versions.before(precheck.VERSIONS.tested[-1]):  # the page has the newest client's words
        shown, found = [re.sub(r" \| .* \| ", " | ", table) for table in (shown, found)]
    assert shown.strip() == found.strip()


def test_calls_are_many_and_reasons_known() -> None:
    """There are hundreds of calls, and each word behind one stands for a reason."""
    listed = list(surface.calls())
    assert len(listed) > 800
    assert {why for _, _, why in listed if why} == set(surface.REASONS)
