"""Each line that looks like a row is read whole or counted, whatever stands between and however lines are damaged."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_generated import training
from log_samples import SAMPLES
from test_log_programs import read, rows
from trackers_console_logs.lines import COLOR
from trackers_console_logs.reader import LogReader

from tests import LOGS
from trackers.errors import NotFound
from trackers.records import Text

Dice = random.Random


def _f(dice: Dice, decimals: int = 4, most: float = 10.0) -> str:
    return f"{dice.uniform(0.1, most):.{decimals}f}"


def _clock(step: int) -> str:
    return f"10:{step % 3600 // 60:02d}:{step % 60:02d}"


ROWS: dict[str, Callable[[int, Dice], str]] = {
    "megatron": lambda step, dice: (
        f" [2026-03-01 {_clock(step)}] iteration {step:8d}/     900 | consumed samples: {step * 16:12d} |"
        f" elapsed time per iteration (ms): {_f(dice, 1, 900)} | learning rate: {dice.random():.6E} | lm loss:"
        f" {dice.random():.6E} | grad norm: {_f(dice, 3)} | number of nan iterations:   0 |"
    ),
    "primus": lambda step, dice: (
        f"[20260511 {_clock(step)}][rank-7/8][INFO ] [--training_log.py:120] :  iteration {step:8d}/     900 |"
        f" elapsed time per iteration (ms): {_f(dice, 1, 900)}/{_f(dice, 1, 900)} | lm loss:"
        f" {dice.random():.6E} | hip mem"
        f" usage/free/total/usage_ratio: {_f(dice, 2)}GB/{_f(dice, 2)}GB/288.00GB/{_f(dice, 2)}%  |"
        f" rank-{dice.randrange(8)} rocm"
        f" max mem usage/usage_ratio: {_f(dice, 2)}GB/{_f(dice, 2)}%"
    ),
    "neox": lambda step, dice: (
        f" samples/sec: {_f(dice, 3)} | iteration {step:8d}/  900 | elapsed time per iteration (ms):"
        f" {_f(dice, 1)} | approx flops"
        f" per GPU: {_f(dice, 1)}TFLOPS | lm_loss: {dice.random():.6E} | number of nan iterations:   0 |"
    ),
    "titan": lambda step, dice: (
        f"[rank0]:[titan] 2026-01-05 {_clock(step)},000 - root - INFO - step: {step:2}  loss: {_f(dice):>7}"
        f"  grad_norm: {_f(dice):>7}  memory: {_f(dice, 2)}GiB({_f(dice, 2)}%)  tps:"
        f" {dice.randrange(1000, 9000):,}  tflops:"
        f" {_f(dice, 2)}  mfu: {_f(dice, 2)}%"
    ),
    "nemo": lambda step, dice: (
        f"Training epoch {step // 10}, iteration {step % 10}/9 | lr: {dice.random():.4} | global_batch_size: 32"
        f" | global_step:"
        f" {step} | reduced_train_loss: {dice.random():.4} | consumed_samples: {32 * step}"
    ),
    "automodel": lambda step, dice: (
        f"step {step} | epoch 0 | loss {_f(dice)} | grad_norm {_f(dice)} | lr {dice.random():.2e} | mem"
        f" {_f(dice, 2)} GiB | tps"
        f" {_f(dice, 2)}({_f(dice, 2)}/gpu) | num_label_tokens {dice.randrange(999)}"
    ),
    "maxtext": lambda step, dice: (
        f"completed step: {step}, seconds: {_f(dice, 3)}, TFLOP/s/device: {_f(dice, 3)}, Tokens/s/device:"
        f" {_f(dice, 3)},"
        f" total_weights: 512, loss: {_f(dice, 3)}"
    ),
    "nanogpt": lambda step, dice: f"iter {step}: loss {_f(dice)}, time {_f(dice, 2)}ms, mfu {_f(dice, 2)}%",
    "nanochat": lambda step, dice: (
        f"step {step:05d}/00900 ({_f(dice, 2)}%) | loss: {_f(dice, 6)} | lrm: {_f(dice, 2)} | dt: {_f(dice, 2)}ms |"
        f" tok/sec: {dice.randrange(10**6):,} | mfu: {_f(dice, 2)} | total time: {_f(dice, 2)}m"
    ),
    "modded": lambda step, dice: (
        f"step:{step}/900 val_loss:{_f(dice)} train_time:{dice.randrange(9**9)}ms step_avg:{_f(dice, 2)}ms"
    ),
    "litgpt": lambda step, dice: (
        f"Epoch 1 | iter {step} step {step // 2} | loss train: {_f(dice, 3)}, val: n/a | iter time: {_f(dice, 2)} ms"
    ),
    "verl": lambda step, dice: (
        f"(TaskRunner pid=1) step:{step} - actor/pg_loss:{dice.random()} - critic/score:np.float64({dice.random()}) -"
        f" training/epoch:{step // 10} - perf/throughput:{dice.random()}"
    ),
    "prime": lambda step, dice: (
        f"10:00:00 SUCCESS Step {step} |  {_f(dice, 1)}s | Loss {_f(dice)} | Grad. Norm {_f(dice)} | Throughput"
        f" {dice.randrange(9999)} tokens/s | MFU {_f(dice, 1)}% | Peak Mem. {_f(dice, 1)} GiB"
    ),
    "mmengine": lambda step, dice: (
        f"02/26 {_clock(step)} - mmengine - INFO - Iter(train) [{step:4d}/900]  lr: {dice.random():.4e}  eta: 0:01:00"
        f"  time: {_f(dice)}  data_time: {_f(dice)}  loss: {_f(dice)}"
    ),
    "timm": lambda step, dice: (
        f"Train: {step // 100} [{step % 100:>4d}/100 ({step % 100:>3.0f}%)]  Loss: {_f(dice, 2)} ({_f(dice, 2)})  Time:"
        f" {_f(dice, 3)}s,  {_f(dice, 2)}/s  ({_f(dice, 3)}s,  {_f(dice, 2)}/s)  LR: {dice.random():.3e}  Data:"
        f" {_f(dice, 3)}"
        f" ({_f(dice, 3)})"
    ),
    "fairseq": lambda step, dice: (
        f"2024-01-05 {_clock(step)} | INFO | train_inner | epoch 001:  {step:5d} / 900 loss={_f(dice, 3)},"
        f" ppl={_f(dice, 2)}, num_updates={step}, lr={dice.random():g}, wall={dice.randrange(999)}"
    ),
    "deepspeed": lambda step, dice: (
        f"[2026-01-05 {_clock(step)},125] [INFO] [timer.py:264:stop] epoch=0/micro_step={step}/global_step={step},"
        f" RunningAvgSamplesPerSec={dice.random()}, CurrSamplesPerSec={dice.random()}, MemAllocated={_f(dice, 2)}GB,"
        f" MaxMemAllocated={_f(dice, 2)}GB"
    ),
    "trainer": lambda step, dice: (
        f"\r{step}%|#  | {step}/900 [00:10<00:30,  1.00it/s]\r{{'loss': {dice.random()}, 'grad_norm': {dice.random()},"
        f" 'learning_rate': {dice.random()}, 'epoch': {step / 900}}}"
    ),
}
JUNK = (
    "INFO:root:checkpoint queue is empty",
    "restored step: 5 with best loss: 0.75 so far",
    "saved step: 6 , loss: 0.70 , path: /x",
    "best validation loss so far at iteration 1",
    "successfully saved checkpoint at iteration 5",
    "step",
    "|||",
    "loss: 0.5",
    "W0301 10:00:00.000 140 run.py:792] Setting OMP_NUM_THREADS",
    "epoch: 1, step: 100, loss: 3.5,  lr: 0.01",
    "",
    "\t",
    "{'a': 1}",
    "100%",
    "NCCL INFO Channel 00/02 : 0 1",
    "Training done in 5 steps",
    "50%|#####     | 1/2 [00:01<00:01]",
)
_NOTE = re.compile(r"read ([\d,]+) of ([\d,]+) rows; ([\d,]+) not understood, first at line")


def counted(note: str) -> int:
    """How many rows a note says weren't understood."""
    match = _NOTE.search(note)
    return int(match[3].replace(",", "")) if match else 0


