"""Scripts written for W&B leave the same ``.wandb`` files by W&B's own client and by this package's delivery.

Read from the files themselves: rows with ``_step`` and clocks, results, configuration, definitions, media and exit. A
value None, for which W&B's client writes null, counts as none.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import forked
from tests.as_wandb import patterns
from tests.as_wandb.test_same_as_wandb import REFUSED, same
from tests.as_wandb.versions import before
from tests.stores import wandb_records

ROOT = Path(__file__).parents[2]

QUICK = {
    "plain_steps", "commit_false", "step_then_none", "nested", "not_finite", "summary_writes", "results_by_definition",
    "media", "config_updates", "config_replaced", "failed_run", "artifacts_of_paths", "axis_by_epoch",
    "media_with_results", "names_of_floats",
}  # fmt: skip
"""Scripts of the short form."""

KNOWN = {
    "value_again_in_a_step": "each value of a step is kept, in a row of its own",
}
"""Scripts whose rows and results differ on purpose, and how."""

LEFT_OUT = {
    "disabled": "leaves no run",
    "forked_workers": "a forked process can't deliver inside itself; tests/as_wandb/test_same_as_wandb.py compares it",
    "spawned_worker": "nor a spawned one",
}


class Left(NamedTuple):
    """What a file has."""

    rows: list[tuple[int, dict[str, Any]]]
    summary: dict[str, Any]
    config: dict[str, Any]
    definitions: dict[str, dict[str, Any]]
    media: dict[str, list[str]]
    run: dict[str, Any]
    exit_code: int | None


def items(found: Any) -> dict[str, Any]:
    """Values by name, nested ones joined with a slash; a medium is one value."""
    tree: dict[str, Any] = {}
    for item in found:
        *above, last = item.nested_key or [item.key]
        place = tree
        for key in above:
            place = place.setdefault(key, {})
        place[last] = json.loads(item.value_json)
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        add(flat, name, value)
    return flat


def add(flat: dict[str, Any], name: str, value: Any) -> None:
    """Put a value's leaves under their names."""
    if isinstance(value, dict) and "_type" not in value:
        for key, item in value.items():
            add(flat, f"{name}/{key}", item)
    else:
        flat[name.replace(".", "/")] = value


def is_own(name: str) -> bool:
    """Whether a name is W&B's own, or what this package adds for each row and result."""
    return name.startswith(("_", "final/")) or name == "global_step"


def plain(name: str, value: Any, folder: Path, media: dict[str, list[str]]) -> Any:
    """A value without what isn't the same twice; the content of its files goes to ``media``."""
    if not isinstance(value, dict):
        return value
    kind = value["_type"]
    paths = [value["path"]] if "path" in value else []
    if kind == "images/separated":
        paths = value["filenames"]
    for path in paths:
        content = (folder / "files" / path).read_bytes()
        media.setdefault(name, []).append(digest(kind, content))
    return {
        "_type": kind,
        **{key: value[key] for key in ("width", "height", "ncols", "nrows", "count") if key in value},
    }


def digest(kind: str, content: bytes) -> str:
    """Of a picture's pixels, of a table's cells, of any other file's bytes."""
    if kind.startswith("image"):
        import io

        import PIL.Image

        image = PIL.Image.open(io.BytesIO(content))
        return f"{image.size} {hashlib.md5(image.convert('RGBA').tobytes()).hexdigest()}"
    if kind == "table-file":
        table = json.loads(content)
        return json.dumps([table["columns"], table["data"]])
    return hashlib.md5(content).hexdigest()


