"""What is evidence that training began again, when a run began, and how it ended."""

from __future__ import annotations

import calendar
import gzip
import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from test_log_programs import read, rows
from trackers_console_logs.lines import find_time
from trackers_console_logs.reader import LogReader

import trackers
from trackers.errors import NotFound
from trackers.records import Finish, Metrics, Start

pytestmark = pytest.mark.usefixtures("utc")


def at(text: str) -> float:
    return float(calendar.timegm(time.strptime(text, "%Y-%m-%d %H:%M:%S")))


def iteration(step: int, loss: float = 2.0, clock: str = "", samples: int | None = None) -> str:
    stamp = f" [2026-03-01 {clock}]" if clock else ""
    counted = "" if samples is None else f" consumed samples: {samples:12d} |"
    return f"{stamp} iteration {step:8d}/     100 |{counted} lm loss: {loss:.6E} |\n"


def iters(*steps: int, loss: float = 2.0) -> str:
    return "".join(f"iter {step}: loss {loss:.4f}, time 25.50ms, mfu 14.50%\n" for step in steps)


def starts(text: str) -> list[int | None]:
    return [record.from_step for record in read(text)[0] if isinstance(record, Start)]


LOADED = "  successfully loaded checkpoint from /ckpt [ t 1/1, p 1/1 ] at iteration 3\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("".join(map(iteration, (1, 2, 3, 4))), LOADED + "".join(iteration(step, 9.0) for step in (4, 5))),
        (
            "".join(iteration(step, clock=f"10:00:0{step}") for step in (1, 2, 3, 4)),
            "".join(iteration(step, 9.0, f"10:30:0{step}") for step in (4, 5)),
        ),
        (
            "".join(iteration(step, samples=16 * step) for step in (1, 2, 3, 4, 5)),
            "".join(iteration(step, 9.0, samples=16 * step) for step in (4, 5)),
        ),
    ],
    ids=["a checkpoint's line", "a later time", "a counter that falls"],
)
def test_step_that_falls_with_evidence_is_a_restart(first: str, second: str) -> None:
    """What was trained again takes the earlier one's place, and the note says where."""
    records, note = read(first + second)
    assert [record.from_step for record in records if isinstance(record, Start)] == [None, 3]
    assert rows(records)[4]["train_loss"] == 9.0
    assert len([record for record in records if isinstance(record, Metrics) and record.step == 4]) == 1
    assert "training went back from step" in note


def test_step_that_falls_without_evidence_replaces_nothing() -> None:
    """Both values stay, and the note says so."""
    records, note = read(iters(0, 10, 20) + iters(0, 10, loss=1.0))
    points = [(record.step, record.values["train_loss"]) for record in records if isinstance(record, Metrics)]
    assert points == [(0, 2.0), (10, 2.0), (20, 2.0), (0, 1.0), (10, 1.0)]
    assert "the step falls from 20 to 0 at line 4" in note
    assert starts(iters(0, 10, 20) + "Resuming training from out\n" + iters(10, 20, loss=1.0)) == [None, 9]


def test_training_that_goes_on_at_its_very_last_step_replaces_it(tmp_path: Path) -> None:
    """The file's reader sees that one iteration comes again, too: the step has the later row alone."""
    path = tmp_path / "a.log"
    path.write_text("".join(map(iteration, (1, 2, 3, 4))) + LOADED + "".join(iteration(step, 9.0) for step in (4, 5)))
    (run,) = LogReader().runs(str(path))
    points = [(record.step, record.values["train_loss"]) for record in LogReader().read(run)
              if isinstance(record, Metrics)]  # fmt: skip
    assert points == [(1, 2.0), (2, 2.0), (3, 2.0), (4, 9.0), (5, 9.0)]
    assert "training went back from step 4 to 4 at line 6" in run.note