def log_of(name: str, count: int, seed: int) -> list[str]:
    dice = Dice(seed)
    first = "  0%|   | 0/900 [00:00<?, ?it/s]" if name == "trainer" else None
    return ([first] if first else []) + [ROWS[name](step, dice) for step in range(1, count + 1)]


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_read_one_by_one(name: str) -> None:
    """Each row is there, at its step, and nothing is counted."""
    records, note = read("\n".join(log_of(name, 12, 1)) + "\n")
    assert sorted(rows(records)) == list(range(1, 13))
    assert note == ""


def test_line_of_another_behind_a_row_is_no_part_of_it() -> None:
    """It ends in numbers, as a class's line behind a validation does; and it stands behind the longest line of all."""
    lines = training("ultralytics", 4043).lines
    lines.insert(3, ["NCCL INFO Channel 00/02 : 0 1"])
    assert counted(read("\n".join(line for group in lines for line in group) + "\n")[1]) == 0
    lines = log_of("verl", 6, 2)
    records, note = read("\n".join([*lines[:5], "loss: 0.5", lines[5]]) + "\n")
    assert (rows(records), note) == (rows(read("\n".join(lines) + "\n")[0]), "")


@pytest.mark.heavy
@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(ROWS)), st.data())
def test_junk_between_rows_changes_nothing(name: str, data: st.DataObject) -> None:
    """Lines that are no rows add nothing, take nothing, and aren't counted."""
    lines = log_of(name, 6, 2)
    whole = rows(read("\n".join(lines) + "\n")[0])
    mixed = []
    for line in lines:
        mixed += [*data.draw(st.lists(st.sampled_from(JUNK), max_size=3)), line]
    records, note = read("\n".join(mixed) + "\n")
    assert rows(records) == whole
    assert counted(note) == 0


def wrapped(text: str, width: int) -> str:
    """A text as it lies on a terminal's page of that width."""
    lines = text.splitlines()
    return "".join(f"{line[at : at + width]}\n" for line in lines for at in range(0, len(line) or 1, width))


@pytest.mark.parametrize("width", [60, 80, 99, 120, 150])
@pytest.mark.parametrize("name", sorted(set(ROWS) - {"trainer"}))
def test_lines_that_a_terminal_wrapped_are_whole(name: str, width: int) -> None:
    """Those copied from its page, with other lines between."""
    lines = log_of(name, 12, 5)
    text = "\n".join(lines[:5]) + "\nsaving the model\n" + "\n".join(lines[5:]) + "\n"
    records, note = read(wrapped(text, width))
    assert (rows(records), note) == (rows(read(text)[0]), "")


@pytest.mark.parametrize("at", [60, 80, 99, 120, 150])
@pytest.mark.parametrize("name", SAMPLES)
def test_value_of_a_page_is_a_logs_or_lines_are_counted(name: str, at: int) -> None:
    """Of any log of a page's width: nothing is read that the log doesn't say, and what is missing is counted."""
    text = COLOR.sub(b"", (LOGS / f"{name}.log").read_bytes()).decode()
    if "\r" in text:  # such bars leave one line on a page
        return
    said = rows(read(text)[0])
    for width in (at, at + 7):
        try:
            records, note = read(wrapped(text, width))
        except NotFound:
            continue
        found = rows(records)
        more = {step: values for step, values in found.items() if not values.items() <= said.get(step, {}).items()}
        assert str(more) == "{}" or "nan" in str(more), width
        assert str(found) == str(said) or counted(note) > 0, width


