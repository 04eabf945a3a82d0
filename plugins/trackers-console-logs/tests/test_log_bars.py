"""Steps of rows that say their epoch alone, by the progress bars beside them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence

import pytest
from test_log_programs import read, rows
from trackers_console_logs.bars import Paired, bar_steps
from trackers_console_logs.reader import LogStream

from trackers.records import Metrics


def bar(step: int, total: int) -> str:
    return f" {100 * step // total}%|#  | {step}/{total} [00:10<00:30,  1.00it/s]"


def row(epoch: float, number: int = 0) -> str:
    return f"{{'loss': {0.5 + number}, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': {epoch}}}"


def steps(lines: Sequence[str]) -> list[int]:
    """Those of a log's rows."""
    return list(rows(read("\n".join(lines) + "\n")[0]))


@pytest.mark.parametrize("decimals", [2, 17])
@pytest.mark.parametrize("epochs", [1, 3])
def test_bar_that_is_drawn_behind_its_row_is_the_rows(decimals: int, epochs: int) -> None:
    """Also where the bar before the row is late, as of quick steps, and epochs are rounded."""
    lines = [bar(0, 900)]
    for step in range(1, 40):
        late = [bar(step - 1, 900)] if step % 3 == 0 else [bar(step, 900)]
        lines += [*late, row(round(step * epochs / 900, decimals)), bar(step, 900)]
    assert steps(lines) == list(range(1, 40))


@pytest.mark.parametrize("cut", [20, 50, 70])
@pytest.mark.parametrize("epochs", [1, 2, 3, 4])
def test_second_row_that_was_cut_leaves_the_first_its_step(epochs: int, cut: int) -> None:
    """The bar behind the first row is the second's, however many epochs there are."""
    log = [bar(1, 900), row(epochs / 900), bar(2, 900), row(2 * epochs / 900)[:cut]]
    assert steps(log) == [1]


def test_epochs_that_end_in_mid_accumulation_leave_the_bar_its_word() -> None:
    """101 batches are 25 steps of 4, and one batch that is left over: the epoch isn't in proportion to the step."""
    lines = []
    for step in range(1, 400):
        whole, part = divmod(step - 1, 25)
        lines += [bar(step, 2500), row(whole + (part + 1) * 4 / 101), bar(step, 2500)]
    assert steps(lines) == list(range(1, 400))


def test_bar_of_something_else_tells_no_step() -> None:
    """One that is done before training, or stands still in it: the rows are numbered, and that is said."""
    lines = [bar(5000, 5000), *(row(step / 90) for step in range(1, 6))]
    records, note = read("\n".join(lines) + "\n")
    assert list(rows(records)) == [1, 2, 3, 4, 5]
    assert note == "the log has no steps: its rows are numbered"


def test_log_of_evaluations_alone_says_that_it_has_no_steps() -> None:
    """Trainer's with `logging_strategy="no"`: nothing tells the steps, and they aren't said to be 0."""
    line = "{{'eval_loss': {0}.5, 'eval_runtime': 2.0, 'eval_samples_per_second': 10.0, 'epoch': {0}.0}}\n"
    records, note = read(line.format(2) + line.format(1))
    assert [record.values["eval_loss"] for record in records if isinstance(record, Metrics)] == [2.5, 1.5]
    assert note == "the log has no steps: its rows are numbered"
    lines = [bar(7, 5000), *(row(step / 90) for step in range(1, 6))]
    assert steps(lines) == [1, 2, 3, 4, 5]


def test_late_bar_is_overruled_by_epochs_that_are_exact() -> None:
    """Rows between which no bar was drawn have their own steps."""
    lines = []
    for step in range(1, 100):
        lines += [bar(step, 500)] if step % 10 else []
        lines += [row(step / 50)]
    assert steps(lines) == list(range(1, 100))