@pytest.mark.parametrize("clocks", [("10:00:0{}", "10:30:0{}"), ("", "")], ids=["stamps", "none"])
@pytest.mark.parametrize("loaded", [1, 2, 3, 4])
def test_training_that_goes_on_on_other_ranks_is_a_restart(loaded: int, clocks: tuple[str, str]) -> None:
    """Another last rank writes the rows: what was above the checkpoint's step gives way all the same."""

    def ranked(world: int, clock: str, *steps: int) -> str:
        stamp = "[20260301 {}]" if clock else "{}"
        return "".join(
            f"{stamp.format(clock.format(step))}[rank-{world - 1}/{world}][INFO ] [--trainer.py:2488] :  iteration "
            f"{step:8d}/     100 | lm loss: {world:.6E} |\n" for step in steps)  # fmt: skip

    text = ranked(4, clocks[0], 1, 2, 3, 4) + LOADED.replace("iteration 3", f"iteration {loaded}")
    text += ranked(8, clocks[1], *range(loaded + 1, 7))
    records, _ = read(text)
    begun = [(record.from_step, record.world_size) for record in records if isinstance(record, Start)]
    points = [(record.step, record.values["train_loss"]) for record in records if isinstance(record, Metrics)]
    assert begun == [(None, 4), (loaded, 8)]
    assert points == [(step, 4.0 if step <= loaded else 8.0) for step in range(1, 7)]


def test_training_that_goes_on_behind_its_last_step_begins_anew() -> None:
    """A checkpoint of the last row's step, or of one between two rows, is a start: nothing was trained again, and the
    note says nothing. What a rank that loads late says of an earlier checkpoint is none."""
    rest = "".join(map(iteration, (4, 5)))
    records, note = read("".join(map(iteration, (1, 2, 3))) + LOADED + rest)
    assert ([record.from_step for record in records if isinstance(record, Start)], note) == ([None, 3], "")
    assert starts("".join(map(iteration, (1, 2))) + LOADED + rest) == [None, 3]
    assert starts(iteration(4) + LOADED + iteration(5)) == [None]


@pytest.mark.parametrize("again", [2.5, 2.4])
def test_evaluation_behind_a_checkpoint_is_of_the_attempt_that_begins(again: float) -> None:
    """nanoGPT evaluates before it trains on: that value remains, also where it is the earlier one's."""
    evaluated = "step 10: train loss 2.3000, val loss {:.4f}\n"
    first = iters(0) + evaluated.format(2.5) + iters(10, 20)
    records, _ = read(first + "Resuming training from out\n" + evaluated.format(again) + iters(10, 20, loss=1.0))
    points = [(record.step, *record.values.values()) for record in records if isinstance(record, Metrics)]
    assert points == [
        (0, 2.0, 25.5, 14.5), (10, 2.3, again), (10, 1.0, 25.5, 14.5), (20, 1.0, 25.5, 14.5),
    ]  # fmt: skip
    (at,) = [number for number, record in enumerate(records) if isinstance(record, Start) and record.from_step == 9]
    assert records[at + 1] == Metrics(step=10, time=records[at].time, values={"train/loss": 2.3, "val_loss": again})


def test_evaluation_without_a_step_behind_a_checkpoint_has_that_checkpoints() -> None:
    """Also where the log ends before training goes on."""
    line = "03/01 10:00:{:02d} - mmengine - INFO - Iter({}) [{}/90]  {}: {:.4f}\n"
    rows_of = [line.format(step, "train", step * 10, "loss", 2.0) for step in (1, 2, 3)]
    resumed = "03/01 10:01:00 - mmengine - INFO - resumed epoch: 0, iter: 20\n"
    resumed += line.format(59, "val", 90, "mIoU", 7.0)
    for rest in ("", line.format(59, "train", 30, "loss", 1.0)):
        assert rows(read("".join(rows_of) + resumed + rest)[0])[20] == {"train_loss": 2.0, "val/mIoU": 7.0}


def test_second_line_of_a_step_with_other_values_is_said() -> None:
    """Nothing tells whether another rank wrote it or training began again: the first counts, and the note names it."""
    records, note = read(iters(0, 10) + iters(10, 20, loss=1.0))
    assert [record.values["train_loss"] for record in records if isinstance(record, Metrics)] == [2.0, 2.0, 1.0]
    assert note.startswith("1 lines say other values of a step than the line before them")
    assert "at line 3" in note
    assert read(iters(0, 10) + iters(10, 20))[1] == ""