@pytest.mark.parametrize("name", sorted(set(ROWS) - {"trainer"}))
@pytest.mark.parametrize("width", [60, 80, 99])
def test_single_line_that_a_terminal_wrapped_is_whole_or_counted(name: str, width: int) -> None:
    """One row of a log is longer than the page, wherever it stands, far behind the log's beginning, too."""
    lines = log_of(name, 3, 5)
    text = wrapped(lines[0] + "\n", width)
    whole = rows(read(lines[0] + "\n")[0])
    for before in ("", "saving the model\n" * 3, *["saving the model\n" * 20_000] * (name == "titan")):
        try:
            records, note = read(before + text + "done\n")
        except NotFound:
            continue
        found = rows(records)
        assert found == whole or counted(note) > 0
        assert all(values.items() <= whole[step].items() for step, values in found.items())


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["primus", "titan", "verl"])
def test_wrapped_lines_of_standard_input_are_whole(name: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they come: at once, or line by line through a pipe."""
    text = "\n".join(log_of(name, 12, 5)) + "\n"
    whole = rows(read(text)[0])
    end, writer = os.pipe()
    with open(end, encoding="utf-8") as stream, open(writer, "wb", buffering=0) as program:
        monkeypatch.setattr(sys, "stdin", stream)
        program.write(wrapped(text, width).encode())
        program.close()
        reader = LogReader()
        (run,) = reader.runs("-")
        assert (rows(list(reader.read(run))), run.note) == (whole, "")


@pytest.mark.parametrize("between", ["Step Time : 2.01s GPU utilization: 4.5MODEL_TFLOP/s/GPU", "12 files", "7"])
def test_lines_of_equal_length_are_not_wrapped(between: str) -> None:
    """Rows that are as long as each other, the longest of a log, each with another line behind it, are as they are."""
    line = " [2026-03-01 10:00:{0:02d}] iteration {0:8d}/     900 | consumed samples: {0:12d} | lm loss: 2.000000E+00 |"
    lines = [text for step in range(10, 16) for text in (line.format(step), between)]
    records, note = read("\n".join(lines) + "\n")
    found = {step: values["consumed_samples"] for step, values in rows(records).items()}
    assert (found, note) == ({step: step for step in range(10, 16)}, "")


WORDS = {
    "megatron": "iteration", "primus": "iteration", "neox": "samples/sec", "nemo": "Training", "maxtext": "completed",
    "nanogpt": "iter", "litgpt": "Epoch", "prime": "Step", "mmengine": "Iter", "timm": "Train", "fairseq": "epoch",
    "deepspeed": "epoch", "trainer": "{",
}  # fmt: skip
"""Where a program's own text begins in its rows, behind its logger's; else at "step"."""


@pytest.mark.parametrize("before", ["saving the model ", "done in 3.5 s", "50% of files: a/b.py:12 read", "x" * 600])
@pytest.mark.parametrize("name", sorted(ROWS))
def test_row_behind_a_text_without_an_end_is_read(name: str, before: str) -> None:
    """Another process's text, or a print's, that has no line end takes no row away, and none of its values."""
    lines = log_of(name, 8, 3)
    whole = rows(read("\n".join(lines) + "\n")[0])
    at = len(lines) - 4
    begin = lines[at].index(WORDS.get(name, "step"))
    bar = lines[at][:begin] if name == "trainer" else ""  # which says its step
    lines[at] = bar + before + lines[at][begin:]
    records, note = read("\n".join(lines) + "\n")
    assert (rows(records), note) == (whole, "")
    lines[at] = lines[at][:-3] + "?~?"
    records, note = read("\n".join(lines) + "\n")
    assert counted(note) == 1
    step = at + 1 - (len(lines) - 8)
    assert rows(records) | {step: whole[step]} == whole


@pytest.mark.parametrize("before", ["saving the model", "done in 3.5 s ", "step 7"])
@pytest.mark.parametrize(("head", "row"), [
    ("Epoch 1/9\n", "32/32 ━━━━━━━━━━━━━━━━━━━━ 2s 10ms/step - accuracy: 0.5{0}00 - loss: 0.9000"),
    ("Epoch 1/9\n", "32/32 [==============================] - 2s 10ms/step - loss: 0.9{0}00"),
    ("", "      {0}/9      2.37G      1.234      2.345      1.456         12        640: 100% ━━━━━ 8/8 3.4it/s 2.4s"),
])  # fmt: skip
def test_bar_behind_a_text_without_an_end_is_counted(head: str, row: str, before: str) -> None:
    """Its first number may be the text's, too."""
    head = head or "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
    lines = [head.replace("1", str(epoch)) + row.format(epoch) for epoch in range(1, 4)]
    whole = rows(read("\n".join(lines) + "\n")[0])
    text = lines[1].split("\n")
    lines[1] = text[0] + "\n" + before + text[1]
    records, note = read("\n".join(lines) + "\n")
    assert counted(note) == 1
    last = max(whole)
    assert rows(records)[last]["epoch"] == whole[last]["epoch"]


def test_bar_of_a_notebook_is_read_over_its_two_lines() -> None:
    """As its page has it; an evaluation's says nothing."""
    line = "Epoch {0}: 100%\n {1} 10/10 [00:01<00:00,  9.50it/s, v_num=0, train_loss=2.{0}00, val_loss=1.5]\n"
    other = "Validation DataLoader 0: 100%\n 2/2 [00:00<00:00, 50.00it/s]\n"
    records, note = read("".join(line.format(epoch, "\xa0" * epoch) + other for epoch in range(3)))
    found = {
        step: (values["epoch"], values["train_loss"], values["val_loss"]) for step, values in rows(records).items()
    }
    assert (found, note) == ({10: (0, 2.0, 1.5), 20: (1, 2.1, 1.5), 30: (2, 2.2, 1.5)}, "")
    damaged = line.format(0, "") + line.format(1, "").replace("val_loss=1.5]", "val_lo")
    assert counted(read(damaged)[1]) == 1


def test_evaluations_of_prime_rl_without_a_step_are_read_or_counted() -> None:
    """They are of the last row's; a mean with its spread is counted, and the others are read."""
    text = "\n".join(log_of("prime", 3, 5)) + "\n10:00:09 SUCCESS Evaluated math in 45.50s (Avg@8=0.25, Pass@1: 0.5"
    records, note = read(text + ", Truncated: 3.5%)\n")
    found = {name.removeprefix("eval/math/"): value for name, value in rows(records)[3].items() if "math" in name}
    assert (found, note) == ({"time": 45.5, "Avg@8": 0.25, "Pass@1": 0.5, "Truncated_percent": 3.5}, "")
    records, note = read(text + ", Completion Length: 91.50 (±2.50, ∈[8.00, 164.00]), Truncated: 3.5%)\n")
    assert (rows(records)[3]["eval/math/Truncated_percent"], counted(note)) == (3.5, 1)
    assert counted(read(text + "\n")[1]) == 1


def test_row_that_such_a_row_was_before_is_whole() -> None:
    """Also where one between them said more behind its last field, as one with an evaluation does."""
    line = "step:{} - actor/entropy:0.5 - timing_s/step:90.5{}\n"
    records, note = read(line.format(1, "") + line.format(2, " - val-core/acc:0.75") + line.format(3, ""))
    assert (sorted(rows(records)[3]), note) == (["actor/entropy", "timing_s/step"], "")
    assert counted(read(line.format(2, " - val-core/acc:0.75") + line.format(3, "") + line.format(4, ""))[1]) == 2


def test_zeros_before_a_row_are_nothing() -> None:
    """A file that was truncated while a program held it open begins with them."""
    line = "iter {}: loss 2.5000, time 25.50ms, mfu 14.60%\n"
    records, note = read("\0" * 5000 + line.format(0) + line.format(10))
    assert (sorted(rows(records)), note) == ([0, 10], "")


def test_row_whose_last_value_is_followed_by_its_key_again_is_counted() -> None:
    """Another process's text behind it begins with that key: the value isn't understood, and the others are read."""
    lines = log_of("maxtext", 4, 2)
    lines[2] += "loss: 0.5"
    records, note = read("\n".join(lines) + "\n")
    assert counted(note) == 1
    assert "train_loss" not in rows(records)[3]
    assert "perf/iter_time_sec" in rows(records)[3]


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(sorted(ROWS)), st.integers(0, 10**6), st.data())
def test_row_that_lost_its_end_is_counted(name: str, seed: int, data: st.DataObject) -> None:
    """A row that breaks off before its last value has no wrong value, and the note counts it; the others are whole."""
    lines = log_of(name, 8, seed)
    whole = rows(read("\n".join(lines) + "\n")[0])
    at = data.draw(st.integers(len(lines) - 4, len(lines) - 1))
    line = lines[at]
    step = at + 1 - (len(lines) - 8)
    head = re.search(r"{'loss" if name == "trainer" else r"(?:[Ss]tep|[Ii]ter\w*|[Ee]poch|Train)\W", line)
    assert head is not None
    begin = head.start() if name == "trainer" else head.end()
    last = max(line.rfind(sign, 0, len(line) - 3) for sign in (":", "=", " ", "/", "("))
    cut = data.draw(st.integers(begin + 14, last)) if last > begin + 14 else last
    lines[at] = line[:cut]
    records, note = read("\n".join(lines) + "\n")
    found = rows(records)
    assert counted(note) == 1, line[:cut]
    for number, values in found.items():
        for key, value in values.items():
            assert str(whole[number].get(key)) == str(value), (line[:cut], key)
    assert {number: values for number, values in found.items() if number != step} == {
        number: values for number, values in whole.items() if number != step
    }


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(ROWS)), st.sampled_from(sorted(ROWS)), st.integers(0, 10**6))
def test_rows_of_two_programs_are_both_read(first: str, second: str, seed: int) -> None:
    """Whose rows are fewer has its name before its values; nobody's values take another's place."""
    if first == second or {first, second} <= {"megatron", "primus", "neox"} or "trainer" in (first, second):
        return
    one, other = log_of(first, 6, seed), log_of(second, 4, seed + 1)
    whole = {name: rows(read("\n".join(lines) + "\n")[0]) for name, lines in ((first, one), (second, other))}
    dice = Dice(seed)
    mixed, queues = [], [one[:], other[:]]
    while any(queues):
        queue = dice.choice([queue for queue in queues if queue])
        mixed.append(queue.pop(0))
    records, note = read("\n".join(mixed) + "\n")
    found = rows(records)
    assert counted(note) == 0
    for name in (first, second):
        for step, values in whole[name].items():
            for key, value in values.items():
                told = [found[step][known] for known in found[step] if known == key or known.endswith(f"/{key}")]
                assert value in told, (name, step, key)


