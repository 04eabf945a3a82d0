"""Megatron's training line, timers and stragglers from what runs log, compared with their journals value by value."""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import trackers
from tests import ROOT, forked
from tests.helpers import T0, run_info, stream
from tests.ranks.support import the_run
from trackers.backends.console import line as console_line
from trackers.backends.console.line import ConsoleLines
from trackers.backends.console.tracker import ConsoleTracker
from trackers.records import Metrics, Number, Record, Summary, Text
from trackers.tracker import Cursor, State, Status

TRAIN = ROOT / "examples/gpt2/train.py"
SMALL = ["--n-layer", "1", "--n-head", "2", "--n-embd", "32", "--block-size", "32", "--batch-size", "8", "--eval-iters",
         "1", "--warmup-iters", "5", "--device", "cpu", "--sample-tokens", "4", "--tracker", "console",
         "--tracker-measure-interval", "5"]  # fmt: skip


def printed(
    tmp_path: Path, records: Iterable[Record], config: dict[str, Any] | None = None, **options: Any
) -> list[str]:
    """What the console prints of a run's records; without the lines' stamps."""
    out = io.StringIO()
    tracker = ConsoleTracker(out)
    given = {"TRACKER_CONSOLE_STYLE": "full", "TRACKER_LOG_INTERVAL": 4, **options}
    tracker.open(run_info(tmp_path, options=given, config=config or {}), State())
    tracker.write(stream(records), Cursor(1))
    tracker.close(Status("finished"))
    return [re.sub(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\] ", "", line) for line in out.getvalue().splitlines()]


def row(step: int, **values: Number) -> Metrics:
    """A record; ``_`` in a name stands for a space, ``__`` for a hyphen."""
    named = {name.replace("__", "-").replace("_", " "): value for name, value in values.items()}
    return Metrics(step=step, time=T0 + step, values=named)


def test_line_is_megatrons(tmp_path: Path) -> None:
    """Every field that a run can log is on its line, in Megatron's order and forms."""
    values: dict[str, Number] = {
        "iteration-time": 2.70134, "throughput/tflops/device": 210.52, "iter-energy/gpu": 1234.56, "power/gpu": 456.78,
        "learning-rate": 1.587349e-4, "batch-size": 256, "consumed-samples": 3_104_000, "skipped-train-samples": 12,
        "lm loss": 2.352391, "mtp_1 loss": 7.9, "loss-scale": 1.0, "grad-norm": 0.1321, "num-zeros": 314,
        "params-norm": 99.5, "max-attention-logit": 8.25, "skipped-iterations": 2, "nan-iterations": 1,
        "decoupled-learning-rate": 1e-5, "memory/mem-allocated-gigabytes": 3.0, "accuracy": 0.5,
    }  # fmt: skip
    assert printed(tmp_path, [Metrics(step=4, time=T0, values=values)], {"model": {"train_iters": 36_000}}) == [
        "iteration        4/   36000 | consumed samples:      3104000 | skipped samples:           12 | "
        "elapsed time per iteration (ms): 2701.3 | throughput per GPU (TFLOP/s/GPU): 210.5 | "
        "energy per GPU (J/iter/GPU): 1234.6 | power per GPU (W/GPU): 456.8 | learning rate: 1.587349E-04 | "
        "decoupled learning rate: 1.000000E-05 | global batch size:   256 | lm loss: 2.352391E+00 | "
        "mtp_1 loss: 7.900000E+00 | loss scale: 1.0 | grad norm: 0.132 | num zeros: 314 | params norm: 99.500 | "
        "max attention logit: 8.250 | accuracy: 5.000000E-01 | number of skipped iterations:   2 | "
        "number of nan iterations:   1 |"
    ]


def test_line_is_shorter_where_little_is_logged(tmp_path: Path) -> None:
    """What the run didn't log isn't on the line, neither as zero nor as None."""
    assert printed(tmp_path, [row(4, loss=2.0)]) == [
        "iteration        4 | loss: 2.000000E+00 | number of nan iterations:   0 |"
    ]


def test_losses_are_means_of_their_interval(tmp_path: Path) -> None:
    """The first interval's mean, too, is over its own steps; negative and NaN losses are what they are."""
    losses = [1.0, -4.0, 2.0, -5.0, 1.0, math.nan, 1.0, math.inf, 3.0]
    found = printed(tmp_path, [row(step, lm_loss=loss) for step, loss in enumerate(losses, 1)])
    assert [re.findall(r"lm loss: (\S+) .*nan iterations: +(\d+)", line)[0] for line in found] == [
        ("-1.500000E+00", "0"), ("NAN", "2"), ("3.000000E+00", "0"),
    ]  # fmt: skip


def test_counts_of_a_run_are_summed(tmp_path: Path) -> None:
    """Skipped and NaN iterations are those of the interval, as they were logged; unknown ones aren't said."""
    records = [Metrics(step=s, time=T0, values={"loss": 1.0, "skipped-iterations": s % 2}) for s in range(1, 9)]
    assert [re.findall(r"skipped iterations: +(\d+)", line) for line in printed(tmp_path, records)] == [["2"], ["2"]]
    assert "iterations:" not in printed(tmp_path, [row(2, loss=1.0), row(4, loss=1.0)])[0]  # two of four steps


def test_times_are_weighted_by_the_steps_they_cover(tmp_path: Path) -> None:
    """Two measurements of different lengths in one interval count by their steps; power counts by time."""
    first = Metrics(step=1, time=T0, values={"first-step-time": 9.0})
    times = [
        Metrics(step=4, time=T0, values={"iteration-time": 1.0, "power/gpu": 100.0, "iter-energy/gpu": 100.0}),
        Metrics(step=10, time=T0, values={"iteration-time": 2.0, "power/gpu": 400.0, "iter-energy/gpu": 800.0}),
    ]
    (line,) = printed(tmp_path, [first, *times], TRACKER_LOG_INTERVAL=10)
    mean_s, energy_j = (3 * 1.0 + 6 * 2.0) / 9, (3 * 100.0 + 6 * 800.0) / 9
    assert f"(ms): {1000 * mean_s:.1f} | energy per GPU (J/iter/GPU): {energy_j:.1f} | " in line
    assert f"power per GPU (W/GPU): {energy_j / mean_s:.1f} |" in line


def test_timers_are_reported_and_pauses_are_not(tmp_path: Path) -> None:
    """The timers of the interval follow its line, in milliseconds; an evaluation's time is none of them."""
    values = {"iteration-time": 0.5, "forward-time": 0.2, "forward-time-min": 0.1, "optimizer-time": 0.05}
    records = [Metrics(step=4, time=T0, values=values), row(4, evaluation__time=9.0), row(4, loss=1.0)]
    expected = {
        "minmax": [
            "(min, max) time across ranks (ms):",
            f"    {'forward ':.<48}: (100.00, 200.00)",
            f"    {'optimizer ':.<48}: (50.00, 50.00)",
        ],
        "max": ["max time across ranks (ms):", f"    {'forward ':.<48}: 200.00", f"    {'optimizer ':.<48}: 50.00"],
    }
    for option, lines in expected.items():
        found = printed(tmp_path, records, TRACKER_TIMING_OPTION=option)
        assert found[1:] == lines
        assert "loss: 1.000000E+00" in found[0]


def test_ranks_are_told_apart_where_each_has_said_its_times(tmp_path: Path) -> None:
    """With every rank's times there is a row for each, and the report of stragglers, by what they worked: the whole
    iteration takes equally long on ranks that wait for each other."""
    values = {"iteration-time": 0.5}
    for rank, seconds in enumerate((0.25, 0.5)):
        values |= {f"iteration-time-ranks/rank_{rank}": seconds, f"forward-time-ranks/rank_{rank}": seconds / 2}
    record = Metrics(step=4, time=T0, values={**values, "forward-time": 0.25})
    assert printed(tmp_path, [record], TRACKER_TIMING_OPTION="all")[1:] == [
        "times across ranks (ms):",
        "  forward:",
        "     rank  0: 125.00",
        "     rank  1: 250.00",
        "MnRtt/Rnk: 125.00ms/0 | MxRtt/Rnk: 250.00ms/1",
    ]
    without = printed(tmp_path, [record], TRACKER_TIMING_OPTION="all", TRACKER_LOG_STRAGGLER=False)
    assert not any("Rtt" in text for text in without)


def test_evaluations_results_and_texts_are_told(tmp_path: Path) -> None:
    """An evaluation has a line of its own, in Megatron's words where it has Megatron's names."""
    values = {"lm loss validation": 2.0, "lm loss validation ppl": 7.39}
    records: list[Record] = [
        row(3, loss=1.0), Metrics(step=4, time=T0, values={"loss": 1.0, "val_loss": 3.0}),
        Metrics(step=4, time=T0, values=values), Text(step=4, time=T0, values={"note": "half way"}),
        Summary(time=T0, values={"best": 0.5}),
    ]  # fmt: skip
    assert printed(tmp_path, records)[1:] == [
        "validation loss at iteration 4 | val_loss: 3.000000E+00 |",
        "validation loss at iteration 4 | lm loss value: 2.000000E+00 | lm loss PPL: 7.390000E+00 |",
        "step 4 | note: half way",
        "final/best 0.5000",
    ]


def test_style_follows_the_run_unless_it_is_chosen(tmp_path: Path) -> None:
    """A run whose loop is measured has full lines by itself, any other short ones; both can be asked for."""
    plain = [row(4, loss=1.0)]
    looped = [Metrics(step=4, time=T0, values={"iteration-time": 0.5, "loss": 1.0})]
    assert printed(tmp_path, plain, TRACKER_CONSOLE_STYLE="auto") == ["step 4 | loss 1.0000"]
    assert printed(tmp_path, looped, TRACKER_CONSOLE_STYLE="auto")[0].startswith("iteration        4 | elapsed time")
    assert printed(tmp_path, looped, TRACKER_CONSOLE_STYLE="short") == ["step 4 | iteration-time 0.5000 | loss 1.0000"]


def test_megatrons_own_lines_are_not_printed_again(tmp_path: Path) -> None:
    """What Megatron's logging says by itself isn't said twice, unless short lines were asked for."""
    records = [
        Metrics(step=4, time=T0, values={"lm loss": 1.0, "samples vs steps": 32}),
        row(4, lm_loss_validation=1.0),
    ]
    assert printed(tmp_path, records) == []
    assert printed(tmp_path, records, TRACKER_CONSOLE_STYLE="auto") == []
    assert len(printed(tmp_path, records, TRACKER_CONSOLE_STYLE="short")) == 2


def test_training_that_goes_back_goes_on_being_shown(tmp_path: Path) -> None:
    """A second training in the same run, its steps counted from 1 again, has its lines."""
    records = [row(step, loss=1.0) for step in (*range(1, 9), *range(1, 9))]
    assert [line.split()[1] for line in printed(tmp_path, records)] == ["4", "8", "4", "8"]


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which lines wait."""
    clock = Clock()
    monkeypatch.setattr(ConsoleLines, "clock", clock)
    return clock


def iterations(lines: Iterable[str]) -> list[tuple[int, bool]]:
    """Of each summary line its iteration, and whether it has the time of an iteration."""
    return [(int(line.split("iteration ")[1].split()[0]), "elapsed" in line) for line in lines]


def test_line_waits_for_all_ranks_but_not_long(clock: Clock) -> None:
    """With several ranks a line is printed when its times have come, in order; one whose times never come, later."""
    lines = ConsoleLines(4)
    lines.ranks = 2
    found = list(lines.add(1, T0, {"first-step-time": 1.0}))
    for step in range(1, 10):
        found += lines.add(step, T0, {"loss": 1.0})
    assert found == []
    found += lines.add(8, T0, {"iteration-time": 0.5}, late=True)  # of the second interval
    assert found == []
    found += lines.add(4, T0, {"iteration-time": 0.5}, late=True)
    assert iterations(found) == [(4, True), (8, True)]
    for step in range(10, 14):
        found += lines.add(step, T0, {"loss": 1.0})
    clock.now_s += console_line.WAIT_S / 2
    assert iterations([*found, *lines.tick()]) == [(4, True), (8, True)]
    clock.now_s += console_line.WAIT_S
    assert iterations([*found, *lines.tick()]) == [(4, True), (8, True), (12, False)]
    assert iterations(lines.close()) == [(13, False)]


def test_line_of_one_rank_is_printed_at_once(clock: Clock) -> None:
    """Alone, a line comes with the last of the values that the one before had, and else with the next step."""
    lines = ConsoleLines(4)
    found = [[*lines.add(4, T0, {"lr": 0.1}), *lines.add(4, T0, {"loss": 1.0})]]
    assert iterations(found[0]) == [(4, False)]
    assert list(lines.add(8, T0, {"loss": 1.0})) == []
    assert iterations(lines.add(8, T0, {"lr": 0.1})) == [(8, False)]
    assert list(lines.add(12, T0, {"loss": 1.0})) == []
    assert iterations(lines.add(13, T0, {"loss": 1.0})) == [(12, False)]
    assert list(lines.add(16, T0, {"lr": 0.1})) == list(lines.tick()) == []
    clock.now_s += console_line.WAIT_S
    assert iterations(lines.tick()) == [(16, False)]


def test_loop_says_where_training_ends(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What the loop was told is on the line where the configuration doesn't say it; where it does, that stands."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    for config, total in ({"lr": 0.1}, 30), ({"train": {"max_iters": 50}}, 50):
        run = trackers.init("console", project="p", config=config)
        loop = run.loop(30, interval=10)
        for step in range(1, 11):
            loop.step()
            run.log({"loss": 1.0}, step=step)
        run.finish()
        assert re.findall(r"iteration +10/ +(\d+) ", capsys.readouterr().err) == [str(total)]


def fields(line: str) -> dict[str, str]:
    """A summary line's fields by name."""
    head, *rest = line.rstrip(" |").split(" | ")
    found = dict(field.rsplit(": ", 1) for field in rest)
    match = re.fullmatch(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\] iteration +(\d+)/ +(\d+)", head)
    assert match, head
    return {**{name: value.strip() for name, value in found.items()}, "iteration": match[2], "iterations": match[3]}


def journal(run: Path) -> list[tuple[int, dict[str, float]]]:
    """Every record of metrics, by step."""
    found = []
    for place in sorted((run / "streams").glob("*.jsonl")):
        for text in place.read_text().splitlines():
            record = json.loads(text)
            if record["kind"] == "metrics" and record.get("step") is not None:
                found.append((record["step"], record["values"]))
    return sorted(found, key=lambda pair: pair[0])


def compare(said: Sequence[str], run: Path, *, every: int, samples: int, timing: bool) -> list[int]:
    """Check each summary line against the journal; their iterations."""
    rows = journal(run)
    before, found = 0, []
    for number, line in enumerate(said):
        if "] iteration" not in line:
            continue
        got = fields(line)
        step = int(got["iteration"])
        here = [(at, values) for at, values in rows if before < at <= step]
        losses = [values["train_loss"] for _, values in here if "train_loss" in values]
        assert got["train_loss"] == f"{sum(losses) / len(losses):.6E}"
        assert got["learning rate"] == f"{[v['learning_rate'] for _, v in here if 'learning_rate' in v][-1]:.6E}"
        assert int(got["global batch size"]) == samples
        assert int(got["consumed samples"]) == samples * step
        assert step % every == 0
        times = [(at, v["iteration-time"]) for at, v in here if "iteration-time" in v]
        since = [max(1, before), *(at for at, _ in times)]
        weights = [at - start for (at, _), start in zip(times, since, strict=False)]
        mean_s = sum(w * t for w, (_, t) in zip(weights, times, strict=True)) / sum(weights)
        assert got["elapsed time per iteration (ms)"] == f"{1000 * mean_s:.1f}"
        if timing:
            report = said[number + 1 : number + 4]
            assert report[0] == "(min, max) time across ranks (ms):"
            for name, text in zip(("forward-backward", "optimizer"), report[1:], strict=True):
                ends = []
                for kind in ("-min", ""):
                    values = [
                        v.get(f"{name}-time{kind}", v.get(f"{name}-time")) for _, v in here if "iteration-time" in v
                    ]
                    ends.append(sum(w * t for w, t in zip(weights, values, strict=True)) / sum(weights) * 1000)
                assert text == f"    {name + ' ':.<48}: ({ends[0]:.2f}, {ends[1]:.2f})"
        before = step
        found.append(step)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_example_lines_are_what_its_journal_says(ranks: int) -> None:
    """One process and four: each field of each line, and each timer, is what the interval's records say."""
    more = ["--max-iters", "20", "--log-interval", "5", "--eval-interval", "20", "--tracker-timing-level", "1"]
    words = [sys.executable, str(TRAIN), *SMALL, *more]
    done = forked.run(words, preload=forked.TORCH, ranks=ranks if ranks > 1 else 0, timeout=150)
    assert done.returncode == 0, done.stderr
    said = done.stderr.splitlines()
    assert compare(said, the_run(), every=10, samples=8 * ranks, timing=True) == [10, 20]
    assert len([line for line in said if line.startswith("validation loss at iteration 20 | val_loss: ")]) == 1
    assert said[-1].startswith("final/best_val_loss ")
    assert all(fields(line)["iterations"] == "20" for line in said if "] iteration" in line)


@pytest.mark.slow
def test_lines_of_a_killed_run_are_true() -> None:
    """Whatever was printed before a run was killed is what its journal says."""
    more = ["--max-iters", "100000", "--log-interval", "5", "--eval-interval", "100000", "--tracker-log-interval", "5"]
    process = forked.Program(
        [sys.executable, str(TRAIN), *SMALL, *more], preload=forked.TORCH, env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line.rstrip("\n"))
        if sum("] iteration" in one for one in said) == 4:
            break
    process.kill()
    process.communicate()
    assert compare(said, the_run(), every=5, samples=8, timing=False) == [5, 10, 15, 20]


BARS = {
    "tqdm": """
import tqdm
def bar(steps):
    return tqdm.tqdm(steps, mininterval=0, desc="training")
""",
    "tqdm-stdout": """
import sys, tqdm
def bar(steps):
    return tqdm.tqdm(steps, mininterval=0, desc="training", file=sys.stdout)
""",
    "rich": """
import rich.progress
def bar(steps):
    return rich.progress.track(steps, description="training", refresh_per_second=1000)
""",
}
SCRIPT = """
import trackers
run = trackers.init("console", project="p", name="bars", options={"TRACKER_RELAY": False})
for step in bar(range(1, 41)):
    run.log({"loss": 1.0 / step, "iteration-time": 0.5, "lr": 0.1}, step=step)
run.finish()
"""


def screen(raw: bytes) -> list[str]:
    """What a terminal of endless height shows: the escapes that progress bars use, obeyed."""
    rows, at, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", raw.decode()):
        if part == "\r":
            column = 0
        elif part == "\n":
            at += 1
            rows += [""] * (at + 1 - len(rows))
        elif part.startswith("\x1b["):
            count = int(part[2:-1]) if part[2:-1].isdigit() else 1
            at = max(0, at - count) if part[-1] == "A" else at
            if part[-1] == "K":
                rows[at] = "" if part == "\x1b[2K" else rows[at][:column]
        else:
            rows[at] = rows[at][:column].ljust(column) + part + rows[at][column + len(part) :]
            column += len(part)
    return [row.rstrip() for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("style", ["short", "full"])
@pytest.mark.parametrize("library", BARS)
def test_progress_bar_and_lines_leave_each_other_whole(library: str, style: str) -> None:
    """On a real terminal each line stands alone and whole, and one bar is left at the end, complete."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", BARS[library] + SCRIPT], stdin=slave, stdout=slave, stderr=slave,
        env={**os.environ, "TRACKER_CONSOLE_STYLE": style, "TERM": "xterm", "COLUMNS": "200"},
    )  # fmt: skip
    os.close(slave)
    raw = b""
    while True:
        try:
            piece = os.read(master, 65536)
        except OSError:  # the other end is closed: Linux says EIO
            break
        if not piece:
            break
        raw += piece
    os.close(master)
    assert process.wait() == 0, raw.decode()
    shown = [row for row in screen(raw) if row]
    if style == "short":
        lines = [row for row in shown if row.startswith("step ")]
        assert lines == [
            f"step {s} | loss {1 / s:.4f} | iteration-time 0.5000 | lr 0.1000" for s in (1, 10, 20, 30, 40)
        ]
    else:
        lines = [row for row in shown if "] iteration" in row]
        assert [int(re.findall(r"iteration +(\d+)", row)[0]) for row in lines] == [10, 20, 30, 40]
        assert all(re.fullmatch(r"\[[^]]+\] iteration.*\| lr: .*\||.*iterations:   0 \|", row) for row in lines)
    bars = [row for row in shown if row.startswith("training")]
    assert len(bars) == 1
    assert "100%" in bars[0]
    assert len(shown) == len(lines) + len(bars) + 1  # and the line that names the run