@pytest.mark.parametrize("rank", ["", "[rank1]:"])
def test_lines_of_earlier_steps_with_other_values_are_said(rank: str) -> None:
    """Each of them, also where another came behind the first of its step, and not those that say the same."""
    first, again = ("".join(
        f"{{}}[titan] 2026-03-07 19:46:00,{number}0{step} - root - INFO - step: {step}  loss: {loss}.5  tps: 1,050\n"
        for step in (1, 2, 3)) for number, loss in ((1, 9), (2, 8)))  # fmt: skip
    zero = rank.replace("1", "0")
    records, note = read(first.replace("{}", zero) + again.replace("{}", rank))
    assert [record.values["train_loss"] for record in records if isinstance(record, Metrics)] == [9.5, 9.5, 9.5]
    assert (note == "") if rank else note.startswith("3 lines say other values of a step than the line before them")
    assert "at line 4, of step 1" in note or rank
    assert read(first.replace("{}", zero) + first.replace("{}", rank).replace(",1", ",2"))[1] == ""


def test_row_of_a_process_that_took_anothers_place_takes_the_rows_place() -> None:
    """Ray's new worker says a step again, and one process alone writes verl's rows: training began again."""
    line = "(TaskRunner pid={}) step:2 - actor/lr:1e-06 - critic/score/mean:{}\n"
    records, note = read(line.format(4711, 0.25) + line.format(5711, 0.5))
    assert rows(records)[2]["critic/score/mean"] == 0.5
    assert note == "training went back from step 2 to 2 at line 2"
    assert read(line.format(4711, 0.25) + line.format(5711, 0.25))[1] == ""


@pytest.mark.parametrize("loaded", [0, 1, 2, 3])
@pytest.mark.parametrize("again", ["9.0", "3.5"])
def test_verl_that_goes_on_in_another_process_replaces_what_it_trains_again(loaded: int, again: str) -> None:
    """Its very last step, too: one process writes the rows, so that another isn't a rank of the same training."""
    line = "(TaskRunner pid={}) step:{} - actor/lr:1e-06 - critic/score/mean:{}\n"
    text = "".join(line.format(4711, step, step + 0.5) for step in (1, 2, 3))
    text += f"(TaskRunner pid=5711) Setting global step to {loaded}\n"
    for later in ((), (loaded + 2, loaded + 3)):
        steps = (loaded + 1, *later)
        records, note = read(text + "".join(line.format(5711, step, again) for step in steps))
        found = {step: values["critic/score/mean"] for step, values in rows(records).items()}
        assert found == {**{step: step + 0.5 for step in range(1, loaded + 1)}, **dict.fromkeys(steps, float(again))}
        assert [row.from_step for row in records if isinstance(row, Start)] == [None, loaded]
        assert note == (f"training went back from step 3 to {loaded + 1} at line 5" if loaded < 3 else "")


RESTORED = (
    "Restoring model state from checkpoint...\n",
    "Restoring optimizer state from checkpoint...\n",
    "Loaded checkpoint './last.pth.tar' (epoch {})\n",
)


@pytest.mark.parametrize("lines", [RESTORED, RESTORED[2:], RESTORED[:1]], ids=["all", "loaded", "restoring"])
@pytest.mark.parametrize("epoch", [0, 1, 2])
def test_timm_that_goes_on_behind_an_epoch_says_so(epoch: int, lines: Sequence[str]) -> None:
    """What came behind the checkpoint's epoch gives way; where nothing did, training is said to begin anew."""
    row = (
        "Train: {} [{:4d}/100 ( 50%)]  Loss: {}.5 (6.62)  Time: 0.512s,  500.12/s  (0.520s,  492.31/s)  LR: 1.000e-04  "
        "Data: 0.010 (0.012)\n"
    )
    first = "".join(row.format(number, batch, 1) for number in (0, 1, 2) for batch in (0, 99))
    behind = "".join(row.format(epoch + 1, batch, 2) for batch in (0, 99))
    records, note = read(first + "".join(lines).format(epoch) + behind)
    found = {step: values["train_loss"] for step, values in rows(records).items()}
    kept = [number * 100 + batch for number in range(epoch + 1) for batch in (0, 99)]
    assert found == {**dict.fromkeys(kept, 1.5), epoch * 100 + 100: 2.5, epoch * 100 + 199: 2.5}
    begun = [record.from_step for record in records if isinstance(record, Start)]
    assert begun == [None, epoch * 100 + 99] or (epoch == 2 and begun == [None] and lines == RESTORED[:1])
    due = f"training went back from step 299 to {epoch * 100 + 100} at line {7 + len(lines)}"
    assert note == ("" if epoch == 2 else due)


