"""The console tracker: which lines it prints, and what it does on a terminal that is gone."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers import T0, run_info, stream
from trackers.backends.console.tracker import ConsoleTracker
from trackers.records import Alert, Metrics, Record, Summary, Text
from trackers.tracker import Cursor, State, Status


def printed(tmp_path: Path, records: list[Record], status: str = "finished", **options: object) -> list[str]:
    out = io.StringIO()
    tracker = ConsoleTracker(out)
    tracker.open(run_info(tmp_path, options=dict(options)), State())
    tracker.write(stream(records), Cursor(len(records)))
    tracker.close(Status(status))  # type: ignore[arg-type]
    return out.getvalue().splitlines()


def steps(count: int) -> list[Record]:
    return [Metrics(step=s, time=T0, values={"train_loss": 2.1234 - s / 1000}) for s in range(count)]


def test_line_is_document_threes(tmp_path: Path) -> None:
    """Losses have four decimals, small rates an exponent, and fields are joined by bars."""
    row = Metrics(
        step=100, time=T0, values={"train_loss": 2.12341, "learning_rate": 1.5e-4, "tokens": 12, "bad": math.nan}
    )
    assert printed(tmp_path, [row]) == ["step 100 | train_loss 2.1234 | learning_rate 1.50e-04 | tokens 12 | bad nan"]


def test_line_of_a_whole_models_statistics_is_cut(tmp_path: Path) -> None:
    """Hundreds of values in one record don't fill the terminal: the first are shown, and how many more there are."""
    values = {f"layer{number}_std": 1.0 for number in range(300)}
    (line,) = printed(tmp_path, [Metrics(step=0, time=T0, values=values)])
    assert line.count("layer") == 24
    assert line.endswith("layer23_std 1.0000 | … 276 more")
    (line,) = printed(tmp_path, [Metrics(step=0, time=T0, values=values)], TRACKER_CONSOLE_VALUES=0)
    assert line.count("layer") == 300


def test_first_each_tenth_and_last_step_are_printed(tmp_path: Path) -> None:
    """Without an option each tenth step is shown, and the last one at the end."""
    assert [line.split()[1] for line in printed(tmp_path, steps(25))] == ["0", "10", "20", "24"]
    found = printed(tmp_path, steps(25)[1:], TRACKER_LOG_INTERVAL=7)
    assert [line.split()[1] for line in found] == ["1", "7", "14", "21", "24"]
    evaluated = [*steps(25), Metrics(step=24, time=T0, values={"val_loss": 1.0})]
    assert printed(tmp_path, evaluated)[-2:] == ["step 24 | val_loss 1.0000", "step 24 | train_loss 2.0994"]


def test_evaluations_results_and_alerts_are_always_printed(tmp_path: Path) -> None:
    """A validation row is shown at any step; results come once, at the end, and not when the run only pauses."""
    records = [
        *steps(2),
        Metrics(step=3, time=T0, values={"val_loss": 1.0}),
        Metrics(step=3, time=T0, values={"final/best": 0.5}),
        Summary(time=T0, values={"acc": 0.25}),
        Alert(time=T0, title="hot", text="90 C", level="WARN"),
        Metrics(time=T0, values={"gpu": 1.0}),
    ]
    expected = ["step 0 | train_loss 2.1234", "step 3 | val_loss 1.0000", "WARN: hot 90 C"]
    assert printed(tmp_path, records) == [*expected, "final/best 0.5000 | final/acc 0.2500"]
    assert printed(tmp_path, records, "running") == expected


def test_terminal_escapes_are_shown_not_obeyed(tmp_path: Path) -> None:
    """Names and texts can't move the cursor, ring the bell or forge a line."""
    records = [
        Metrics(step=0, time=T0, values={"a\x1b[2J\r": 1}),
        Text(step=1, time=T0, values={"t": "x\x1b]0;t\x07\nstep 9 | " + "y" * 500}),
    ]
    found = printed(tmp_path, records)
    assert len(found) == 2
    assert all(line.isprintable() for line in found)
    assert found[1].endswith("…")


def test_repeated_batch_prints_nothing_new(tmp_path: Path) -> None:
    """A batch that comes again isn't shown again."""
    out = io.StringIO()
    tracker = ConsoleTracker(out)
    tracker.open(run_info(tmp_path), State())
    for _ in range(3):
        tracker.write(stream(steps(1)), Cursor(1))
    assert len(out.getvalue().splitlines()) == 1


def test_terminal_that_is_gone_never_raises(tmp_path: Path) -> None:
    """A closed stream ends the printing and nothing else."""
    out = io.StringIO()
    tracker = ConsoleTracker(out)
    tracker.open(run_info(tmp_path), State())
    out.close()
    tracker.write(stream(steps(30)), Cursor(30))
    tracker.close(Status("finished"))


def test_stream_of_few_characters_gets_escapes(tmp_path: Path) -> None:
    """On an ASCII terminal a name from another script is escaped instead of lost."""
    raw = io.BytesIO()
    tracker = ConsoleTracker(io.TextIOWrapper(raw, encoding="ascii"))
    tracker.open(run_info(tmp_path), State())
    tracker.write(stream([Metrics(step=0, time=T0, values={"损失": 1})]), Cursor(1))
    assert raw.getvalue() == b"step 0 | \\u635f\\u5931 1\n"


def test_progress_bar_is_not_torn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """While a tqdm bar is on the terminal, the line takes one of its own and the bar is drawn below it."""
    import tqdm

    with tqdm.tqdm(total=10, mininterval=0) as bar:
        bar.update(1)
        tracker = ConsoleTracker()
        tracker.open(run_info(tmp_path), State())
        tracker.write(stream(steps(1)), Cursor(1))
        bar.update(1)
    lines = capsys.readouterr().err.replace("\r", "\n").splitlines()
    assert "step 0 | train_loss 2.1234" in [line.strip() for line in lines]


@pytest.mark.slow
def test_no_progress_library_is_imported() -> None:
    """Printing loads neither tqdm nor rich, and goes to standard error."""
    code = (
        "import sys; from pathlib import Path; from tests.helpers import *\n"
        "from trackers.backends.console.tracker import ConsoleTracker\n"
        "import tempfile\n"
        "Driver(ConsoleTracker, run_info(Path(tempfile.mkdtemp()))).deliver(training(3))\n"
        "print(sorted({'tqdm', 'rich'} & set(sys.modules)))"
    )
    root = ROOT
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert done.stderr.startswith("step 0 | metric_0 0.0000")
