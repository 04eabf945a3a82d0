"""Steps and times of programs that count within epochs, and by progress bars."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from test_log_programs import read, rows

from trackers.errors import NotFound
from trackers.records import Finish, Metrics, Record, Start, Summary


def lightning(epoch: int, batch: int, of: int) -> str:
    return f"Epoch {epoch}: {100 * batch // of}%|##| {batch}/{of} [00:{batch:02d}<00:00,  1.00it/s, v_num=0, loss=2]\n"


def keras(epoch: int, batch: int, of: int) -> str:
    head = f"Epoch {epoch + 1}/9\n" if batch == 1 else ""
    return f"{head}{batch}/{of} {'━' * 20} {batch}s 1s/step - loss: 2.5000\n"


def timm(epoch: int, batch: int, of: int) -> str:
    place = f"[{batch:4d}/{of} ({100 * batch // of:3d}%)]"
    return (
        f"Train: {epoch} {place}  Loss: 6.94 (6.94)  Time: 1.000s,  16.00/s  (1.000s,  16.00/s)  LR: 1.000e-05  "
        "Data: 0.910 (0.910)\n"
    )


def mmengine(epoch: int, batch: int, of: int) -> str:
    return f"03/01 10:{epoch:02d}:{batch:02d} - mmengine - INFO - Epoch(train)  [{epoch + 1}][{batch}/{of}]  loss: 2\n"


PRINTED: dict[str, Callable[[int, int, int], str]] = {
    "lightning": lightning, "keras": keras, "timm": timm, "mmengine": mmengine,
}  # fmt: skip


def points(records: list[Record]) -> list[tuple[int | None, float]]:
    """Step and time of each row, from the first one's time on."""
    found = [(record.step, record.time) for record in records if isinstance(record, Metrics)]
    return [(step, round(time - found[0][1], 6)) for step, time in found]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PRINTED)
def test_epochs_of_unequal_length_count_on(name: str, seed: int) -> None:
    """A row's step is its batch behind those that the epochs before had."""
    dice, text, due, before = random.Random(seed), "", [], 0
    for epoch in range(4):
        of = dice.randrange(3, 40)
        batches = sorted({1, of, *dice.sample(range(1, of + 1), 2)})
        text += "".join(PRINTED[name](epoch, batch, of) for batch in batches)
        due += [before + batch for batch in batches]
        before += of
    records, note = read(text)
    assert ([step for step, _ in points(records)], note) == (due, "")


def test_epochs_of_two_programs_are_counted_apart() -> None:
    """Keras' first epoch is 1, and isn't Lightning's second."""
    text = "".join(PRINTED[name](0, 4, of) for name, of in (("lightning", 6), ("keras", 5)))
    assert [step for step, _ in points(read(text.replace("4/5", "Epoch 1/9\n4/5"))[0])] == [4, 4]


@pytest.mark.parametrize("name", ["lightning", "mmengine"])
def test_epoch_that_is_trained_again_counts_from_the_steps_that_it_had(name: str) -> None:
    """Behind a checkpoint, with epochs of another length since."""
    loaded = "Restored all states from the checkpoint at x.ckpt\n"
    loaded = loaded if name == "lightning" else "03/01 10:03:00 - mmengine - INFO - resumed epoch: 1, iter: 10\n"
    line = PRINTED[name]
    text = line(0, 10, 10) + line(1, 5, 12) + line(1, 12, 12) + loaded + line(1, 5, 6) + line(1, 6, 6) + line(2, 6, 6)
    records, _ = read(text)
    assert [step for step, _ in points(records)] == [10, 15, 16, 22]
    assert [record.from_step for record in records if isinstance(record, Start)] == [None, 14]