def losses(text: str) -> list[tuple[int | None, str, float]]:
    """Losses with their steps, of the attempts that count."""
    found: dict[int | None, list[tuple[int | None, str, float]]] = {}
    for record in read(text)[0]:
        if isinstance(record, Start) and record.from_step is not None:
            found = {step: kept for step, kept in found.items() if (step or 0) <= record.from_step}
        elif isinstance(record, Metrics):
            named = [(record.step, name, value) for name, value in record.values.items() if name.endswith("loss")]
            found.setdefault(record.step, []).extend(named)
    return [one for kept in found.values() for one in kept]


@pytest.mark.parametrize("stamps", [("", ""), ("2026-05-01 10:00:00 ", "2026-05-01 10:00:05 ")], ids=["none", "stamps"])
@pytest.mark.parametrize("took", [1000, 1003])
def test_validation_behind_its_steps_row_is_read(stamps: tuple[str, str], took: int) -> None:
    """Of a program that prints both with how long training has run: a second line of the step that says more."""
    text = (
        f"{stamps[0]}step:10/20 train_time:1000ms step_avg:100.00ms\n"
        f"{stamps[1]}step:10/20 val_loss:5.0000 train_time:{took}ms step_avg:100.00ms\n"
        "step:11/20 train_time:1100ms step_avg:100.00ms\n"
    )
    rows = [record for record in read(text)[0] if isinstance(record, Metrics)]
    assert [(row.step, row.values) for row in rows] == [
        (10, {"train_time_ms": 1000, "step_avg_ms": 100, "val_loss": 5}),
        (11, {"train_time_ms": 1100, "step_avg_ms": 100}),
    ]


def test_line_of_a_step_that_says_the_same_and_more_is_added() -> None:
    """In any form whose fields follow each other."""
    row = "step:3 - actor/pg_loss:0.3 - actor/lr:1e-06 - timing_s/step:10.0"
    text = f"{row}\n{row} - val-core/x/acc/mean@1:0.5\n{row.replace(':3 ', ':4 ')}\n"
    (first, second) = [record for record in read(text)[0] if isinstance(record, Metrics)]
    assert (first.step, first.values["val-core/x/acc/mean@1"], second.step) == (3, 0.5, 4)


def test_fit_of_one_epoch_in_a_loop_keeps_each() -> None:
    """The same last batch behind another first epoch is no bar that is drawn again."""
    text = "".join(f"Epoch 1/1\n4/4 {'━' * 20} 2s 100ms/step - loss: {loss}.0000\n" for loss in (3, 2, 1))
    assert losses(text) == [(4, "train_loss", 3.0), (4, "train_loss", 2.0), (4, "train_loss", 1.0)]
    assert "the values of both are kept" in read(text)[1]


@pytest.mark.parametrize(("back", "steps"), [(3.0, [1, 2, 3, 4]), (2.0, [1, 2, 3]), (1.0, [1, 2])])
def test_rows_that_are_counted_go_on_behind_their_epochs(back: float, steps: list[int]) -> None:
    """Behind a line that says that a checkpoint was loaded: those that still count stay."""
    rows = [f"{{'loss': {9 - k}.0, 'learning_rate': 5e-05, 'epoch': {k}.0}}\n" for k in (1, 2)]
    again = [f"{{'loss': {k}.5, 'learning_rate': 5e-05, 'epoch': {back + k}}}\n" for k in (0, 1)]
    found = losses("".join([*rows, "  Continuing training from global step 20\n", *again]))
    assert [step for step, *_ in found] == steps
    assert [value for *_, value in found[-2:]] == [0.5, 1.5]
    assert [value for *_, value in found[:-2]] == [8.0, 7.0][: len(found) - 2]