def test_row_that_no_bar_tells_is_counted_where_bars_tell_the_others() -> None:
    """Its epoch is rounded, and the bar behind it was cut off."""
    lines = []
    for step in range(1, 40):
        lines += [row(round(step / 900, 2), step), bar(step, 900)]
    records, note = read("\n".join([*lines, row(0.04, 99)]) + "\n")
    assert list(rows(records)) == list(range(1, 40))
    assert re.match(r"read 39 of 40 rows; 1 not understood, first at line 79: \{'loss': 99\.5", note)


def test_significant_digits_of_epochs_are_enough() -> None:
    """Transformers 5 writes four of them."""
    said = [Paired(float(f"{step * 3 / 7000:.4g}"), {7000: step}, None) for step in range(1, 7000, 10)]
    found = bar_steps(said)
    assert (found.behind, found.length) == (False, 7000)
    assert found.per_epoch == pytest.approx(7000 / 3, rel=1e-4)


@pytest.mark.parametrize("late", [[1], [3], [2, 0, 5, 1], [4, 4, 3]])
@pytest.mark.parametrize(
    ("of", "epochs", "each"), [(100, 10, 10), (100, 10, 50), (300, 30, 50), (1875, 3, 500), (100, 1, 50), (30, 3, 10)]
)
def test_bar_that_tqdm_draws_seldom_is_late_before_its_row_and_true_behind(
    of: int, epochs: int, each: int, late: Sequence[int]
) -> None:
    """As Trainer's is, of quick steps: it draws the bar anew when it has written a row. Also where the end was cut."""
    for write in (lambda epoch: epoch, lambda epoch: round(epoch, 2), lambda epoch: float(f"{epoch:.4g}")):
        lines = [bar(0, of)]
        due = list(range(each, of + 1, each))
        for number, step in enumerate(due):
            before = step - late[number % len(late)]
            lines += [bar(before - 1, of), bar(before, of), row(write(step * epochs / of)), bar(step, of)]
        assert steps(lines) == due
        assert steps([bar(0, of), *(line for step in due for line in (bar(step, of), row(write(step * epochs / of)),
                                                                      bar(min(step + 1, of), of)))]) == due  # fmt: skip