@pytest.mark.parametrize(("interval", "of"), [(50, 117), (10, 25), (7, 7), (30, 100)])
def test_evaluation_of_an_epoch_is_at_its_end(interval: int, of: int) -> None:
    """Also where the last row before it isn't: MMEngine leaves out what is less than its interval."""
    text, due = "", []
    for epoch in (0, 1, 2):
        logged = range(interval, of + 1, interval)
        text += "".join(mmengine(epoch, batch, of) for batch in logged)
        text += f"03/01 10:{epoch:02d}:59 - mmengine - INFO - Epoch(val)  [{epoch + 1}][4/4]    accuracy/top1: 50.250\n"
        due += [epoch * of + batch for batch in [*logged, of]]
    records, note = read(text)
    assert ([step for step, _ in points(records)], note) == (due, "")
    assert rows(records)[3 * of]["val/accuracy/top1"] == 50.25


HEAD = "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"
CLASSES = "                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): 100% {} 4/4 {}\n"
BAR = "      {}/3      2.37G      1.25      2.5         12        640: {}% {} {}/8 {}"


def bars(new: bool, epoch: int, trained: str, evaluated: str) -> str:
    """An epoch as Ultralytics draws it, its bar three times, and its evaluation."""

    def took(text: str, left: str) -> str:
        return f"3.4it/s {text}{'<' * bool(left)}{left}" if new else f"[{text}<{left or '00:00'},  3.40it/s]"

    sign = "━━━━" if new else "|####|"
    drawn = (("0.1s", "2.3s"), ("1.0s", "1.0s")) if new else (("00:00", "00:02"), ("00:01", "00:01"))
    parts = [BAR.format(epoch, 10 * place, sign, place, took(*each)) for place, each in enumerate(drawn)]
    last = BAR.format(epoch, 100, sign, 8, took(trained, ""))
    row = f"                   all        128        929      0.625       0.55      0.{epoch}      0.446\n"
    return HEAD + "\r".join([*parts, last]) + "\n" + CLASSES.format(sign, took(evaluated, "")) + row