def test_bar_of_an_evaluation_counts_at_its_end() -> None:
    """Keras' `evaluate` draws such bars: what they say on the way are no values of their own; two of them are two."""
    bar = "{0}/{1} ━━━━━━━━━━━━━━━━━━━━ 0s 10ms/step - loss: {2:.4f}"
    text = f"Epoch 1/1\n{bar.format(10, 10, 2.0)}\n"
    for loss in (1.5, 1.25):
        text += "\r".join(["", bar.format(1, 3, 9.0), bar.format(3, 3, loss)]) + "\n"
    records, note = read(text)
    found = [record.values for record in records if isinstance(record, Metrics)]
    assert [values.get("evaluate/loss", values.get("train_loss")) for values in found] == [2.0, 1.5, 1.25]
    assert note == ""


def test_time_trained_so_far_is_the_clock_of_rows_without_stamps(tmp_path: Path) -> None:
    """modded-nanogpt counts it anew behind its warm-up: the rows' times go on from there."""
    path, trained = tmp_path / "a.log", 0
    lines = ["step:0/40 val_loss:10.8000 train_time:0ms step_avg:nanms"]
    for step in range(1, 41):
        trained = 250 if step == 11 else trained + (30_000 if step == 1 else 250)
        lines.append(f"step:{step}/40 train_loss:4.5000 train_time:{trained}ms step_avg:{trained / step:.2f}ms")
    path.write_text("\n".join([*lines, ""]))
    records, _ = read(path.read_text())
    times = [record.time for record in records if isinstance(record, Metrics)]
    assert [later - earlier for earlier, later in itertools.pairwise(times)] == [
        30,
        *[0.25] * 9,
        0,
        *[0.25] * 29,
    ]  # of the first step that is counted anew nothing says how long it took
    assert trackers.compare_runs(f"log:{path}").runs[0]["steps_per_s"] == pytest.approx(4, rel=0.03)


def test_clock_that_is_set_back_is_no_restart() -> None:
    """Later times go on from where the clock was; the note names the line."""
    clocks = ["10:00:10", "10:00:20", "10:00:30", "09:00:40", "09:00:50"]
    records, note = read("".join(iteration(step, clock=clock) for step, clock in enumerate(clocks, 1)))
    times = [record.time for record in records if isinstance(record, Metrics)]
    assert times == [at("2026-03-01 10:00:10") + 10 * step for step in range(5)]
    assert "the clock was set back by 3,590 s at line 4" in note
    assert starts("".join(iteration(step, clock=clock) for step, clock in enumerate(clocks, 1))) == [None]


@pytest.mark.parametrize("packed", [False, True])
def test_run_begins_at_the_logs_first_stamp(packed: bool, tmp_path: Path) -> None:
    """Not when the file was changed last; rows without stamps go on from there."""
    text = "2026-03-01 09:59:00,250 - INFO - building\n" + iters(0, 10)
    path = tmp_path / "a.log"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    os.utime(path, (at("2026-03-02 00:00:00"),) * 2)
    (run,) = LogReader().runs(str(path))
    assert run.created == at("2026-03-01 09:59:00") + 0.25
    (first, *_) = [record.time for record in LogReader().read(run) if isinstance(record, Metrics)]
    assert first == run.created


@pytest.mark.parametrize(
    "stamp", ["04.03.2026 13:00:{}", "03/04/2026 13:00:{}", "2026-03-04 13:00:{}", "Mar  4 13:00:{}",
              "03/04/2026 01:00:{} PM -", "2026-03-04 01:00:{},000 pm -", "03/04/2026 13:00:{} PMC"]
)  # fmt: skip
def test_stamps_are_read_as_they_are_written(stamp: str) -> None:
    """Points have the day first."""
    line = f"{stamp} INFO {{{{'loss': 2.5, 'grad_norm': 1.25, 'learning_rate': 5e-05, 'epoch': 0.{{}}}}}}\n"
    records, _ = read("".join(line.format(*each) for each in ((10, 1), (20, 2))))
    times = [record.time for record in records if isinstance(record, Metrics)]
    assert times == [at("2026-03-04 13:00:10"), at("2026-03-04 13:00:20")]