def read(path: Path, client: bool = False) -> tuple[str, Left]:
    """A file's project, and what it has. Each row's clock must be the time since the run's start: exactly, but by W&B's
    client, which rounds the start, starts its clock later, and reads it when its service comes to the row."""
    left = Left([], {}, {}, {}, {}, {}, None)
    project, start, code = "", 0.0, None
    results: dict[str, Any] = {}
    for record in wandb_records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            project = record.run.project
            start = record.run.start_time.ToNanoseconds() / 1e9
            left.run.update(
                name=record.run.display_name.partition("patterns_")[0],  # each makes up a name of its own
                group=record.run.run_group, notes=record.run.notes,
                tags=sorted(record.run.tags), job_type=record.run.job_type,
            )  # fmt: skip
            change(left.config, record.run.config)
        elif kind == "config":
            change(left.config, record.config)
        elif kind == "history":
            row = {name: value for name, value in items(record.history.item).items() if value is not None}
            assert row["_step"] == record.history.step.num
            assert row["_runtime"] == pytest.approx(row["_timestamp"] - start, abs=5.0 if client else 1e-4)
            values = {
                name: plain(name, value, path.parent, left.media) for name, value in row.items() if not is_own(name)
            }
            left.rows.append((row["_step"], values))
        elif kind == "summary":
            take(results, record.summary)
        elif kind == "preempting":
            left.run["preempting"] = True
        elif kind == "metric":
            define(left.definitions, record.metric)
        elif kind == "exit":
            code = record.exit.exit_code
    for name, value in results.items():
        add(left.summary, name, value)
    summary = {name: plain(name, value, path.parent, {}) for name, value in left.summary.items() if not is_own(name)}
    return project, left._replace(summary=summary, exit_code=code)


def take(results: dict[str, Any], record: Any) -> None:
    """Apply a record of results, a mapping or another value at each name."""
    for item in (*record.remove, *record.update):
        *above, last = item.nested_key or [item.key]
        place = results
        for key in above:
            if not isinstance(place.get(key), dict):
                place[key] = {}
            place = place[key]
        place.pop(last, None)
        if item.value_json:
            place[last] = json.loads(item.value_json)


def change(config: dict[str, Any], record: Any) -> None:
    """Apply a record of configuration."""
    for item in record.update:
        if item.key != "_wandb":
            config[item.key or "/".join(item.nested_key)] = json.loads(item.value_json)
    for item in record.remove:
        config.pop(item.key or "/".join(item.nested_key), None)


def define(definitions: dict[str, dict[str, Any]], record: Any) -> None:
    """Apply a definition; what this package says of each metric (its axis is the training step) isn't the script's."""
    name = (record.name or record.glob_name).replace(".", "/")
    words = [field.name for field, value in record.summary.ListFields() if value is True]
    axis = record.step_metric if record.step_metric != "global_step" else ""
    known = definitions.setdefault(name, {"step_metric": "", "hidden": False, "summary": []})
    known["step_metric"] = axis or known["step_metric"]
    known["hidden"] = record.options.hidden or known["hidden"]
    known["summary"] = sorted({*known["summary"], *words})


def effective(left: Left) -> dict[str, dict[str, Any]]:
    """What definitions mean for each metric that was logged: its own, or that of the first glob."""
    names = sorted({name for _, row in left.rows for name in row})
    found = {}
    for name in names:
        globs = (said for glob, said in left.definitions.items() if fnmatch.fnmatchcase(name, glob))
        own = left.definitions.get(name) or next(globs, None)
        if own and any(own.values()) and own["step_metric"] != name:
            found[name] = own
    return found


def left_by(which: str, names: list[str], place: Path) -> dict[str, list[Left]]:
    """What the runs of each script leave, in the order of their names and rows."""
    folder = place / which
    folder.mkdir()
    variables = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKER": "wandb", "TRACKER_INLINE": "y"}
    command = [sys.executable, str(patterns.__file__), which, *names]
    environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
    done: subprocess.CompletedProcess[str] = forked.run(command, cwd=folder, env=environment)
    assert done.returncode == 0, done.stdout[-500:] + done.stderr[-3000:]
    found: dict[str, list[Left]] = {}
    for path in folder.rglob("*.wandb"):
        project, left = read(path, client=which == "real")
        found.setdefault(project, []).append(left)
    return {
        project: sorted(runs, key=lambda left: json.dumps([left.run["name"], left.rows, left.config], sort_keys=True))
        for project, runs in found.items()
    }