@pytest.mark.parametrize("new", [True, False], ids=["8.3.200", "8"])
def test_epochs_last_as_long_as_their_bars_say(new: bool) -> None:
    """An epoch's row is where its bar is done, its evaluation where that one's is."""
    times = ("2.5s", "0.5s", "1:02", "4.0s", "1:00:01", "2.0s")
    times = times if new else ("00:03", "00:01", "01:02", "00:04", "1:00:01", "00:02")
    text = "".join(bars(new, epoch, *times[2 * epoch - 2 : 2 * epoch]) for epoch in (1, 2, 3))
    took = (0.5, 62, 4, 3601, 2) if new else (1, 62, 4, 3601, 2)
    records, note = read(text)
    assert (points(records), note) == ([(1 + place // 2, sum(took[:place])) for place in range(6)], "")


@pytest.mark.parametrize("last", [2, 3])
@pytest.mark.parametrize("alike", [True, False])
def test_epoch_that_is_trained_again_takes_the_earliers_place(last: int, alike: bool) -> None:
    """Also where its row says the same; its evaluation is its own, and where nothing was above it, it begins anew."""
    text = "".join(bars(True, epoch, "2.5s", "0.5s") for epoch in range(1, last + 1))
    again = bars(True, 3, "4.5s", "0.5s").replace("0.3 ", "0.9 ")
    again = again if alike else again.replace("1.25 ", "0.25 ")
    records, note = read(f"{text}Resuming training last.pt from epoch 3 to 5 total epochs\n{again}")
    found = rows(records)
    assert [values["metrics/mAP50(B)"] for values in found.values()] == [0.1, 0.2, 0.9]
    assert found[3]["train/box_loss"] == (1.25 if alike else 0.25)
    assert [record.from_step for record in records if isinstance(record, Start)] == [None, 2]
    assert note.startswith("training went back from step 3 to 3") if last == 3 else note == ""


@pytest.mark.parametrize("each", [7, 50])
def test_bar_that_shows_not_each_step_says_the_steps_that_it_shows(each: int) -> None:
    """Lightning's ``refresh_rate``: a multiple of it, and an epoch's last step, of epochs whose length is known."""
    shown = [(epoch, batch) for epoch in range(3) for batch in (*range(each, 120, each), 120)]
    records, note = read("".join(lightning(epoch, batch, 120) for epoch, batch in shown))
    assert ([step for step, _ in points(records)], note) == ([120 * epoch + batch for epoch, batch in shown], "")


def test_bars_that_the_terminals_width_cut_say_what_is_whole_of_them() -> None:
    """tqdm leaves out what has no room, and the line's end: whole values are read, and the line is counted."""
    line = "\rEpoch {}: 100%|#| {}/10 [00:02<00:00,  4.93it/s, v_num=0, train_loss=0.{}5, val_loss"
    text = "".join(line.format(epoch, batch, batch) for epoch in range(2) for batch in (5, 10))
    records, note = read(text + "`Trainer.fit` stopped: `max_epochs=2` reached.\n")
    found = {step: values["train_loss"] for step, values in rows(records).items()}
    assert found == {5: 0.55, 10: 0.105, 15: 0.55, 20: 0.105}
    assert note.startswith("read 0 of 4 rows; 4 not understood")
    assert [record.status for record in records if isinstance(record, Finish)] == ["finished"]


def test_steps_behind_an_epoch_of_unknown_length_may_be_too_low() -> None:
    """A bar that doesn't know its end, and isn't drawn at each step, doesn't say how many there were: it is noted."""
    line = "Epoch {}: |##| {}/? [00:{:02d}<?,  1.00it/s, v_num=0, loss=2]\n"
    shown = [(epoch, batch) for epoch in range(2) for batch in (5, 10, 15)]
    records, note = read("".join(line.format(epoch, batch, batch) for epoch, batch in shown))
    assert [step for step, _ in points(records)] == [5, 10, 15, 20, 25, 30]
    assert note.startswith("the log doesn't say how long epochs were")
    shown = [(epoch, batch) for epoch in range(2) for batch in (1, 2, 3)]
    records, note = read("".join(line.format(epoch, batch, batch) for epoch, batch in shown))
    assert ([step for step, _ in points(records)], note) == ([1, 2, 3, 4, 5, 6], "")


@pytest.mark.parametrize("name", ["lightning", "timm", "mmengine"])
def test_epochs_that_a_log_lacks_had_as_many_steps_as_the_next(name: str) -> None:
    """They come behind those that it has, however long these were: no step falls."""
    lengths = ((0, 40), (2, 8), (3, 8))
    text = "".join(PRINTED[name](epoch, batch, of) for epoch, of in lengths for batch in (1, of))
    records, note = read(text)
    assert ([step for step, _ in points(records)], note) == ([1, 40, 49, 56, 57, 64], "")


def test_evaluation_is_at_the_step_that_a_checkpoint_names() -> None:
    """MMEngine evaluates between two rows, too; the checkpoint that it saves before that has the step."""
    line = "03/01 10:00:{:02d} - mmengine - INFO - {}\n"
    text = line.format(1, "Iter(train) [ 50/1000]  loss: 2") + line.format(2, "Saving checkpoint at 80 iterations")
    text += line.format(3, "Iter(val) [20/20]    mIoU: 40.5  time: 0.05")
    text += line.format(4, "Iter(train) [100/1000]  loss: 2")
    text += line.format(5, "Iter(val) [20/20]    mIoU: 41.5  time: 0.05")
    assert [step for step, _ in points(read(text)[0])] == [50, 80, 100, 100]


def test_bar_of_all_training_is_the_clock_of_each_row() -> None:
    """What it says is since the start, also in the first row: levanter's."""
    line = "Progress on:train {}.0it/10.0kit rate:1.5it/s remaining:10:00 elapsed:{} postfix:loss=6.25\n"
    spent = {20: "20:00", 40: "20:14", 60: "20:27", 80: "1:00:00"}
    records, note = read("".join(line.format(*each) for each in spent.items()))
    assert (points(records), note) == ([(20, 0), (40, 14), (60, 27), (80, 2400)], "")
    again = "Resuming training from step 60\n" + line.format(80, "00:30") + line.format(100, "00:40")
    records, _ = read("".join(line.format(*each) for each in spent.items()) + again)
    assert points(records) == [(20, 0), (40, 14), (60, 27), (80, 2430), (100, 2440)]


FAILED = "Traceback (most recent call last):\ntorch.cuda.OutOfMemoryError: CUDA out of memory.\n"


def test_second_run_of_a_log_keeps_the_firsts_rows() -> None:
    """Where no line says that one is resumed: the head of its columns says that a bar isn't drawn once more."""
    again = bars(True, 2, "4.5s", "0.5s").replace("1.25 ", "0.25 ").replace("0.2 ", "0.9 ")
    records, note = read(bars(True, 1, "2.5s", "0.5s") + bars(True, 2, "2.5s", "0.5s") + FAILED + again)
    found = [record.values.get("train/box_loss", record.values.get("metrics/mAP50(B)"))
             for record in records if isinstance(record, Metrics)]  # fmt: skip
    assert found == [1.25, 0.1, 1.25, 0.2, 0.25, 0.9]
    assert note.startswith("the step falls from 2 to 2")


@pytest.mark.parametrize("between", ["", "Resuming training last.pt from epoch 2 to 3 total epochs\n"])
def test_failure_that_training_went_on_behind_is_no_end(between: str) -> None:
    """Also where a bar says so."""
    text = bars(True, 1, "2.5s", "0.5s") + FAILED + between + bars(True, 2, "2.5s", "0.5s")
    assert [record.status for record in read(text)[0] if isinstance(record, Finish)] == []
    assert [record.status for record in read(text + FAILED)[0] if isinstance(record, Finish)] == ["failed"]


def test_epoch_of_keras_2_that_was_cut_off_has_its_last_batch() -> None:
    """Its bar says how much time is left, until it is done."""
    text = f"Epoch 1/2\n32/32 [{'=' * 30}] - 2s 50ms/step - loss: 0.9000 - val_loss: 0.8000\nEpoch 2/2\n"
    records, note = read(text + "20/32 [=================>............] - ETA: 3s - loss: 0.6100\n" + FAILED)
    assert ({step: row["train_loss"] for step, row in rows(records).items()}, note) == ({32: 0.9, 52: 0.61}, "")
    done = f"32/32 [{'=' * 30}] - 2s 50ms/step - loss: 0.6000 - val_loss: 0.7000\n"
    records, _ = read(text + "20/32 [=================>............] - ETA: 3s - loss: 0.6100\n" + done)
    assert points(records)[-1] == (64, 1.6)  # 32 steps of 50 ms


BARS = {
    2: ("{0}/4 [....] - ETA: 0s - loss: {1}\n", "4/4 [====] - 2s 500ms/step - loss: {0}{1}\n"),
    3: ("{0}/4 ━━━━ 0s 10ms/step - loss: {1}\n", "4/4 ━━━━ 2s 500ms/step - loss: {0}{1}\n"),
}
"""How Keras 2 and 3 draw a bar on its way, and at its end."""


@pytest.mark.parametrize("between", ["\n", "\b\b\b\b\r"], ids=["lines", "overwritten"])
@pytest.mark.parametrize("found", ["", " - val_loss: 0.{}500"], ids=["train", "validation"])
@pytest.mark.parametrize("release", BARS)
def test_epoch_of_keras_ends_with_the_last_bar_of_its_length(release: int, found: str, between: str) -> None:
    """It is drawn once more when its last batch was, with what validation found, also on a line of its own; what
    `evaluate` draws behind it isn't the epoch's, with its own bars or of another length."""
    under_way, done = BARS[release]
    text, due = "", {}
    for epoch in (1, 2):
        drawn = [under_way.format(batch, f"0.{epoch}{batch}00") for batch in (1, 2, 3, 4)]
        drawn.append(done.format(f"0.{epoch}900", found.format(epoch)))
        text += f"Epoch {epoch}/2\n" + "".join(drawn)[:-1].replace("\n", between) + "\n"
        due |= {4 * epoch + batch - 4: float(f"0.{epoch}{9 if batch == 4 else batch}") for batch in (1, 2, 3, 4)}
    bars = under_way.format(1, "0.7000") + under_way.format(4, "0.7500") + done.format("0.7700", "")
    records, note = read(text + bars[:-1].replace("\n", between) + "\n")
    assert ({step: row["train_loss"] for step, row in rows(records).items()}, note) == (due, "")
    values = [record.values for record in records if isinstance(record, Metrics)]
    assert [row["val_loss"] for row in values if "val_loss" in row] == ([0.15, 0.25] if found else [])
    evaluated = [row["evaluate/loss"] for row in values if "evaluate/loss" in row]
    assert evaluated == [0.77]
    other = rows(read(text + done.replace("4/4", "9/9").format("0.7700", ""))[0])
    assert other[8].get("evaluate/loss") == 0.77


@pytest.mark.parametrize("cut", [0, 3, 8])
@pytest.mark.parametrize("release", BARS)
def test_row_of_keras_whose_epochs_head_was_lost_is_counted(release: int, cut: int) -> None:
    """A line with validation is no evaluation's, and no second one of an epoch; without any head there is no step."""
    under_way, done = BARS[release]
    found = " - val_loss: 0.{0}500"
    texts = [(f"Epoch {at}/4\n", under_way.format(1, f"0.{at}100") + done.format(f"0.{at}900", found.format(at)))
             for at in (1, 2, 3, 4)]  # fmt: skip
    whole = rows(read("".join(head + text for head, text in texts))[0])
    records, note = read(
        "".join((head[8 - cut :] if at == 1 else head) + text for at, (head, text) in enumerate(texts))
    )
    assert rows(records) == {step: row for step, row in whole.items() if not 4 < step <= 8 or cut == 8}
    assert ("1 not understood" in note) == (cut < 8)
    with pytest.raises(NotFound, match="nearest are Keras"):
        read("".join(text for _, text in texts))


@pytest.mark.parametrize("behind", [" NCCL INFO 0 -> 1", "step 500: x, loss: 9.99", "12it [00:01,  9.11it/s]"])
def test_row_of_ultralytics_with_a_text_behind_it_is_counted(behind: str) -> None:
    """Its validation, which has no other end than its line's."""
    text = "".join(bars(True, epoch, "2.5s", "0.5s") for epoch in (1, 2, 3))
    records, note = read(text.replace("0.2      0.446", "0.2      0.446" + behind))
    assert "1 not understood" in note
    assert {step for step, row in rows(records).items() if "metrics/mAP50(B)" in row} == {1, 3}


@pytest.mark.parametrize("torn", ["      2/\n3      2.37G", "x      ", ""])
def test_validation_of_an_epoch_whose_row_was_lost_is_counted(torn: str) -> None:
    """It isn't the epoch's before."""
    lines = [bars(True, epoch, "2.5s", "0.5s").replace("\r", "\n").splitlines() for epoch in (1, 2, 3)]
    lines[1] = [line if "640:" not in line else torn for line in lines[1]]
    records, note = read("\n".join("\n".join(part) for part in lines) + "\n")
    found = [row.values["metrics/mAP50(B)"] for row in records
             if isinstance(row, Metrics) and "metrics/mAP50(B)" in row.values]  # fmt: skip
    assert (found, "not understood" in note) == ([0.1, 0.3], True)


TWO = "epochs begin twice, as where two processes write: rows are of either, and may be of the epoch before"


@pytest.mark.parametrize("label", ["", "{}: ", "[rank{}]: "], ids=["none", "srun", "rank"])
@pytest.mark.parametrize("drawn", [(), (1, 4), (4,)], ids=["last", "bars", "twice"])
@pytest.mark.parametrize("found", ["", " - val_loss: 0.{}500"], ids=["train", "validation"])
@pytest.mark.parametrize("release", BARS)
def test_bars_of_two_processes_are_no_evaluations(release: int, found: str, drawn: tuple[int, ...], label: str) -> None:
    """Of an epoch that begins twice at once a bar of its length is training's; one of another length is evaluate's."""
    under_way, done = BARS[release]
    lines: list[str] = []
    for epoch in (1, 2):
        bars = [under_way.format(batch, f"0.{{}}{epoch}{batch}0") for batch in drawn]
        for line in (f"Epoch {epoch}/2\n", *bars, done.format(f"0.{{}}{epoch}90", found.format(epoch))):
            lines += [label.format(rank) + line.format(8 - rank) for rank in (0, 1)]
    records, note = read("".join(lines))
    assert TWO in note
    assert {step for step, _ in points(records)} == {4 * epoch + batch for epoch in (0, 1) for batch in (*drawn, 4)}
    assert not any(name.startswith("evaluate/") for row in rows(records).values() for name in row)
    records, _ = read("".join(lines) + done.format("0.7700", "").replace("4/4", "9/9"))
    assert rows(records)[8]["evaluate/loss"] == 0.77


TEST = "{0}/4 ━━━━ {1}s {2}ms/step - accuracy: 0.5000 - loss: 0.{3}00\n"


@pytest.mark.parametrize("back", ["\n", "\r", "\b" * 40, "\b" * 40 + "\r"], ids=["lines", "return", "back", "both"])
@pytest.mark.parametrize("head", ["", "Epoch 1/1\n4/4 ━━━━ 2s 500ms/step - loss: 0.9000\n"], ids=["alone", "trained"])
@pytest.mark.parametrize("first", [True, False], ids=["drawn before", "done"])
def test_bar_of_an_evaluation_that_is_drawn_twice_is_one_row(first: bool, head: str, back: str) -> None:
    """Its last state counts, also where only its time is another; a second evaluation has bars of its own."""

    def drawn(of: int) -> str:
        bars = [TEST.format(1, 9, 10, 50)] * first + [TEST.format(4, 1, 10, 60 if first else of)]
        return "".join([*bars, TEST.format(4, 1, 20, of)])[:-1].replace("\n", back) + "\n"

    records, note = read(head + drawn(71) + drawn(72))
    found = [(values["evaluate/time"], values["evaluate/loss"]) for record in records
             if isinstance(record, Metrics) and "evaluate/loss" in (values := record.values)]  # fmt: skip
    assert (found, note) == ([(0.02, 0.71), (0.02, 0.72)], "")


BEST = (
    "Optimizer stripped from runs/detect/train/weights/best.pt, 6.5MB\n\n"
    "Validating runs/detect/train/weights/best.pt...\nUltralytics 8.3.200 Python-3.11 torch-2.8 CUDA:0\n"
    "Model summary (fused): 72 layers, 3,006 parameters, 0 gradients\n"
    + CLASSES.format("━━━━", "5.0it/s 0.5s")
    + "                   all        128        929       0.75        0.7       0.65        0.6\n"
    "         traffic light         61        254        0.8       0.75        0.7       0.65\n"
    "                person         40        100        0.5        0.4        0.3        0.2\n"
    "Speed: 0.1ms preprocess, 0.5ms inference, 0.0ms loss, 0.6ms postprocess per image\n"
)


@pytest.mark.parametrize("ended", ["", "\n2 epochs completed in 0.002 hours.\n"], ids=["no end", "end"])
def test_evaluation_of_the_best_checkpoint_is_a_result(ended: str) -> None:
    """It isn't the last epoch's, whose own stays; what each class has is read, too."""
    text = bars(True, 1, "2.5s", "0.5s") + bars(True, 2, "2.5s", "0.5s") + ended + BEST
    records, note = read(text)
    assert (rows(records)[2]["metrics/mAP50(B)"], note) == (0.2, "")
    (results,) = [record.values for record in records if isinstance(record, Summary)]
    of_all = {"best/Images": 128, "best/Instances": 929, "best/metrics/precision(B)": 0.75,
              "best/metrics/recall(B)": 0.7, "best/metrics/mAP50(B)": 0.65,
              "best/metrics/mAP50-95(B)": 0.6}  # fmt: skip
    assert {name: value for name, value in results.items() if name in of_all} == of_all
    assert results["best/metrics/mAP50(B)/traffic light"] == 0.7
    assert results["best/Images/person"] == 40
    assert len(results) == 3 * len(of_all)
    shorter = text.replace("0.3        0.2\n", "0.3\n")
    assert "1 not understood" in read(shorter)[1]
    again, _ = read(text + bars(True, 3, "2.5s", "0.5s"))
    assert rows(again)[3]["metrics/mAP50(B)"] == 0.3