@pytest.mark.parametrize(("clock", "whole"), [
    ("11:59:50 PM", "23:59:50"), ("12:00:10 AM", "00:00:10"), ("12:00:10 PM", "12:00:10"), ("01:02:03 am", "01:02:03"),
    ("11:59:50,250 PM", "23:59:50,250"), ("11:59:50 P", "11:59:50"), ("11:59:50 PMX", "11:59:50"),
    ("13:00:00 PM", "13:00:00"), ("00:00:10 AM", "00:00:10"),
])  # fmt: skip
@pytest.mark.parametrize("date", ["01/02/2026", "2026-01-02", "02.01.2026", "01/02", "Jan  2"])
def test_stamps_of_twelve_hours_are_before_or_after_noon(date: str, clock: str, whole: str) -> None:
    """As they say."""
    time = find_time(f"{date} {clock} - INFO -".encode(), 2026)
    assert time == find_time(f"2026-01-02 {whole}".encode(), 2026) is not None


COUNTED = "{{'loss': {}, 'grad_norm': 1.0, 'learning_rate': 5e-05, 'epoch': {}}}\n"


def test_rows_of_several_nodes_are_counted_once() -> None:
    """Trainer logs on each, with the same values."""
    text = "".join(f"{node}: {COUNTED.format(2.5, epoch)}" for epoch in (0.1, 0.2, 0.3) for node in (0, 8))
    records, note = read(text)
    assert list(rows(records)) == [1, 2, 3]
    assert note == "the log has no steps: its rows are numbered"


@pytest.mark.parametrize("loaded", ["Loading model from /x/checkpoint-20.\n", ""])
def test_rows_that_are_counted_go_back_with_their_epoch(loaded: str) -> None:
    """With a checkpoint's line they take the earlier ones' place, without one the values of both are kept; both is
    said."""
    first = "".join(COUNTED.format(number, number / 10) for number in (1, 2, 3))
    second = "".join(COUNTED.format(number + 0.5, number / 10) for number in (2, 3, 4))
    records, note = read(first + loaded + second)
    found = [(row.step, row.values["loss"]) for row in records if isinstance(row, Metrics)]
    behind = [(2, 2.5), (3, 3.5), (4, 4.5)]
    assert found == [(1, 1.0), *([] if loaded else [(2, 2.0), (3, 3.0)]), *behind]
    said = "training went back from step 3 to 2" if loaded else "the step falls from 3 to 2"
    assert note.startswith(said)


def test_count_of_three_digits_that_comes_again_is_no_restart() -> None:
    """levanter rounds it: its line of each minute says the same one, and other values."""
    line = (
        "2025-06-07T08:1{0}:10 - 0 - tqdm_loggable.tqdm_logging - tqdm_logging.py:145 - INFO :: Progress on:train "
        "1.24kit/100kit rate:1.5s/it remaining:10:00 elapsed:3{0}:00 postfix:loss={0}.5\n"
    )
    records, note = read("".join(line.format(minute) for minute in (1, 2, 3)))
    found = [(row.step, row.values["train_loss"]) for row in records if isinstance(row, Metrics)]
    assert (found, note) == ([(1240, 1.5), (1240, 2.5), (1240, 3.5)], "")


@pytest.mark.parametrize("loaded", [True, False])
def test_equal_rows_of_a_later_time_are_trained_again(loaded: bool) -> None:
    """A rank's copy comes within seconds."""
    line = "[2026-01-05 00:{:02d}:00,125] [INFO] [logging.py:96:log_dist] [Rank 0] {}\n"
    step = "step={}, skipped=0, lr=[0.1], mom=[(0.9, 0.999)]"
    text = "".join(line.format(number, step.format(10 * number)) for number in (1, 2, 3))
    load = "[Torch] Loading checkpoint from /x/global_step15/mp_rank_00_model_states.pt..."
    text += line.format(4, load) if loaded else ""
    text += "".join(line.format(33 + number, step.format(10 * number)) for number in (2, 3, 4))
    records, note = read(text)
    found = [(row.step, row.time - at("2026-01-05 00:00:00")) for row in records if isinstance(row, Metrics)]
    assert found == [(10, 60.125), (20, 2100.125), (30, 2160.125), (40, 2220.125)]
    assert note.startswith("training went back from step 30 to 20")


