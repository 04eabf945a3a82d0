"""``trackers ls`` and ``trackers show`` of other sources than our own runs, and of runs with many values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import trackers
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError


def run(*arguments: str) -> str:
    """What a command prints.

    Raises:
        TrackersError: as the command.
    """
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    return done.stdout


@pytest.fixture
def table() -> Path:
    path = Path("table.csv")
    path.write_text("step,time,loss,note\n1,1700000000,0.5,a\n2,1700000001,0.25,b\n")
    return path


def own() -> trackers.Run:
    one = trackers.init("json", project="p", id="mine", name="a:b", mode="offline", options={"TRACKER_RELAY": False})
    one.log({"loss": 0.75}, step=3)
    one.finish()
    return one


def test_ls_lists_any_source(table: Path) -> None:
    """Beside our own runs, in the same columns, sorted with them, and as JSON."""
    own()
    out = run("ls", "a:b", "csv:table.csv", "--sort", "loss", "--columns", "name,steps,loss")
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [["table", "2", "0.25"], ["a:b", "3", "0.75"]]
    (view,) = json.loads(run("ls", str(table), "--json"))
    assert (view["info"]["directory"], view["last"]) == (f"csv:{table.resolve()}", {"loss": 0.25, "note": "b"})
    with pytest.raises(NotFound, match="csv: no file or directory"):
        run("ls", "csv:nothing.csv")


def test_show_shows_any_source(table: Path) -> None:
    """What is known of it; as JSON; its refused records are none of ours."""
    out = run("show", str(table))
    assert out.startswith(f"table  (csv:{table.resolve()})\n  status     unknown\n  started    2023-11-1")
    assert "last values at step 2\n  loss  0.25\n  note  b\n" in out
    assert "trackers" not in out
    assert json.loads(run("show", str(table), "--json"))["steps"] == {"loss": 2, "note": 2}
    with pytest.raises(UsageError, match="is no run of ours"):
        run("show", str(table), "--rejected")
    with pytest.raises(UsageError, match="unknown source scheme 'wandbb'"):
        run("show", "wandbb:x/y")
    own()
    assert run("show", "a:b").startswith("a:b  (p/mine)")


def test_show_is_short_however_much_a_run_has() -> None:
    """The first 40 values of each kind, and how many more; --all and JSON have all, samples of the machine, too."""
    one = trackers.init("json", project="p", id="wide", mode="offline", options={"TRACKER_RELAY": False},
                        config={f"c{n}": n for n in range(41)})  # fmt: skip
    one.log({f"m{n}": n for n in range(1000)}, step=1)
    one.log({"system/cpu": 50.0, "gpu/0/power": 300.0}, step=2)
    one.finish()
    out = run("show", "wide")
    assert "  m39  " in out
    assert "  m40  " not in out
    assert "  … and 960 more: --all\n" in out
    assert "  … and 1 more: --all\n" in out
    assert "  and 2 samples of the machine: --all\n" in out
    assert "system/cpu" not in out
    every = run("show", "wide", "--all")
    assert "more" not in every
    assert all(f"  {name}  " in every for name in ("m999", "c40", "system/cpu", "gpu/0/power"))
    assert len(json.loads(run("show", "wide", "--json"))["last"]) == 1002
