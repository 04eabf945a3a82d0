"""The same script, run with W&B's own client and under its name with this package, leaves the same values."""

from __future__ import annotations

import contextlib
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import forked
from tests.as_wandb import patterns, versions
from trackers.readers import registry
from trackers.records import ArtifactRecord, Config, Finish, Info, Media, Metrics, Start, Summary, Text

ROOT = Path(patterns.__file__).parent.parent.parent
Starts = Callable[..., "subprocess.CompletedProcess[str]"]
"""As ``subprocess.run``, with the output."""
NOT_RECORDED = {"disabled"}
"""Patterns that leave no run."""

LEFT_OUT = {"_runtime", "_timestamp", "_step", "_wandb"}
"""What W&B's client adds by itself."""


class Left(NamedTuple):
    """What a run left: value by name and step, media by name and step, and what describes the run."""

    values: dict[tuple[str, int], Any]
    media: dict[tuple[str, int], str]
    config: dict[str, Any]
    summary: dict[str, Any]
    artifacts: set[str]
    identity: dict[str, Any]
    status: str


def run(which: str, module: str, place: Path, start: Starts = forked.run, names: Sequence[str] = ()) -> Path:
    """Run all scripts of a module in one process, or those named; the directory in which it ran."""
    folder = place / which
    folder.mkdir()
    variables = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKER_INLINE": "y", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(sys.modules[module].__file__), which, *names]
    environment = {**os.environ, **variables}
    done = start(command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    return folder


def left_by(
    module: str, place: Path, start: Starts = forked.run, names: Sequence[str] = ()
) -> dict[str, dict[str, list[Left]]]:
    """What the runs of each script of a module left, with W&B's client and with this package, by project."""
    theirs, ours = run("real", module, place, start, names), run("ours", module, place, start, names)
    sources = {
        "real": [str(path) for path in sorted(theirs.glob("**/wandb/offline-run-*/*.wandb"))],
        "ours": [str(path.parent) for path in sorted(ours.glob("runs/*/*/run.json"))],
    }
    found: dict[str, dict[str, list[Left]]] = {}
    for which, names in sources.items():
        for name in names:
            project, left = read(name)
            found.setdefault(project, {}).setdefault(which, []).append(left)
    return found


REFUSED = {name for name, (since, _) in versions.REFUSED.items() if versions.before(since)}
"""Patterns that W&B's client of this version ends with an error."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[Left]]]:
    """What each pattern's runs left, by who ran them."""
    names = [name for name in patterns.PATTERNS if name not in REFUSED]
    return left_by(patterns.__name__, tmp_path_factory.mktemp("patterns"), names=names)


def read(source: str) -> tuple[str, Left]:
    """A run's project, and what it left."""
    reader, (one,) = registry.open_source(source)
    left = Left({}, {}, {}, {}, set(), {}, "")
    identity: dict[str, Any] = {"name": one.name, "group": one.group or None, "notes": one.notes or None}
    identity["tags"] = sorted(one.tags)
    status = one.status
    project = one.project
    for record in reader.read(one):
        if isinstance(record, Start) and record.run:
            project = record.run.get("project", project)
        elif isinstance(record, (Metrics, Text)):
            step = record.step
            if step is None:  # samples of the hardware
                continue
            left.values.update(
                {(named(name), step): value for name, value in record.values.items() if name not in LEFT_OUT}
            )
        elif isinstance(record, Media):
            left.media[named(record.name), record.step] = record.type
        elif isinstance(record, Config):
            left.config.update({name: value for name, value in record.values.items() if name not in LEFT_OUT})
        elif isinstance(record, Summary):
            for name in record.removed:
                left.summary.pop(named(name).removeprefix("final/"), None)
            left.summary.update(
                {
                    named(name).removeprefix("final/"): value
                    for name, value in record.values.items()
                    if name not in LEFT_OUT
                }
            )
        elif isinstance(record, ArtifactRecord):
            left.artifacts.add(record.name)
        elif isinstance(record, Info):
            identity.update(
                {key: getattr(record, key) for key in ("name", "notes") if getattr(record, key) is not None}
            )
            identity["tags"] = sorted(record.tags if record.tags is not None else identity["tags"])
        elif isinstance(record, Finish):
            status = record.status
    return project, left._replace(identity=identity, status=status)


def number(left: Left) -> str:
    """By what the runs of one pattern are put in order."""
    return str(left.identity["name"])


def named(name: str) -> str:
    """W&B joins the names of nested values with a dot, this package with a slash."""
    return name.replace(".", "/")


def same(one: Any, other: Any) -> bool:
    """Equal, NaN with NaN, lists with tuples."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def test_there_are_enough_patterns() -> None:
    """At least thirty, each explained."""
    assert len(patterns.PATTERNS) >= 30
    assert all(function.__doc__ for function in patterns.PATTERNS.values())


@pytest.mark.parametrize("name", [name for name in patterns.PATTERNS if name not in NOT_RECORDED | REFUSED])
def test_script_leaves_the_same_values(name: str, found: dict[str, dict[str, list[Left]]]) -> None:
    """Value for value, step for step; and the same description, configuration and end."""
    theirs, ours = (sorted(found[name][which], key=number) for which in ("real", "ours"))
    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours, strict=True):
        assert their.values or their.media
        assert their.values.keys() == our.values.keys()
        pairs = {key: (value, our.values[key]) for key, value in their.values.items()}
        assert {key: pair for key, pair in pairs.items() if not same(*pair)} == {}
        assert their.media == our.media
        assert same(their.config, our.config), (their.config, our.config)
        assert {key: value for key, value in our.summary.items() if not is_result(their.summary, key, value)} == {}
        unnamed = our.identity["name"].startswith("patterns_")  # each makes up a name of its own
        told = [key for key in our.identity if key != "name" or not unnamed]
        assert {key: their.identity[key] for key in told} == {key: our.identity[key] for key in told}
        assert (their.status or "finished") == our.status


def is_result(results: dict[str, Any], name: str, value: Any) -> bool:
    """Whether W&B has the result, which it calls ``loss.min`` where ``define_metric`` asked for it."""
    return any(same(results.get(key), value) for key in (name, f"{name}/min", f"{name}/max", f"{name}/last"))


@pytest.mark.parametrize("name", sorted(NOT_RECORDED))
def test_script_that_is_disabled_leaves_nothing(name: str, found: dict[str, dict[str, list[Left]]]) -> None:
    """Neither here nor there."""
    assert name not in found


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(versions.REFUSED))
def test_script_that_an_older_client_refuses_is_taken_here(name: str, tmp_path: Path) -> None:
    """There it ends with an error, here and with newer ones it runs."""
    refused = pytest.raises(AssertionError, match=versions.REFUSED[name][1])
    with refused if name in REFUSED else contextlib.nullcontext():
        run("real", patterns.__name__, tmp_path, names=[name])
    run("ours", patterns.__name__, tmp_path, names=[name])