@pytest.mark.parametrize("said", ["Exception ignored in: <function _ConnectionBase.__del__ at 0x7f>\n", ""])
def test_exception_that_is_ignored_ends_no_training(said: str) -> None:
    """As Python says itself, when it goes."""
    behind = f"{said}Traceback (most recent call last):\n  File x\nOSError: [Errno 9] Bad file descriptor\n"
    text = COUNTED.format(1, 0.1) + "{'train_runtime': 9.5, 'epoch': 0.1}\n" + behind
    found = [record.status for record in read(text)[0] if isinstance(record, Finish)]
    assert found == ["finished" if said else "failed"]


def test_stamps_without_a_year_are_of_the_year_before_the_file(tmp_path: Path) -> None:
    """A log that went over the new year, of which the file's time knows the later."""
    line = "{} - mmengine - INFO - Iter(train) [{:4d}/100]  lr: 1.0000e-02  loss: 1.2500\n"
    path = tmp_path / "a.log"
    path.write_text(line.format("12/31 23:59:00", 10) + line.format("01/01 00:01:00", 20))
    os.utime(path, (at("2026-01-01 00:02:00"),) * 2)
    (run,) = LogReader().runs(str(path))
    times = [record.time for record in LogReader().read(run) if isinstance(record, Metrics)]
    assert times == [at("2025-12-31 23:59:00"), at("2026-01-01 00:01:00")]


