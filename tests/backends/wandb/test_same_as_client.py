"""The same script leaves the same ``.wandb`` file by W&B's own client and by this package: rows, steps and results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import forked
from tests.backends.wandb import programs
from tests.stores import wandb_records

ROOT = Path(__file__).parents[3]
ROUNDED_S = 0.001
"""By how much a time may be rounded, in seconds."""


class Left(NamedTuple):
    """What a file has: rows with their ``_step``, and the last summary."""

    rows: list[tuple[int, dict[str, Any]]]
    summary: dict[str, Any]


def items(found: Any) -> dict[str, Any]:
    """Values by name; W&B joins the names of nested ones with a dot, this package with a slash."""
    return {(item.key or ".".join(item.nested_key)).replace(".", "/"): json.loads(item.value_json) for item in found}


def is_own(name: str) -> bool:
    """Whether a name is W&B's own, or what this package adds for each row and result."""
    return name.startswith(("_", "final/")) or name == "global_step"


def read(path: Path, times: dict[str, Any]) -> tuple[str, Left]:
    """A file's run, by its name, and what it has; the script's calls tell when its rows were logged, and how long after
    the run's start. The clock of our own rows is the journal's, to the microsecond."""
    left, name, start = Left([], {}), "", 0.0
    recorded: dict[int, float] = {}
    for stream in path.parents[2].glob("streams/rank-0.1.jsonl"):
        for line in map(json.loads, stream.read_text().splitlines()):
            if line["kind"] == "metrics":
                recorded[line["step"]] = line["time"]
    for record in wandb_records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            name = record.run.display_name or name
            start = record.run.start_time.ToNanoseconds() / 1e9
            (began, begun), rows = times[name]
            assert began - ROUNDED_S <= start <= begun + ROUNDED_S
        elif kind == "history":
            row = items(record.history.item)
            assert row["_step"] == record.history.step.num
            before, after = rows[str(row["_step"])]
            assert before - ROUNDED_S <= row["_timestamp"] <= after + ROUNDED_S
            if not recorded:  # the client's service measures when it has the row: with 0.31, too, 8 ms after the call
                after = float("inf")
            assert before - begun - ROUNDED_S <= row["_runtime"] <= after - began + ROUNDED_S
            if recorded:
                assert row["_runtime"] == pytest.approx(row["_timestamp"] - start, abs=1e-5)
                assert row["_timestamp"] <= recorded[row["global_step"]]
            left.rows.append((row["_step"], {name: value for name, value in row.items() if not is_own(name)}))
        elif kind == "summary":
            left.summary.update(items(record.summary.update))
    return name, left._replace(summary={name: value for name, value in left.summary.items() if not is_own(name)})


def left_by(which: str, seeds: list[str], place: Path) -> dict[str, Left]:
    """What each seed's script leaves."""
    folder = place / which
    folder.mkdir()
    variables = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKER": "wandb", "TRACKER_INLINE": "y"}
    command = [sys.executable, str(programs.__file__), which, *seeds]
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    done: subprocess.CompletedProcess[str] = forked.run(command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    times = json.loads((folder / "times.json").read_text())
    return dict(read(path, times) for path in folder.rglob("*.wandb"))


@pytest.mark.processes
@pytest.mark.parametrize(
    "seeds", [range(3), *(pytest.param(range(n, n + 10), marks=pytest.mark.slow) for n in range(3, 43, 10))], ids=str
)
def test_random_script_leaves_what_wandbs_client_leaves(seeds: range, tmp_path: Path) -> None:
    """Calls of ``log`` with and without steps, ``commit=False``, definitions of names and globs that add to one another
    or replace one another, step metrics that rows lack, results that are set."""
    names = [str(seed) for seed in seeds]
    real, ours = left_by("real", names, tmp_path), left_by("ours", names, tmp_path)
    assert sorted(real) == sorted(ours) == sorted(names)
    for name in names:
        calls = "\n".join(map(str, programs.program(int(name))))
        assert ours[name] == real[name], f"seed {name}\n{calls}"
