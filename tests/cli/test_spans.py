"""``trackers spans``: trees of a run's spans, their tokens; nothing of them is obeyed by a terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.analysis.support import T0, said_in_one_line, write_run
from trackers.cli.app import app
from trackers.records import Span


def run_cli(*words: str) -> Result:
    """A command, as typer runs it."""
    return CliRunner().invoke(app, ["spans", *words], catch_exceptions=False)


def span(trace: str, own: str, parent: str = "", began: float = 0.0, **more: Any) -> Span:
    """A span of one second."""
    return Span(time=T0 + began + 1, began=T0 + began, trace=trace, span=own, parent=parent, **more)


@pytest.fixture(autouse=True)
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with two traces, and one without any."""
    monkeypatch.chdir(tmp_path)
    used = {"gen_ai.usage.input_tokens": 1200, "gen_ai.usage.output_tokens": 30, "gen_ai.request.model": "m\x1b[2J"}
    more = [
        span("aa", "2", "1", 0.1, name="model", type="llm", attributes=used),
        span("aa", "1", name="answer\n\x1b[31m", type="agent", inputs={"q": float("nan")}),
        span("bb", "3", "9", 5, name="search", status="error", error="KeyError: 'x'"),
    ]
    write_run("one", more=more)
    write_run("none")


def test_spans_are_printed_as_trees() -> None:
    """Kind, time, tokens, error; then sums. The newest trace is the last."""
    result = run_cli("one")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    lines = result.stdout.splitlines()
    assert "trace aa" in lines[0]
    assert lines[3].split() == ["└─", "model", "llm", "1", "s", "1,200", "+", "30"]
    assert lines[7].startswith("(a span that hasn't ended)")
    assert lines[8].split() == ["└─", "search", "1", "s", "KeyError:", "'x'"]
    assert lines[-2:] == ["2 traces, 3 spans, 1 failed", "m�[2J: 1,200 input and 30 output tokens"]


def test_traces_are_chosen() -> None:
    """By id, by failure, by number; JSON has everything."""
    assert "trace aa" not in run_cli("one", "--failed").stdout
    assert "trace bb" not in run_cli("one", "--trace", "a").stdout
    result = run_cli("one", "-n", "1")
    assert "trace aa" not in result.stdout
    assert "the newest 1 of 2 traces" in result.stderr
    found = json.loads(run_cli("one", "--trace", "aa", "--json").stdout)
    assert [(one["name"], one["parent"], one["inputs"]) for one in found] == [
        ("answer\n\x1b[31m", None, {"q": "NaN"}),
        ("model", "1", None),
    ]


def test_run_without_spans_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """And how to have some; an unknown trace is an error."""
    result = run_cli("none")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "the run has no spans: `with run.span(…)` records them" in result.stderr
    code, error = said_in_one_line(["spans", "one", "--trace", "zz"], capsys, monkeypatch)
    assert code == 1
    assert "has no trace 'zz'" in error
