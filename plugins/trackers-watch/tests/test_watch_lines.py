"""``trackers watch`` without a terminal."""

from __future__ import annotations

import importlib.util
import io
import sys
import time
from collections.abc import Iterator

import pytest
from trackers_watch.commands import watch
from trackers_watch.lines import write
from trackers_watch.looking import ViewOptions
from watch_support import catalogue, sweep

from tests.analysis.support import said_in_one_line
from trackers.cli import main
from trackers.errors import MissingPackage
from trackers.training.run import Run


def test_line_for_each_run_then_for_changes_until_the_end(run: Run) -> None:
    """A run that has ended gets a last line; then the command ends."""
    sweep(1)
    run.log({"loss": 1.0}, step=0)

    def later() -> Iterator[None]:
        run.log({"loss": 0.5}, step=7)
        yield
        yield
        run.finish()
        yield
        while True:
            yield

    out, turns = io.StringIO(), later()
    pauses: list[float] = []

    with catalogue("digits", "p") as found:

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            next(turns)
            version = found.state().version
            for _ in range(3000):  # the catalogue's thread has seen it
                if found.state().version != version or len(pauses) == 2:
                    break
                time.sleep(0.01)

        write(found, ViewOptions(["loss"]), out, 5.0, named=True, pause=pause)
    lines = out.getvalue().splitlines()
    assert set(pauses) == {5.0}
    mine = [text for text in lines if run.id in text]
    assert len(lines) - len(mine) == 1
    assert "step 0 loss 1" in mine[0]
    assert any("step 7 loss 0.5" in text for text in mine)
    assert "finished" in mine[-1]
    assert len(mine) == len(set(mine))


def test_pipe_gets_plain_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each run that isn't running, and that is all."""
    sweep(2)
    monkeypatch.setattr(sys, "argv", ["trackers", "watch", "digits", "--metrics", "loss"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    lines = sorted(capsys.readouterr().out.splitlines())
    assert [text.split()[:6] for text in lines] == [
        [f"digits/sweep-{number}", "finished", "step", "99", "loss", value]
        for number, value in ((0, "0.092208"), (1, "0.34517"))
    ]


def test_long_search_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As any work of seconds."""
    sweep(1)
    monkeypatch.setenv("TRACKERS_PROGRESS_S", "0")
    with catalogue("digits") as found:
        answers = iter([False, False, True])
        monkeypatch.setattr(found, "wait", lambda timeout_s: next(answers))
        write(found, ViewOptions(), io.StringIO(), 5.0, named=True, pause=lambda seconds: None)
    assert capsys.readouterr().err == "trackers: reading the runs: 1 so far\n"


@pytest.mark.parametrize("arguments", [["--x", "epoch"], ["nothing"], []])
def test_what_cant_be_watched_is_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong axis, no such run, no runs at all."""
    code, text = said_in_one_line(["watch", *arguments], capsys, monkeypatch)
    assert code in (1, 2)
    assert text


def test_missing_package_is_told_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is read."""
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(getattr(sys, stream), "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "textual" else found(name))
    with pytest.raises(MissingPackage, match=r"trackers-relay\[watch\]"):
        watch([])
