"""What other people wrote is shown as text: it obeys no terminal, and stays in its line, in every format."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.analysis.support import T0, write_run
from trackers.cli.app import app
from trackers.records import Config, Environment, Summary, Text

EVIL = "a\x1b[31m\x1b]0;title\x07\nINJECTED\r\x9b2J\u2028\u202eb"
COMMANDS = (
    ["ls", "--dir", "runs"], ["show", "one", "--dir", "runs"], ["keys", "runs"],
    ["diff", "runs/digits/one", "runs/digits/two"], ["argv", "runs/digits/one"], ["best", "runs", "--metric", "loss"],
    *(["compare", "runs", "--format", form] for form in ("table", "markdown", "csv", "latex")),
    *(["sql", "select * from runs", "--format", form] for form in ("table", "markdown", "csv", "latex")),
    *(["sql", "select * from metrics", "--format", form] for form in ("table", "csv")),
)  # fmt: skip


@pytest.fixture
def written() -> None:
    """Two runs whose every name and text is hostile."""
    for number, run_id in enumerate(("one", "two")):
        evil = f"{EVIL}{number}"
        write_run(
            run_id, [(1, 1, {"loss": 1.0, evil: 2.0})], config={evil: evil, "x": {evil: [evil]}}, name=evil, group=evil,
            notes=evil, tags=[evil], program=evil, argv=[evil], host=evil, cwd=f"/{evil}",
            git={"commit": evil, "branch": evil, "remote": evil},
            more=[Summary(time=T0 + 2, values={f"final/{evil}": evil}), Text(time=T0 + 2, step=1, values={evil: evil}),
                  Config(time=T0 + 2, values={"late": evil}),
                  Environment(time=T0 + 2, values={"packages": {evil: evil}, "git": {"patch": evil}})],
        )  # fmt: skip


@pytest.mark.heavy
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_hostile_names_obey_no_terminal(words: list[str], written: None) -> None:
    """No escape, no bell, no return, no line of its own: in tables, CSV, Markdown, LaTeX and messages."""
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    bad = {char for char in done.output if not char.isprintable() and char != "\n"}
    assert bad == set(), bad
    assert not [line for line in done.output.splitlines() if line.startswith("INJECTED")]
    if "csv" in words:
        assert len(list(csv.reader(io.StringIO(done.stdout)))) == len(done.stdout.splitlines())
    assert Path("runs/digits/one").is_dir()
