"""Tables of ``ls``, ``compare``, ``best`` and ``diff``: their options, and how they look in a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import pty
import re
import signal
import struct
import sys
import termios

import pytest
from typer.testing import CliRunner, Result

from tests import ROOT, forked
from tests.analysis.support import T0, write_run
from trackers.cli.app import app
from trackers.errors import NotFound, UsageError


def run_cli(*arguments: str) -> Result:
    """The command line, in this process; standard output is a pipe."""
    return CliRunner().invoke(app, list(arguments))


def first_words(done: Result) -> list[str]:
    """The first word of each row."""
    assert done.exit_code == 0, done.output or done.exception
    return [line.split()[0] for line in done.stdout.splitlines()[1:]]


class Terminal:
    """A command on a terminal of so many columns."""

    def __init__(self, *words: str, columns: int, **environ: str) -> None:
        self._own, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", **environ}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            if name not in environ:
                env.pop(name, None)
        program = [sys.executable, "-m", "trackers", *words]
        self.process = forked.Program(program, stdin=other, stdout=other, stderr=other, env=env)
        os.close(other)
        self.shown = b""

    def until(self, text: bytes) -> None:
        """Read until the terminal shows a text."""
        while text not in self.shown:
            self.shown += os.read(self._own, 4096)

    def text(self) -> str:
        """All that the command showed, once it has ended."""
        with contextlib.suppress(OSError):  # how Linux says that nobody has the terminal open any more
            while block := os.read(self._own, 4096):
                self.shown += block
        os.close(self._own)
        assert self.process.wait(60) == 0, self.shown
        return self.shown.decode().replace("\r", "")


@pytest.fixture
def runs() -> None:
    """Four runs: two rates, two seeds, one of them failed, one with NaN."""
    for number, (loss, rate, status) in enumerate(
        [(0.5, 0.1, "finished"), (0.25, 0.1, "failed"), (1.5, 0.01, "finished"), (math.nan, 0.01, "finished")]
    ):
        write_run(f"rate{rate}-seed{number % 2}", [(1, 1, {"val_loss": 2.0}), (2, 2, {"val_loss": loss})],
                  config={"learning_rate": rate, "seed": number % 2}, summary={"best_val_loss": loss}, status=status,
                  created=T0 + number)  # fmt: skip


@pytest.mark.slow
def test_ls_chooses_and_orders_runs(runs: None) -> None:
    """--status, --sort and -n choose; without --sort the newest are last, and -n takes those."""
    assert first_words(run_cli("ls")) == ["rate0.1-seed0", "rate0.1-seed1", "rate0.01-seed0", "rate0.01-seed1"]
    assert first_words(run_cli("ls", "-n", "2")) == ["rate0.01-seed0", "rate0.01-seed1"]
    assert first_words(run_cli("ls", "--sort", "final/best_val_loss", "-n", "1")) == ["rate0.1-seed1"]
    assert first_words(run_cli("ls", "--status", "failed")) == ["rate0.1-seed1"]
    listed = json.loads(run_cli("ls", "--json", "--sort", "-val_loss", "-n", "2", "--status", "finished").stdout)
    assert [view["info"]["name"] for view in listed] == ["rate0.01-seed0", "rate0.1-seed0"]


def test_ls_shows_results_and_columns(runs: None) -> None:
    """Results are columns; --columns chooses others."""
    lines = run_cli("ls").stdout.splitlines()
    assert lines[0].split()[5:7] == ["final/best_val_loss", "val_loss"]
    assert re.split("  +", lines[2])[5:7] == ["0.25", "0.25"]
    done = run_cli("ls", "--columns", "name,config.learning_rate,status", "-n", "1")
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["name", "config.learning_rate", "status"],
        ["rate0.01-seed1", "0.01", "finished"],
    ]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("words", "error", "said"),
    [
        (["ls", "--status", "don"], UsageError, "unknown status 'don'"),
        (["ls", "--status", "crashed"], NotFound, "no run is crashed: 3 finished, 1 failed"),
        (["ls", "--sort", "val_los"], UsageError, "did you mean 'val_loss'"),
        (["ls", "--columns", "val_los"], UsageError, "did you mean 'val_loss'"),
        (["ls", "--columns", "name", "--json"], UsageError, "--columns is for the table"),
        (["ls", "--watch"], UsageError, "--watch needs a terminal"),
        (["ls", "--watch", "--json"], UsageError, "only one of them"),
        (["compare", "digits", "--watch"], UsageError, "--watch needs a terminal"),
        (["compare", "digits", "--watch", "--json"], UsageError, "--watch shows a table, not json"),
        (["compare", "digits", "--columns", "steps", "--format", "csv"], UsageError, "csv has everything"),
        (["compare", "digits", "--columns", "stepps"], UsageError, "did you mean 'steps'"),
        (["compare", "digits", "--sort", "config.rate"], UsageError, "config.learning_rate"),
        (["compare", "digits", "--status", "running"], NotFound, "no run is running"),
        (["compare", "digits", "--by", "config.seed", "--sort", "x"], UsageError, "no run has 'x'"),
        (["best", "--metric", "val_loss", "--columns", "nam"], UsageError, "did you mean 'name'"),
        (["best", "--metric", "val_loss", "--status", "crashed"], NotFound, "no run is crashed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_shown_is_said(runs: None, words: list[str], error: type[Exception], said: str) -> None:
    """A wrong choice is one line that names what there is."""
    done = run_cli(*words)
    assert isinstance(done.exception, error), done.output
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


def test_compare_chooses_orders_and_selects(runs: None) -> None:
    """Runs in the order of a figure, so many of them, with the rows asked for."""
    words = ("compare", "digits", "--sort", "val_loss", "-n", "2", "--columns", "status,val_loss,steps_per_s")
    lines = run_cli(*words).stdout.splitlines()
    assert lines[0].split() == ["run", "rate0.1-seed1", "rate0.1-seed0"]
    labels = [re.split("  +", line)[0] for line in lines[1:]]
    assert labels == ["status", "val_loss best", "val_loss last", "val_loss min", "val_loss max", "steps/s"]
    done = run_cli("compare", "digits", "--status", "failed", "--json")
    assert [run["run_name"] for run in json.loads(done.stdout)["runs"]] == ["rate0.1-seed1"]


def test_compare_of_a_metric_beside_the_usual_ones(runs: None) -> None:
    """--columns finds metrics that a comparison leaves out by default."""
    write_run("with", [(1, 1, {"odd/thing": 3.0})])
    done = run_cli("compare", "with", "--columns", "odd/thing last")
    assert done.stdout.splitlines()[1].split() == ["odd/thing", "last", "3"]


def test_groups_are_ordered_and_rounded_to_what_is_known(runs: None) -> None:
    """Groups by a mean, the best first; a mean has the digits that two of the standard deviation reach."""
    words = ("compare", "digits", "--by", "config.learning_rate", "--keys", "val_loss")
    lines = run_cli(*words, "--sort", "-val_loss").stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["learning_rate=0.01", "learning_rate=0.1"]
    assert "0.38 ± 0.18 [0.25, 0.50]" in lines[2]
    assert lines[0].split()[-1] == "steps/s"
    assert first_words(run_cli(*words, "--sort", "n", "-n", "1", "--columns", "val_loss")) == ["learning_rate=0.01"]
    exact = json.loads(run_cli(*words, "--json").stdout)
    assert exact["goals"] == {"val_loss": "min"}
    assert 0.375 in [group["metrics"]["val_loss"]["mean"] for group in exact["groups"]]


def test_best_shows_the_columns_asked_for(runs: None) -> None:
    """Names of settings are those of compare and of conditions; other figures can be columns."""
    words = ("best", "--metric", "val_loss", "-n", "2")
    lines = run_cli(*words).stdout.splitlines()
    settings = ["config.learning_rate", "config.seed"]
    assert re.split("  +", lines[0]) == ["name", "id", "val_loss", "at step", "status", *settings]
    lines = run_cli(*words, "--columns", "name,val_loss,final/*,steps/s").stdout.splitlines()
    assert lines[0].split() == ["name", "val_loss", "final/best_val_loss", "steps/s"]
    assert lines[1].split()[:3] == ["rate0.1-seed1", "0.25", "0.25"]


def test_ls_shows_what_runs_are_sorted_by(runs: None) -> None:
    """As the first of the values, also where it is none of the usual columns, and where the terminal is narrow."""
    assert run_cli("ls", "--sort", "-config.seed").stdout.splitlines()[0].split()[5] == "config.seed"
    text = re.sub(r"\x1b\[[0-9;]*m", "", Terminal("ls", "--sort", "config.seed", columns=72).text())
    assert [line.split()[3] for line in text.splitlines() if "rate0." in line] == ["0", "0", "1", "1"]


def test_comparison_of_many_runs_keeps_results_in_a_narrow_terminal() -> None:
    """Results go last but for settings; what the runs are sorted by stays."""
    for number in range(8):
        config = {"learning_rate": number, "batch_size": number}
        values = {"train_loss": 1.0 + number, "val_loss": 2.0 - number, "lr": 0.1}
        write_run(f"r{number}", [(1, 1, values)], config=config, summary={"best_val_loss": 0.125 * number})
    text = re.sub(r"\x1b\[[0-9;]*m", "", Terminal("compare", "digits", columns=52).text())
    assert any(line.startswith("r7 ") and line.split()[-1] == "0.875" for line in text.splitlines())
    text = re.sub(r"\x1b\[[0-9;]*m", "", Terminal("compare", "digits", "--sort", "lr", columns=52).text())
    assert any(line.startswith("r7 ") and line.split()[-2:] == ["0.875", "0.1"] for line in text.splitlines())


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_tables_fit_the_terminal(runs: None, columns: int) -> None:
    """No line of a table is wider than the terminal; each run has one line; the best result is green."""
    text = Terminal("ls", columns=columns).text()
    rows = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if not line.startswith("trackers:")]
    assert max(map(len, rows)) <= columns
    assert sum("rate0." in line for line in rows) == 4
    assert "\x1b[1;32m0.25\x1b[0m" in text


def test_comparison_in_a_narrow_terminal_has_all_runs(runs: None) -> None:
    """Runs that have no room follow below; without colours the best is starred."""
    text = Terminal("compare", "digits", "--keys", "val_loss", columns=60, NO_COLOR="1").text()
    assert "\x1b" not in text
    assert len([line for line in text.splitlines() if line.startswith("status ")]) == 2
    assert "0.25*" in text


def test_watch_shows_what_changes_until_ctrl_c(runs: None) -> None:
    """A run that begins while one looks is there at the next look; the terminal is put back at the end."""
    terminal = Terminal("ls", "--watch", "--columns", "name", columns=80)
    terminal.until(b"rate0.01-seed1")
    write_run("fresh", [(1, 1, {"val_loss": 1.0})], created=T0 + 9)
    terminal.until(b"fresh")
    terminal.process.send_signal(signal.SIGINT)
    assert "\x1b[?1049l" in terminal.text()