def test_bar_that_is_late_and_has_none_behind_is_noted() -> None:
    """Nothing says which step is the row's."""
    late = [
        bar(0, 100),
        *(line for step in range(10, 100, 10) for line in (bar(step - step // 10 % 4, 100), row(step / 30))),
    ]
    assert read("\n".join(late) + "\n")[1].startswith("steps are a progress bar's, and the epochs don't agree with it")
    true = [line for step in range(10, 100, 10) for line in (bar(step, 100), row(step / 30))]
    assert read("\n".join(true) + "\n")[1] == ""


def trained(first: int, of: int, each: int, done: bool = True) -> str:
    """A training with a row at each step, of which each takes so many seconds by its bar."""
    rows = [f" 0%|  | 0/{of} [00:00<?, ?it/s]\n"]
    for step in range(first, of + 1):
        rows.append(f" 50%|# | {step}/{of} [00:{(step - first + 1) * each:02d}<00:05,  1.33it/s]\n")
        rows.append(f"{{'loss': {step}.5, 'grad_norm': 1.5, 'num_tokens': {step}.0, 'epoch': {step / of}}}\n")
    rows.append(rows[-2] + f"{{'train_runtime': 9.5, 'train_loss': 2.5, 'epoch': 1.0}}\n{rows[-2]}" if done else "")
    return "".join(rows)


@pytest.mark.parametrize("each", [1, 2, 5])
@pytest.mark.parametrize("of", [2, 4, 6, 9])
def test_second_training_of_a_log_has_steps_and_times_of_its_own(of: int, each: int) -> None:
    """Behind one that was done, whatever its length: the values of both are kept, and the clock goes on."""
    records, note = read(trained(1, 4, 2) + trained(1, of, each))
    found = [(row.step, row.time - 1e9) for row in records if isinstance(row, Metrics) and "loss" in row.values]
    assert found == [*((k, 2.0 * k) for k in range(1, 5)), *((k, 8.0 + each * k) for k in range(1, of + 1))]
    assert note.startswith("the step falls from 4 to 1")


@pytest.mark.parametrize("length", [3, 6, 20])
def test_bar_of_an_evaluation_says_no_steps(length: int) -> None:
    """Also where it is as long as training's."""
    lines = []
    for step in range(1, 7):
        lines += [bar(step, 6), row(step / 6, step)]
        if step % 2:
            lines += [*(bar(batch, length) for batch in range(1, length + 1)),
                      f"{{'eval_loss': {step}.5, 'eval_runtime': 3.2, 'epoch': {step / 6}}}"]  # fmt: skip
    found = rows(read("\n".join(lines) + "\n")[0])
    assert {step: (values["loss"], values.get("eval_loss")) for step, values in found.items()} == {
        step: (step + 0.5, step + 0.5 if step % 2 else None) for step in range(1, 7)
    }


@pytest.mark.parametrize("each", [1, 2, 5])
@pytest.mark.parametrize("loaded", [1, 2, 3, 4])
def test_clock_goes_on_behind_a_checkpoint(loaded: int, each: int) -> None:
    """By what the bar says that began anew."""
    text = trained(1, 4, 2, done=False) + f"  Continuing training from global step {loaded}\n"
    records, _ = read(text + trained(loaded + 1, 8, each))
    found = [(row.step, row.time - 1e9) for row in records if isinstance(row, Metrics) and "loss" in row.values]
    behind = [(k, 8.0 + each * (k - loaded)) for k in range(loaded + 1, 9)]
    assert [point for point in found if (point[0] or 0) > loaded] == behind
    assert found[:loaded] == [(k, 2.0 * k) for k in range(1, loaded + 1)]


EVALUATED = "{{'eval_loss': {0}, 'eval_runtime': 1.5, 'eval_samples_per_second': 10.0, 'epoch': {0}}}\n"
OWN_BAR = " 50%|#    | 5/10 [00:01<00:01,  5.00it/s]\r100%|#####| 10/10 [00:02<00:00,  5.00it/s]\n"
"""Of an evaluation: it says nothing of training's steps."""


@pytest.mark.parametrize("before", ["", OWN_BAR, "  0%|     | 0/30 [00:00<?, ?it/s]\n"], ids=["none", "own", "first"])
def test_evaluations_without_rows_of_training_are_numbered_by_their_epochs(before: str) -> None:
    """Several sets of one epoch share a number; where training's bar is drawn, it says the step."""
    text = "".join(before + EVALUATED.format(epoch) for epoch in (1.0, 2.0, 2.5))
    records, note = read(text + EVALUATED.format(2.5).replace("eval_loss", "eval_de_loss"))
    found = {step: values["eval_loss"] for step, values in rows(records).items()}
    assert (found, note) == ({1: 1.0, 2: 2.0, 3: 2.5}, "the log has no steps: its rows are numbered")
    assert rows(records)[3]["eval_de_loss"] == 2.5
    lines = [bar(0, 30)] + [
        bar(10 * epoch, 30) + "\n" + OWN_BAR + EVALUATED.format(float(epoch)) for epoch in (1, 2, 3)
    ]
    assert steps(lines) == [10, 20, 30]


def test_evaluations_of_several_epochs_between_counted_rows_have_numbers_of_their_own() -> None:
    """Rows behind them are numbered on; the first, of epoch 0, is before all others."""
    text = EVALUATED.format(0) + row(0.5) + "\n" + EVALUATED.format(1.0) + EVALUATED.format(1.5)
    records, _ = read(text + row(2.0) + "\n" + EVALUATED.format(2.0))
    found = [(record.step, record.values["epoch"]) for record in records if isinstance(record, Metrics)]
    assert found == [(0, 0), (1, 0.5), (1, 1.0), (2, 1.5), (3, 2.0), (3, 2.0)]


FOREIGN = "  3%|▎ | 3/100 [00:01<00:30, 3.2it/s]"
"""Of a loop that isn't Trainer's."""
UNSURE = "steps are a progress bar's, and too few rows tell whether it is training's"


@pytest.mark.parametrize("lines", [
    [FOREIGN, row(0.1)],
    [row(0.1), FOREIGN, row(0.2), row(0.3)],
    [row(0.1), FOREIGN, row(0.2)],
    [row(0.1), bar(3, 100), row(0.2), bar(7, 100), row(0.3)],
    [FOREIGN, row(0.1), "{'train_runtime': 9.5, 'train_loss': 2.5, 'epoch': 1.0}"],
    [FOREIGN, EVALUATED.format(1.0), row(0.3)],
    [bar(3, 1000), row(0.01), bar(5, 1000), row(0.02), bar(9, 1000), row(0.03)],
])  # fmt: skip
def test_bar_that_too_few_rows_confirm_is_noted(lines: Sequence[str]) -> None:
    """It may be of something else."""
    assert UNSURE in read("\n".join(lines) + "\n")[1]


@pytest.mark.parametrize("lines", [
    [bar(10, 100), row(0.1), bar(20, 100), row(0.2)],
    [bar(10, 90), row(0.1), bar(10, 90), bar(20, 90), row(0.2)],
    [bar(10, 90), row(0.1), bar(20, 90), row(0.2), bar(30, 90), row(0.3)],
    [bar(10, 100), FOREIGN, row(0.1), bar(10, 100), bar(20, 100), row(0.2), bar(20, 100)],
], ids=["ends", "redrawn", "three", "beside another"])  # fmt: skip
def test_bar_that_enough_rows_confirm_is_trainings(lines: Sequence[str]) -> None:
    """By where it ends, by being drawn once more behind its row, or by three steps that agree with the epochs."""
    records, note = read("\n".join(lines) + "\n")
    assert (list(rows(records)), note) == ([10, 20, 30][: len(rows(records))], "")


@pytest.mark.parametrize("cut", range(20, 42, 3))
def test_row_behind_a_bar_that_a_width_cut_is_read(cut: int) -> None:
    """As where tqdm's line has no room for the bar's end, and the row has none before it."""
    lines = []
    for step in range(10, 80, 10):
        before = bar(step - 10, 900)
        lines.append((before[:cut] if step == 40 else before + "\n") + row(round(step / 90, 3)))
    assert steps([*lines, bar(70, 900)]) == list(range(10, 80, 10))


def test_bar_that_is_behind_a_single_row_is_no_step_of_it() -> None:
    """Between the first of many rows and its own bar: the others' epochs tell the first one's step."""
    lines = [line for step in range(10, 150, 10)
             for line in (f"{{'loss': 0.5, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': {step / 900:.4g}}}",
                          *([FOREIGN] if step == 10 else []), bar(step, 9000))]  # fmt: skip
    assert steps(lines) == list(range(10, 150, 10))


@pytest.mark.parametrize(("before", "beside", "sure"), [(0, "", True), (3, "", False), (0, bar(3, 900), False)])
def test_bar_of_a_log_that_is_read_but_once_is_confirmed_at_its_end(before: int, beside: str, sure: bool) -> None:
    """As standard input is: where another bar is beside it, or it is late, the note says so."""
    lines = [line for step in range(10, 80, 10)
             for line in (beside, bar(step - before, 100), row(step / 100), bar(step, 100))]  # fmt: skip
    stream = LogStream("standard input", 1e9, 2026)
    found = list(rows(list(stream.read(io.BytesIO("\n".join([*lines, ""]).encode())))))
    assert (stream.note() == "") == sure == (UNSURE not in stream.note())
    assert not sure or found == list(range(10, 80, 10))
