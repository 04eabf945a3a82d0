"""Tests of what all trackers or sources must stand, made again for those that a distribution in plugins/ brings.

globals().update(again.of_tracker("clearml", {"CLEARML_OFFLINE_DIR": "clearml"}, held, holds))
"""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from trackers.tracker import RunInfo

Test = Callable[..., None]


def with_values(test: Test, values: Sequence[Any], names: str | tuple[str, ...] = "") -> Test:
    """A test that has lists of values, with another one. names: of the parameters that get it, if it has several."""
    copy = types.FunctionType(test.__code__, test.__globals__, test.__name__, test.__defaults__, test.__closure__)
    copy.__doc__, copy.__annotations__, copy.__kwdefaults__ = test.__doc__, test.__annotations__, test.__kwdefaults__
    marks = list(getattr(test, "pytestmark", []))
    (given,) = [mark for mark in marks if mark.name == "parametrize" and (not names or mark.args[0] == names)]
    copy.pytestmark = [
        *(mark for mark in marks if mark is not given),
        pytest.mark.parametrize(given.args[0], values).mark,
    ]  # type: ignore[attr-defined]
    return copy


def of_tracker(
    name: str,
    folders: Mapping[str, str],
    held: Callable[[RunInfo, Path], Any],
    holds: tuple[Callable[[Any], dict[str, object]], tuple[str, ...]],
    *,
    appended: bool = False,
) -> dict[str, Any]:
    """What a tracker that writes files must stand: lost stores, edits, no member beyond the contract.

    Args:
        folders: its options that name folders, and names of folders. held: what such a folder holds of a run.
        holds: what of an edit is found in a run's directory, and which parts of it are kept.
        appended: its file is appended to, and taken as it is where no digests of it are known.
    """
    from tests.backends import test_contract, test_lost_stores
    from tests.editing import test_trackers

    test_lost_stores.OPTIONS[name] = dict(folders)
    test_lost_stores.HELD[name] = held
    test_lost_stores.APPENDED.update({name} if appended else ())
    test_trackers.HOLDS[name] = holds
    tests = (*test_lost_stores.OF_FILES, test_trackers.test_tracker_holds_what_the_table_says,
             test_contract.test_built_in_trackers_add_no_member)  # fmt: skip
    return {test.__name__: with_values(test, [name]) for test in tests} | {"_places": test_lost_stores._places}


def of_round_trip(tracker: str, place: Any) -> dict[str, Any]:
    """What a tracker and its reader must stand together. place: of ``tests.readers.test_local``."""
    from tests.readers import test_local

    test_local.PLACES[tracker] = place
    return {test.__name__: with_values(test, [tracker]) for test in test_local.OF_PLACES} | {"store": test_local.store}


def of_copies(tracker: str, destination: str) -> dict[str, Any]:
    """What a destination of copies must stand."""
    from tests.copying import test_transfer

    test_transfer.MORE[tracker] = destination
    tests = {test.__name__: with_values(test, [tracker]) for test in test_transfer.OF_DESTINATIONS}
    return tests | {"database": test_transfer.database}


def of_reader(scheme: str, name: str = "") -> dict[str, Any]:
    """What a reader of files must stand. name: of a file in a directory that it looks for."""
    from tests.readers import test_boundary, test_helpers

    tests = {
        "test_run_that_was_deleted_is_named": with_values(test_helpers.test_run_that_was_deleted_is_named, [scheme])
    }
    if name:
        test = test_boundary.test_pipe_or_device_in_a_directory_is_passed_over
        tests[test.__name__] = with_values(test, [(f"{scheme}:there", name)], ("source", "name"))
    return tests


def fuzzed(name: str, seeds: Path) -> None:
    """A few damaged inputs of each target that a distribution has: no traceback, none above 5 s or 500 MB.

    Args:
        name: of its module, without ``_fuzzing``. seeds: a directory to be made.
    """
    from tests.fuzz import plugged

    targets = plugged.targets(name)
    command = [sys.executable, "-m", "tests.fuzz", "--count", "20", "--seed", "1", "--seeds", str(seeds)]
    done = subprocess.run(
        [*command, "--targets", ",".join(targets), "--only", name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = {line.partition(":")[0] for line in done.stdout.splitlines() if " inputs, " in line}
    assert told == set(targets)