SLOW = [name for name in patterns.PATTERNS if name not in {*LEFT_OUT, *QUICK, *REFUSED}]


@pytest.mark.processes
@pytest.mark.parametrize("names", [sorted(QUICK), pytest.param(SLOW, marks=pytest.mark.slow)], ids=["short", "long"])
def test_script_leaves_the_file_that_wandbs_client_leaves(names: list[str], tmp_path: Path) -> None:
    """Row for row with its step, results, configuration, definitions, media's content, description and exit code."""
    real, ours = left_by("real", names, tmp_path), left_by("ours", names, tmp_path)
    wrong: dict[str, Any] = {}
    for name in names:
        if name == "media_with_results" and before("0.30"):  # whole numbers up to 1 were scaled as floats are
            _white(real[name])
        theirs, mine = real.get(name, []), ours.get(name, [])
        assert len(theirs) == len(mine), name
        for their, our in zip(theirs, mine, strict=True):
            for field in Left._fields:
                if name in KNOWN and field in ("rows", "summary"):
                    continue
                one, other = (effective(it) if field == "definitions" else getattr(it, field) for it in (their, our))
                if not same(one, other):
                    wrong.setdefault(name, []).append((field, one, other))
    assert wrong == {}


def _white(runs: list[Left]) -> None:
    """Have a picture of 255 be one of 1."""
    made, wanted = [f"(4, 4) {hashlib.md5(bytes([level, level, level, 255]) * 16).hexdigest()}" for level in (255, 1)]
    for left in runs:
        for found in left.media.values():
            found[:] = [wanted if one == made else one for one in found]


def test_at_least_forty_scripts_are_compared() -> None:
    """All but those that say why not."""
    assert len(QUICK) + len(SLOW) >= 40
    assert set(patterns.PATTERNS) >= QUICK
    assert set(LEFT_OUT) <= set(patterns.PATTERNS)


SWEPT = """
import trackers
trackers.install_as_wandb()
import wandb
run = wandb.init(project="p", config={"lr": 0.1, "epochs": 1})
run.config.update({"lr": 0.25, "epochs": 2}, allow_val_change=True)
assert (run.config.lr, run.config["epochs"], run.sweep_id) == (0.5, 2, "sweep1")
run.log({"a": 1})
run.finish()
"""


@pytest.mark.processes
@pytest.mark.parametrize("inline", ["y", pytest.param("n", marks=pytest.mark.slow)])
def test_run_of_a_sweep_keeps_its_parameters(inline: str, tmp_path: Path) -> None:
    """What the script changes besides arrives, though the delivery has the sweep's file in its environment, too."""
    (tmp_path / "sweep.yaml").write_text("lr: {value: 0.5}\n")
    (tmp_path / "train.py").write_text(SWEPT)
    variables = {
        "WANDB_MODE": "offline", "TRACKER": "wandb", "TRACKER_INLINE": inline, "PYTHONPATH": str(ROOT),
        "WANDB_SWEEP_ID": "sweep1", "WANDB_SWEEP_PARAM_PATH": str(tmp_path / "sweep.yaml"),
    }  # fmt: skip
    done = forked.run([sys.executable, str(tmp_path / "train.py")], cwd=tmp_path, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr[-2000:]
    assert "lr is set by the sweep, and stays 0.5" in done.stderr
    (path,) = tmp_path.rglob("*.wandb")
    runs = [record.run for record in wandb_records(path) if record.WhichOneof("record_type") == "run"]
    assert {run.sweep_id for run in runs} == {"sweep1"}
    assert read(path)[1].config == {"lr": 0.5, "epochs": 2}