@pytest.mark.parametrize(
    ("behind", "status"),
    [
        ("", ""),
        ("Traceback (most recent call last):\n  File x\nValueError: y\n", "failed"),
        ("torch.OutOfMemoryError: CUDA out of memory.\n", "failed"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T10:00:00 DUE TO TIME LIMIT ***\n", "crashed"),
        ("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-03-01T10:00:00 DUE TO PREEMPTION ***\n", "preempted"),
        ("Signal 9 (SIGKILL) received by PID 7\n", "crashed"),
        ("Traceback (most recent call last):\n  ignored\n" + iters(10), ""),
        ("[after training is done] datetime: 2026-03-01 10:00:00 \n", ""),
    ],
)
def test_status_is_what_stands_behind_the_last_row(behind: str, status: str) -> None:
    """A row behind a failure says that training went on; another program's last words aren't this one's."""
    found = [record.status for record in read(iters(0) + behind)[0] if isinstance(record, Finish)]
    assert found == ([status] if status else [])


READINGS = {
    "another program's step and loss": "2026-01-02 10:00:00 INFO restored step: 5 with best loss: 0.75 so far\n",
    "an epoch, a step and a loss": "[2026-03-01 09:00:00] INFO: epoch: 1, step: 100, loss: 3.5,  lr: 0.01\n",
    "a checkpoint's iteration": LOADED,
    "a dictionary of settings": "{'learning_rate': 0.1, 'epochs': 3}\n",
    "a bar of one's own": "Epoch 3: 100%|###| 391/391 [00:10<00:00, 38.50it/s, loss=0.5]\n",
}


@pytest.mark.parametrize("text", READINGS.values(), ids=READINGS)
def test_line_of_no_known_program_is_refused(text: str) -> None:
    """Step and loss alone are no signature; the message names the nearest programs and the option for formats."""
    with pytest.raises(NotFound, match=r"known are .*TorchTitan.*; --log-format FILE\.toml"):
        read(text)


def test_lines_about_checkpoints_are_no_rows() -> None:
    """What ends in an iteration's number changes nothing of the rows around it."""
    text = "".join(map(iteration, (1, 2, 3)))
    noise = LOADED + "best validation loss so far at iteration 1\n" + text
    records, note = read("".join(noise + "saving checkpoint at iteration 3\n" + iteration(4)))
    assert sorted(rows(records)) == [1, 2, 3, 4]
    assert note == ""


def test_refusal_names_the_nearest_programs() -> None:
    """By a line that looks like one of theirs, else by their words."""
    with pytest.raises(NotFound, match=r"nearest are TorchTitan \(`step: 10  loss"):
        read("step: 6 loss: 0.70\n")
    with pytest.raises(NotFound, match="nearest are NeMo AutoModel"):
        read(READINGS["an epoch, a step and a loss"])


def test_refusal_of_a_table_names_its_scheme() -> None:
    """Keras' CSVLogger is mostly told to write training.log; a line of words and commas is no table's head."""
    with pytest.raises(NotFound, match=r"; a table is read as csv:a\.log$"):
        read("epoch;accuracy;loss\n0;0.5;1.25\n")
    with pytest.raises(NotFound) as caught:
        read("done, in 5 s\n")
    assert "csv:" not in str(caught.value)


def test_keys_says_what_was_not_understood(tmp_path: Path) -> None:
    """The run's note has the numbers and the first line, also from the cache."""
    path = tmp_path / "a.log"
    path.write_text(iters(0, 10) + "iter 20: loss 2.00\n" + iters(30))
    for _ in range(2):
        note = trackers.load(f"log:{path}").run.note
        assert note == "read 3 of 4 rows; 1 not understood, first at line 3: iter 20: loss 2.00"


def verl(step: int, pid: int, score: float = 0.5) -> str:
    return f"(TaskRunner pid={pid}) step:{step} - actor/entropy:{score} - training/global_step:{step}\n"


SET = "(TaskRunner pid=9) Setting global step to {}\n"
VALIDATED = "(TaskRunner pid=9) step:{} - val-core/math/acc/mean@1:0.75 - val-aux/num_turns/min:2\n"


@pytest.mark.parametrize(
    ("loaded", "again", "began"),
    [
        (SET.format(3) + VALIDATED.format(3), (4, 5), 3), (SET.format(2) + VALIDATED.format(2), (3, 4), 2),
        (SET.format(2), (3,), 2), ("", (3, 4), 2), ("", (2, 3), 1),
    ],
)  # fmt: skip
def test_run_of_verl_goes_on_in_another_process(loaded: str, again: tuple[int, ...], began: int) -> None:
    """Its rows take the place of those from there on, said or not; the evaluation with which it begins is its own."""
    text = "".join(verl(step, 4) for step in (1, 2, 3)) + loaded + "".join(verl(step, 9, 9.0) for step in again)
    records, note = read(text)
    found = rows(records)
    assert [step for step in found if found[step].get("actor/entropy") == 9.0] == list(again)
    assert starts(text) == [None, began]
    assert [step for step in found if "val-core/math/acc/mean@1" in found[step]] == ([began] if "val" in loaded else [])
    assert {step for step in found if "actor/entropy" in found[step]} == set(range(1, again[-1] + 1))
    line = 4 + loaded.count("\n")
    assert note == ("" if again[0] > 3 else f"training went back from step 3 to {again[0]} at line {line}")


def test_evaluations_of_asynchronous_training_are_no_restart() -> None:
    """Another process evaluates an earlier step, and says so a while later: verl's training goes on."""
    line = "(FullyAsyncTrainer pid=4) step:{0} - actor/entropy:0.{0} - training/global_step:{0}\n"
    said = "(FullyAsyncRollouter pid=5) step:{} - rollouter/validate_time:12.0 - val-core/math/acc/mean@1:0.75\n"
    text = "".join(map(line.format, range(1, 7))) + said.format(4) + line.format(7)
    text += "(FullyAsyncRollouter pid=5) step:7 - rollouter/active_time:3.5\n" + line.format(8)
    records, _ = read(text)
    assert starts(text) == [None]
    assert [values["actor/entropy"] for values in rows(records).values()] == [step / 10 for step in range(1, 9)]
    assert rows(records)[4]["val-core/math/acc/mean@1"] == 0.75