def test_fields_of_a_row_that_is_damaged_are_no_other_rows() -> None:
    """OLMo's values stand on lines behind the step: where that can't be read, they aren't another row's."""
    head = "2026-08-01 10:00:00.000\thost:0\tolmo_core.train\tINFO\t"
    text = f"{head}[step=10/100,epoch=1]\n    train/CE loss=2.5\n{head}Finished lm evals in 3.0 seconds. Metrics:\n"
    text += f"    c4/PPL=14.5\n{head}[step=1#/100,epoch=1]\n    train/CE loss=9.5\n"
    records, note = read(text)
    assert rows(records) == {10: {"epoch": 1, "train_loss": 2.5, "eval/c4/PPL": 14.5}}
    assert note.startswith("read 2 of 3 rows; 1 not understood, first at line 5")


@pytest.mark.parametrize("name", SAMPLES)
def test_log_with_other_line_ends_is_read_as_usual(name: str) -> None:
    """A log that went through Windows says the same."""
    content = (LOGS / f"{name}.log").read_bytes()
    assert str(rows(read(content.replace(b"\n", b"\r\n"))[0])) == str(rows(read(content)[0]))


@pytest.mark.parametrize("name", SAMPLES)
def test_log_that_goes_on_in_utf_16_is_read_as_usual(name: str) -> None:
    """As PowerShell's `>>` appends to a file that is UTF-8, at any line."""
    content = (LOGS / f"{name}.log").read_text()
    lines, due = content.splitlines(keepends=True), str(read(content.replace("\n", "\r\n")))
    for at in {1, len(lines) // 2, len(lines) - 1}:
        ascii = next((place for place in range(at, len(lines)) if re.match(r"[ -~]{3}", lines[place])), len(lines))
        first, last = ("".join(part).replace("\n", "\r\n") for part in (lines[:ascii], lines[ascii:]))
        assert str(read(first.encode() + last.encode("utf-16-le"))) == due, at


@pytest.mark.parametrize(
    "other", ["code", "code data", "a | b", "step 10", "default two", "step 3 | epoch 1", "x y | step"]
)
@pytest.mark.parametrize("written", ['name "{}" | ', "{} | "], ids=["fine-tuning", "distillation"])
@pytest.mark.parametrize("both", [True, False])
def test_validation_of_a_set_with_any_name_is_no_row_of_training(other: str, written: str, both: bool) -> None:
    """AutoModel's sets are called as their user likes, and their lines have training's step in them."""
    line = "2026-05-06 07:08:0{} | INFO | root | {}step 10 | epoch 0 | loss {}.5 |{} lr 1.00e-05 | {}\n"
    text = line.format(0, "", 1, " grad_norm 0.9000 |", "mem 12.34 GiB | tps 2345.67(1172.83/gpu)")
    text += line.format(1, "[val] " + written.format("default"), 2, "", "num_label_tokens 5") if both else ""
    records, note = read(text + line.format(2, "[val] " + written.format(other), 3, "", "num_label_tokens 5"))
    found = rows(records)[10]
    assert (found["train_loss"], found[f"loss validation {other}"], note) == (1.5, 3.5, "")
    assert found.get("val_loss") == (2.5 if both else None)


OLMO = "2026-08-01 10:00:0{0}.000\thost:0\tolmo_core.train\tINFO\t[step={0}/100,epoch=1]\n    train/CE loss=2.{0}\n"
OTHER = "2026-08-01 10:00:02.000\thost:0\tcheckpoint:75\tINFO\tSaving:\n"


@pytest.mark.parametrize("line", ["    size=5.0\n", "    train/PPL=9.5\n", "    /ckpt/step=2\n", "    all of it\n"])
def test_field_behind_another_loggers_line_is_no_rows(line: str) -> None:
    """It is that logger's, whatever it is called; one that could be the row's is counted."""
    records, note = read(OLMO.format(1) + OLMO.format(2) + OTHER + line + OLMO.format(3))
    assert rows(records) == {step: {"epoch": 1, "train_loss": float(f"2.{step}")} for step in (1, 2, 3)}
    assert counted(note) == (line.strip().partition("=")[2] in ("5.0", "9.5"))


FIT = "Epoch 0: 100%|██████████| 10/10 [00:01<00:00,  9.50it/s, v_num=0, train_loss=2.300]\n"
RULE = "─" * 60 + "\n"


@pytest.mark.parametrize("of", ["Test", "Validate"])
@pytest.mark.parametrize(("values", "count"), [
    (["test_acc            0.8799999952316284", "test_loss/dataset           0.35"], 0),
    (["test_acc            0.8799999952316284", "test_loss/dataset           0.3x5 1.0"], 1),
])  # fmt: skip
def test_table_of_lightnings_test_is_read(of: str, values: list[str], count: int) -> None:
    """Without rich, too; a row of it that can't be read is counted, and so is a table of two loaders."""
    table = [
        RULE,
        f"       {of} metric             DataLoader 0\n",
        RULE,
        *(f"        {value}\n" for value in values),
        RULE,
    ]
    records, note = read(FIT + "".join(table))
    found = rows(records)[10]
    assert (found["test_acc"], counted(note)) == (0.8799999952316284, count)
    assert found.get("test_loss/dataset") == (None if count else 0.35)
    two = [RULE, f"       {of} metric      DataLoader 0       DataLoader 1\n", RULE, "    acc     0.5     0.6\n", RULE]
    records, note = read(FIT + "".join(two))
    assert (set(rows(records)[10]), counted(note)) == ({"epoch", "perf/its_per_sec", "train_loss"}, 1)
    rich = "│  test_acc  │    0.88    │    0.77    │\n"
    assert counted(read(FIT + rich)[1]) == 1


def test_rows_of_trainer_behind_another_program_have_steps_of_their_own() -> None:
    """By its bars, or counted from its own first one."""
    keras = "".join(f"Epoch {epoch}/2\n4/4 {'━' * 20} 2s 100ms/step - loss: {epoch}.5000\n" for epoch in (1, 2))
    row = "{{'loss': {0}.5, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': {0}.0}}\n"
    for bar in ("", " 50%|# | {0}/3 [00:0{0}<00:05,  1.33it/s]\n"):
        records, note = read(keras + "".join((bar + row).format(step) for step in (1, 2, 3)))
        found = rows(records)
        assert [found[step].get("loss", found[step].get("hugging-face-trainer/loss")) for step in (1, 2, 3)] == [
            1.5, 2.5, 3.5,
        ]  # fmt: skip
        assert ("the log has no steps" in note) == (bar == "")


@pytest.mark.parametrize(("order", "others"), [("0101", 0), ("1001", 2), ("0110", 2), ("1010", 0)])
def test_series_of_several_ranks_is_noted(order: str, others: int) -> None:
    """Where each names itself, and now one's line of a step comes first, now another's."""
    line = "[rank{0}]:[titan] 2026-02-24 19:46:1{1},500 - root - INFO - step:  {1}  loss:  {0}.5  memory: 66.91GiB(37%)"
    text = "".join(line.format(rank, number // 2) + "  tps: 10,050\n" for number, rank in enumerate(order))
    note = read(text)[1]
    assert note.startswith(f"{others} lines say other values of a step") if others else note == ""


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("labels", [("", ""), ("[rank0]:", "[rank1]:")], ids=["bare", "labelled"])
def test_two_ranks_that_do_not_say_so_are_noted(labels: tuple[str, str], stamped: bool) -> None:
    """The first line of each step counts, and the note says how many others say otherwise; one that names its rank is
    its rank's."""
    line = "{}{}step: {}  loss:  {:.4f}  memory: 66.24GiB(37.84%)  tps: {:,}  tflops: 314.03  mfu: 13.22%\n"
    text = "".join(
        line.format(labels[rank], f"2026-03-07 19:46:0{step},{rank}00 - root - INFO - " if stamped else "", step,
                    7.5 - rank, 9000 + 500 * rank)
        for step in (1, 2, 3) for rank in (0, 1))  # fmt: skip
    records, note = read(text)
    assert [values["train_loss"] for values in rows(records).values()] == [7.5, 7.5, 7.5]
    said = note.startswith("3 lines say other values of a step than the line before them")
    assert said or (stamped and labels != ("", "") and note == "")


@pytest.mark.parametrize("other", [
    "step: 3 loss: 77.0 lr: 1e-4", "step: 3  loss: 77.0  acc: 0.5  time: 3.0", "step: 3, loss: 77.0, lr: 1e-4",
    "step: 3 loss: 77.0 acc: 0.5 memory: 3",
])  # fmt: skip
def test_line_of_a_script_beside_torchtitan_is_no_row(other: str) -> None:
    """It has step and loss, and other fields than TorchTitan's: it is counted, and nothing of it read."""
    row = "step: {0:2d}  loss: {0}.5000  grad_norm:  1.5000  memory: 66.24GiB(37.84%)  tps: 9,000  mfu: 13.22%\n"
    records, note = read(row.format(1) + f"2026-03-07 19:46:01 - INFO - {other}\n" + row.format(10))
    losses = {step: values["train_loss"] for step, values in rows(records).items()}
    assert (losses, counted(note)) == ({1: 1.5, 10: 10.5}, 1)
    for cut in ("", "  grad_norm:  1.5", "  memory: 66", "  grad_norm:  1.5000  memory: 66.24GiB(37.84%)  tps:"):
        records, note = read(row.format(1) + row.format(10) + f"step: 11  loss: 3.2500{cut}\n")
        assert (list(rows(records))[:2], counted(note)) == ([1, 10], 1)


@pytest.mark.parametrize(("name", "other"), [
    ("automodel", "step 2 | epoch 0 | reward 3.0"), ("prime-rl", "Step 2 | 3.5s | acc 0.5"),
    ("maxtext", "completed step: 2, checkpoint: 3, loss: 99"), ("nanochat", "step 2/100 (2.00%) | acc: 0.5"),
    ("megatron", " iteration 2/ 5 | loss: 9.9 | acc: 3 |"),
])  # fmt: skip
def test_line_with_a_programs_head_and_none_of_its_fields_is_no_row(name: str, other: str) -> None:
    """A script's own, in the log of a program that is known: behind a row it is counted, and nothing of it read."""
    lines = (LOGS / f"{name}.log").read_text().splitlines(keepends=True)
    plain, note = read("".join(lines))
    records, said = read("".join([*lines, f"{other}\n"]))
    assert (rows(records), counted(said)) == (rows(plain), counted(note) + 1)


def test_row_cut_under_a_head_of_columns_is_no_rest_of_it() -> None:
    """Heads that stand before each epoch are the longest lines, all of one length: the log isn't taken for wrapped."""
    head = "      Epoch    GPU_mem   box_loss   cls_loss  Instances       Size\n"
    row = "      {0}/900 0.09G  {0}.5  0.5000  6026  1: 100% ━━━━ 8/8\n"
    whole = [head + row.format(epoch) for epoch in range(1, 6)]
    whole[2] = f"{head}      3/900 0.01G  2.3693  0.4469  1\n"
    records, note = read("".join(whole))
    assert (list(rows(records)), counted(note)) == ([1, 2, 4, 5], 1)


TRAINER = "{{'loss': {0}.5, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': {0}.0}}"


@pytest.mark.parametrize("other", [
    "{'prompt': 'Say it', 'epoch': 1}", "{'epoch': 1, 'prompt': 'Say it', 'score': 0.5}", "{'score': 0.5, 'epoch': 2}",
    "{'text': '¿Qué?', 'epoch': 1.0}", "{'eval_prompt': 'Say it', 'epoch': 1.0}", '{"prompt": "Say it", "epoch": 1}',
])  # fmt: skip
def test_dictionary_of_a_script_is_no_row_of_trainers(other: str) -> None:
    """Its epoch is an integer, or it has words; what Trainer's `log` is given, whatever it is, is a row."""
    mine = "{'accuracy': 0.5, 'entropy': 'nan', 'epoch': 2.0}"
    lines = [TRAINER.format(1), other, mine, TRAINER.format(3)]
    found = rows(read("\n".join(lines) + "\n")[0])
    assert {step: values["epoch"] for step, values in found.items()} == {1: 1.0, 2: 2.0, 3: 3.0}
    assert found[2].keys() == {"accuracy", "entropy", "epoch"}
    note = read("\n".join([*lines, "{'loss': 0.5, 'epoch': 4}"]) + "\n")[1]
    assert counted(note) == 1 + ("{'eval_" in other)  # which look like rows


@pytest.mark.parametrize("between", ["", " ", "[rank1]:", "[rank1]: ", "(Worker pid=12, ip=10.0.0.1) "])
@pytest.mark.parametrize("count", [2, 3])
def test_dictionaries_on_one_line_are_rows_each(between: str, count: int) -> None:
    """Of several processes, or printed without a line end; one that is damaged is counted, and takes no other's."""
    text = between.join(TRAINER.format(step) for step in range(1, count + 1))
    records, note = read(text + "\n" + TRAINER.format(8) + "\n")
    found = [values["loss"] for values in rows(records).values()]
    assert (found, note) == (
        [*(step + 0.5 for step in range(1, count + 1)), 8.5],
        "the log has no steps: its rows are numbered",
    )
    records, note = read(text.replace("'epoch': 1.0}", "'epoch'}") + "\n" + TRAINER.format(8) + "\n")
    assert (found[1:], counted(note)) == ([values["loss"] for values in rows(records).values()], 1)
    assert list(rows(read(text.replace("'", '"').replace("}", ', "global_step/max_steps": "7/9"}') + "\n")[0])) == [7]


@pytest.mark.parametrize("every", [True, False], ids=["each", "one"])
@pytest.mark.parametrize("again", ["\r{}", "\r{}\r{}", "\x1b[K\r{}", "  \r{}", "{}", "\r[rank0]: {}"])
@pytest.mark.parametrize("head", ["", "[rank0]: ", "10:00:00 "])
def test_dictionary_that_is_drawn_again_on_its_line_is_one_row(head: str, again: str, every: bool) -> None:
    """It says the same; what stands on the next line is another row, and has the next number."""
    lines = [head + TRAINER.format(step) for step in range(1, 5)]
    whole = read("\n".join(lines) + "\n")
    for at in range(4) if every else [1]:
        lines[at] += again.format(*[TRAINER.format(at + 1)] * 2)
    records, note = read("\n".join(lines) + "\n")
    assert (rows(records), note) == (rows(whole[0]), whole[1])


@pytest.mark.parametrize("name", ROWS)
def test_line_that_a_return_begins_anew_is_the_last_of_it(name: str) -> None:
    """As a terminal shows it: its beginning, written before, is no row, and isn't counted."""
    lines = log_of(name, 6, 3)
    whole = read("\n".join(lines) + "\n")
    for at, line in enumerate(lines):
        last = line.rpartition("\r")[2]
        lines[at] = line.removesuffix(last) + last[: (at + 1) * len(last) // 7] + "\r" + last
    records, note = read("\n".join(lines) + "\n")
    assert (rows(records), note) == (rows(whole[0]), whole[1])


TIMER = "epoch=0/micro_step={0}/global_step={0}, RunningAvgSamplesPerSec={0}.5, CurrSamplesPerSec={0}.25"
ENGINE = "[2026-03-02 10:00:14,125] [INFO] [logging.py:96:log_dist] [Rank 0] step={0}, skipped=0, lr=[0.5], mom=[0.9]"
BRIDGE = ("Step Time : {0}.5s GPU utilization: {0}.25MODEL_TFLOP/s/GPU",
          " [2026-03-02 10:00:0{0}.123] iteration {0}/ 9 | consumed samples:    {0} | lm loss: {0}.5 |")  # fmt: skip


@pytest.mark.parametrize(("forms", "cut", "lost"), [
    ((ENGINE, TIMER), 60, "perf/samples_per_sec"), ((ENGINE, TIMER), 80, "perf/samples_per_sec"),
    (BRIDGE, 65, "train_loss"), (BRIDGE, 73, "train_loss"),
])  # fmt: skip
def test_row_of_another_form_before_a_row_is_counted(forms: Sequence[str], cut: int, lost: str) -> None:
    """It lost its end, and with that its line: nothing of the row behind it is its."""
    lines = [[form.format(step) for form in forms] for step in range(1, 7)]
    text = "\n".join(line for row in lines for line in row) + "\n"
    whole = rows(read(text)[0])
    records, note = read(text.replace(lines[2][1] + "\n", lines[2][1][:cut]))
    found = rows(records)
    assert counted(note) == 1
    assert lost not in found.get(3, {})
    assert {step: row for step, row in found.items() if step != 3} == {step: whole[step] for step in whole if step != 3}


@pytest.mark.parametrize("end", ["samples/sec: 2", "samples/sec: 24.858 ", "samples/sec: 24.858 | "])
def test_row_of_neox_that_was_cut_before_the_next_is_counted(end: str) -> None:
    """The next one's stamp follows."""
    line = "[2026-03-02 10:00:0{0}] [INFO] samples/sec: {0}.5 | iteration {0}/ 9 | lm_loss: {0}.25 |\n"
    text = line.format(1) + line.format(2) + "[2026-03-02 10:00:03] [INFO] " + end + line.format(4) + line.format(5)
    records, note = read(text)
    assert (list(rows(records)), counted(note)) == ([1, 2, 4, 5], 1)


@pytest.mark.parametrize("before", ["note: ", "[x] ", "text ", "12it [00:01,  9.11it/s] "])
def test_first_bar_behind_a_text_is_counted(before: str) -> None:
    """Also where the text ends as what stands before a message."""
    text = before + "".join(
        f"Epoch 0: {10 * at}%|##| {at}/10 [00:0{at}<00:05,  5.73it/s, v_num=3, loss=8.4{at}]\n" for at in range(1, 5)
    )
    records, note = read(text)
    assert (list(rows(records)), counted(note)) == ([2, 3, 4], 1)


def test_row_whose_word_hides_in_anothers_key_is_no_value_of_that() -> None:
    """MaxText's, of which a row lost its end in mid-word: each value is its own row's."""
    lines = [
        f"completed step: {at}, seconds: {at}.5, TFLOP/s/device: 5.5, Tokens/s/device: 7.5, loss: 2.{at}"
        for at in range(5)
    ]
    whole = rows(read("\n".join(lines) + "\n")[0])
    for cut in range(20, 45):
        records, note = read("\n".join(lines).replace(lines[2] + "\n", lines[2][:cut]) + "\n")
        assert counted(note) >= 1
        assert all(row.items() <= whole[step].items() for step, row in rows(records).items()), cut


@pytest.mark.parametrize(("line", "damaged"), [
    (" iteration {0}/ 9 | consumed samples: {0} | global batch size: 8 | lm loss: {0}.5 |", ("batch", "�b#")),
    ("step:{0} - actor/pg_loss:0.{0} - timing_s/step:{0}.5 - critic/score:2.5", ("{0} - timing_s", "{0}iming_s")),
    ("step:{0} - actor/pg_loss:0.{0} - timing_s/step:{0}.5 - critic/score:2.5", (" - critic", "�critic")),
])  # fmt: skip
def test_key_that_is_damaged_is_counted(line: str, damaged: tuple[str, str]) -> None:
    """No name has bytes that are no text, or a number with a point behind a colon."""
    text = "".join(line.format(step) + "\n" for step in range(1, 5))
    records, note = read(text + line.replace(*damaged).format(5) + "\n")
    names = {name for row in rows(read(text)[0]).values() for name in row}
    assert counted(note) == 1
    assert rows(records)[5].keys() < names


@pytest.mark.parametrize("end", ["", "\n", "\n" + OLMO.format(4)], ids=["open", "last", "middle"])
@pytest.mark.parametrize("cut", ["    train/CE lo", "    train/CE loss", "    o", "    train/CE loss="])
def test_last_line_of_olmos_row_that_is_cut_is_counted(cut: str, end: str) -> None:
    """Before its sign, too; what isn't the beginning of a known key, and has a line end, is another's."""
    head = OLMO.format(1).replace("\n ", "\n    optim/step skipped=0\n ", 1)
    row = OLMO.format(3).rpartition("\n    ")[0] + "\n    optim/step skipped=0\n"
    records, note = read(head + OLMO.format(2) + row + cut + end)
    assert counted(note) == 1
    assert "train_loss" not in rows(records)[3]
    assert counted(read(head + row + "    saving it\n" + OLMO.format(4))[1]) == 0


@pytest.mark.parametrize("cut", ["    train/CE lo", "    throughput/device/TPS=", "    train/CE loss=2."])
def test_field_of_olmos_row_before_the_next_row_is_counted(cut: str) -> None:
    """A line that lost its end there: nothing of it is a value, and the row behind it is read."""
    head = OLMO.format(1) + "\n" + OLMO.format(2).rpartition("\n    ")[0] + "\n" + cut
    records, note = read(head + OLMO.format(3) + "\n" + OLMO.format(4) + "\n")
    assert (list(rows(records)), counted(note)) == ([1, 2, 3, 4], 1)


def test_fields_of_two_rows_of_olmo_that_alternate_are_noted() -> None:
    """As two processes write them: the first of each step is read."""
    stamped = "2026-03-02 10:00:{0:02d}.123\thost:0\tolmo_core.train:120\tINFO\t[step={0}/9,epoch=1]\n{1}"
    lines = ["    train/CE loss={}.5\n", "    optim/total grad norm={}.25\n"]
    text = "".join(
        stamped.format(step, "")
        + stamped.format(step, "")
        + "".join(line.format(at) for line in lines for at in (1, 7))
        for step in range(1, 4)
    )
    records, note = read(text)
    assert {step: (row["train_loss"], row["grad_norm"]) for step, row in rows(records).items()} == dict.fromkeys(
        (1, 2, 3), (1.5, 1.25)
    )
    assert note.startswith("6 lines say other values of a step than the line before them")


@pytest.mark.parametrize("every", [True, False], ids=["each", "one"])
@pytest.mark.parametrize("words", [" note", " (best so far)", " <- saved it", " saved 3 files"])
@pytest.mark.parametrize("name", ROWS)
def test_words_behind_a_row_are_left_aside(name: str, words: str, every: bool) -> None:
    """It is read whole, and not counted."""
    lines = log_of(name, 8, 3)
    whole = rows(read("\n".join(lines) + "\n")[0])
    for at in range(len(lines) - 8, len(lines)) if every else [len(lines) - 4]:
        lines[at] += words
    records, note = read("\n".join(lines) + "\n")
    assert (rows(records), note) == (whole, "")


@pytest.mark.parametrize(("name", "field"), [
    ("modded", " train_time:"), ("titan", "  tps:"), ("nanogpt", ", mfu"), ("maxtext", ", loss:"), ("prime", " | MFU"),
    ("automodel", " | num"), ("fairseq", ", lr="), ("mmengine", "  loss:"),
])  # fmt: skip
def test_row_that_lacks_fields_before_a_note_is_counted_alone(name: str, field: str) -> None:
    """Nothing tells whether it was cut: nothing of it is read."""
    lines = log_of(name, 8, 3)
    whole = rows(read("\n".join(lines) + "\n")[0])
    lines[4] = lines[4][: lines[4].index(field)] + " note"
    records, note = read("\n".join(lines) + "\n")
    del whole[5]
    assert (rows(records), counted(note)) == (whole, 1)


BAR = "Loading checkpoint shards: 100%|██████████| 4/4 [00:02<00:00,  1.70it/s]"
"""Of another process, or another library."""


@pytest.mark.parametrize("name", [*sorted(set(ROWS) - {"trainer"}), "keras"])
def test_bar_behind_a_row_without_an_end_is_no_part_of_it(name: str) -> None:
    """The row is whole where its form says so, else counted; nothing of the bar is a value, and no other row moves."""
    keras = "Epoch {0}/9\n32/32 ━━━━━━━━━━━━━━━━━━━━ 2s 10ms/step - accuracy: 0.5{0}00 - loss: 0.9{0}00"
    lines = [keras.format(at) for at in range(1, 9)] if name == "keras" else log_of(name, 8, 3)
    whole = rows(read("\n".join(lines) + "\n")[0])
    for between in (BAR, f" {BAR}", BAR.lower()):
        mixed = [line + between * (at == 4) for at, line in enumerate(lines)]
        records, note = read("\n".join(mixed) + "\n")
        found = rows(records)
        assert all(values.items() <= whole[step].items() for step, values in found.items()), between
        assert found == whole or counted(note) == 1, between
        assert [found.get(step) == values for step, values in whole.items()].count(False) <= 1


BARS = (
    " " + BAR, "  3%|▎ | 3/100 [00:01<00:30, 3.2it/s]", " 43%|▎ | 43/100 [00:01<00:30, 3.2it/s]",
    "3%|▎ | 3/100 [00:01<00:30, 3.2it/s]", " Map (num_proc=8):   3%|▎ | 3/100 [00:01<00:30, 3.2 examples/s]",
)  # fmt: skip


@pytest.mark.parametrize("bar", BARS)
@pytest.mark.parametrize("end", [" rank-3 rocm max mem usage/usage_ratio: 95.50GB/33.16%", " num zeros: 5"])
def test_field_without_an_end_before_a_bar_is_counted_on_each_row(end: str, bar: str) -> None:
    """Where every row of Primus has one behind it, too: nothing tells where the field ends; with an end it is read."""
    lines = [line[: line.rindex("|") + 1] for line in log_of("primus", 6, 3)]
    whole = rows(read("\n".join(lines) + "\n")[0])
    ended = rows(read("\n".join(line + end + " |" for line in lines) + "\n")[0])
    assert all(whole[step].items() < ended[step].items() for step in whole)
    assert (rows(read("\n".join(line + end + " |" + bar for line in lines) + "\n")[0])) == ended
    records, note = read("\n".join(line + end + bar for line in lines) + "\n")
    assert counted(note) == len(lines)
    assert all(values.items() <= ended[step].items() for step, values in rows(records).items())
    mixed = [line + end + bar * (at == 3) for at, line in enumerate(lines)]
    assert counted(read("\n".join(mixed) + "\n")[1]) == 1


@pytest.mark.parametrize("every", [True, False], ids=["each", "one"])
@pytest.mark.parametrize("behind", ["[W301 ProcessGroup.cpp:1] Warning: something 5", "WARNING:root:slow step",
                                    "/x/y.py:12: UserWarning: foo is deprecated"])  # fmt: skip
@pytest.mark.parametrize("value", ["np.float64(0.5)", "0.5", "nan", "-1"])
def test_warning_behind_a_row_of_verl_without_an_end_is_no_part_of_it(value: str, behind: str, every: bool) -> None:
    """A value and a warning with a colon are no key with words for a value."""
    lines = [f"step:{step} - actor/lr:0.{step} - critic/score:{value}" for step in range(1, 6)]
    head = "step:0 - val-core/a/acc/mean@1:0.5 - actor/pg_loss:0.5\n"
    lines = [line + behind * (every or at == 2) for at, line in enumerate(lines)]
    records, note = read(head + "\n".join(lines) + "\n")
    assert counted(note) == (5 if every else 1)
    assert not any(record.values for record in records if isinstance(record, Text))


def test_bar_behind_a_heading_is_no_part_of_it() -> None:
    """The epoch that it says begins."""
    text = "".join(f"Epoch {at}/3\n32/32 ━━━━━━━━━━━━━━━━━━━━ 2s 10ms/step - loss: 0.9{at}00\n" for at in range(1, 4))
    records, note = read(text.replace("Epoch 2/3", f"Epoch 2/3{BAR}"))
    assert (rows(records), note) == (rows(read(text)[0]), "")


@pytest.mark.parametrize("name", ["primus-excerpt", "megatron-wrapped"])
@pytest.mark.parametrize("prefix", ["trainer/7 ", "7: ", "(train pid=4242) ", "[rank7]: "])
def test_wrapped_lines_behind_a_launchers_prefix_are_no_pages(name: str, prefix: str) -> None:
    """What a program wraps by itself has the prefix on each line, which is no part of a name."""
    text = (LOGS / f"{name}.log").read_text()
    behind = "".join(prefix + line for line in text.splitlines(keepends=True))
    assert rows(read(behind)[0]) == rows(read(text)[0])


@pytest.mark.parametrize("name", ROWS)
def test_colours_of_values_change_nothing(name: str) -> None:
    """Each number of a row may have its own."""
    lines = log_of(name, 6, 2)
    coloured = [re.sub(r"(?<![\w.\[:])\d+\.\d+(?![\w.])", "\x1b[1;33m\\g<0>\x1b[0m", line) for line in lines]
    records, note = read("\n".join(coloured) + "\n")
    assert (rows(records), note) == (rows(read("\n".join(lines) + "\n")[0]), "")


@pytest.mark.parametrize("between", [BAR, "[rank1]:[W301 10:00:00.000000 ProcessGroupNCCL.cpp:1] Warning: something 5"])
@pytest.mark.parametrize(("name", "cell"), [
    ("lightning-test", "        test_loss "), ("ultralytics-8", "                person "), ("olmo", "    "),
])  # fmt: skip
def test_field_on_a_line_of_its_own_behind_anothers_line_is_counted(name: str, cell: str, between: str) -> None:
    """It may be another's, too: it isn't read, and the note says so."""
    text = (LOGS / f"{name}.log").read_text()
    whole, at = rows(read(text)[0]), text.rindex(f"\n{cell}") + 1
    records, note = read(text[:at] + between + "\n" + text[at:])
    assert counted(note) == 1
    assert all(values.items() < whole[step].items() or values == whole[step] for step, values in rows(records).items())
    assert str(rows(records)) != str(whole)
