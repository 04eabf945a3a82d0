"""Where training is: as the iterations say that training_log is given, whatever ``start`` was told."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.frameworks.megatron.test_training_log import call, logged
from trackers.formats.megatron_line import SAMPLES, VS_SAMPLES
from trackers.frameworks.megatron import LoggerConfig, MegatronLog, start
from trackers.metrics import checkpoint_keys

SIZE, TOKENS = 8, 100
TAKEN = "consumed samples of the 10 iterations before this start are taken for 10 × 8"


def begin(lines: list[str], *, id: str = "", **arguments: Any) -> MegatronLog:
    """A log of a run that only writes its journal; ``id``: it is continued."""
    options = {"TRACKER_RELAY": False, "TRACKER_LOG_TIMERS": False}
    init: dict[str, Any] = {"mode": "offline", "project": "p", "options": options}
    if id:
        init |= {"id": id, "resume": "allow"}
    config = LoggerConfig(log_interval=5, log_throughput=True, log_runtime_to_tensorboard=True)
    arguments = {"seq_length": TOKENS, "flops_per_token": 1e9, **arguments}
    return start(
        config, trackers="json", init=init, train_iters=30, global_batch_size=SIZE, write=lines.append, **arguments
    )


def consumed(lines: list[str]) -> list[tuple[int, int]]:
    """Iterations and consumed samples of Megatron's lines."""
    found = (re.search(r"iteration +(\d+)/.*consumed samples: +(\d+)", text) for text in lines)
    return [(int(match[1]), int(match[2])) for match in found if match]


@pytest.mark.parametrize("told", [{}, {"start_iteration": 10}], ids=["by the first call", "by start"])
def test_resumed_training_counts_on(told: dict[str, int], capfd: pytest.CaptureFixture[str]) -> None:
    """Iterations, samples, tokens and operations go on after those before the start, and what is left is true."""
    lines: list[str] = []
    log = begin(lines, **told)
    for iteration in range(11, 21):
        call(log, iteration)
    with log.checkpoint():
        pass
    log.run.finish()
    assert consumed(lines) == [(15, 15 * SIZE), (20, 20 * SIZE)]
    values = logged(log.run)
    assert values[checkpoint_keys.ITERATION] == {20: 20}
    assert values[checkpoint_keys.TOKENS] == {20: 20 * SIZE * TOKENS}
    assert values[checkpoint_keys.FLOPS] == {20: 20 * SIZE * TOKENS * 1e9}
    assert values[checkpoint_keys.JOB_FLOPS] == {20: 10 * SIZE * TOKENS * 1e9}
    assert values["time/batches"][20] == 20
    pace = values["time/total"][20] / 9
    assert 0 <= values["time/remaining_estimate"][20] <= 12 * pace
    assert (TAKEN in capfd.readouterr().err) == (not told)


def test_checkpoint_of_the_run_says_what_came_before(capfd: pytest.CaptureFixture[str]) -> None:
    """Where the batch size grew, only what the checkpoint was recorded by is right; an evaluation may come first."""
    lines: list[str] = []
    log = begin(lines, id="ramp")
    for iteration in range(1, 11):
        call(log, iteration, batch_size=4 if iteration <= 5 else 6)
    with log.checkpoint():
        pass
    call(log, 11)  # gone with the process, which went on after its checkpoint
    log.run.finish()
    log = begin(lines, id="ramp")
    log.validation_log({"lm loss": 2.0}, 10)
    for iteration in range(11, 16):
        call(log, iteration)
    log.run.finish()
    assert consumed(lines) == [(5, 20), (10, 50), (15, 50 + 5 * SIZE)]
    assert logged(log.run)[SAMPLES][10] == 50
    assert "are taken for" not in capfd.readouterr().err


def test_given_samples_are_stronger(capfd: pytest.CaptureFixture[str]) -> None:
    """``consumed_samples`` is of before this start, whoever says at which iteration that is."""
    for told in ({}, {"start_iteration": 10}):
        lines: list[str] = []
        log = begin(lines, consumed_samples=33, **told)
        for iteration in range(11, 16):
            call(log, iteration)
        log.run.finish()
        assert consumed(lines) == [(15, 33 + 5 * SIZE)]
    assert "are taken for" not in capfd.readouterr().err


def test_iterations_that_are_left_out_take_their_samples() -> None:
    """As Megatron's iterations_to_skip: the data goes on, and nothing is computed."""
    lines: list[str] = []
    log = begin(lines)
    for iteration in (1, 2, 3, 4, 5, 8, 9, 10):
        call(log, iteration)
    with log.checkpoint():
        pass
    log.run.finish()
    assert consumed(lines) == [(5, 5 * SIZE), (10, 10 * SIZE)]
    assert logged(log.run)[checkpoint_keys.FLOPS] == {10: 8 * SIZE * TOKENS * 1e9}


def test_training_that_goes_back_counts_again() -> None:
    """A restart inside the process from iteration 5; the numbers are those of the data that was gone through."""
    lines: list[str] = []
    log = begin(lines)
    for iteration in (*range(1, 9), *range(6, 11)):
        call(log, iteration)
    log.run.finish()
    assert consumed(lines) == [(5, 5 * SIZE), (10, 10 * SIZE)]


def test_iterations_from_zero() -> None:
    """A script that counts from 0 has the same samples."""
    lines: list[str] = []
    log = begin(lines)
    log.validation_log({"lm loss": 2.0}, 0)
    for iteration in range(6):
        call(log, iteration)
    log.run.finish()
    assert consumed(lines) == [(0, SIZE), (5, 6 * SIZE)]


@settings(max_examples=25)
@given(
    before=st.integers(0, 12),
    parts=st.lists(st.tuples(st.integers(-6, 3), st.integers(1, 4)), min_size=1, max_size=4),
)
def test_samples_are_those_of_the_iteration(before: int, parts: list[tuple[int, int]]) -> None:
    """Whatever is left out, repeated or gone back to: with one batch size, samples are iterations times that."""
    log = begin([], consumed_samples=None)
    iteration, seen = before, []
    for jump, count in parts:
        iteration = max(0, iteration + jump)
        for _ in range(count):
            iteration += 1
            call(log, iteration)
            seen.append(iteration)
            assert log._loop.steps == iteration
            assert log._consumed == iteration * SIZE
    log.run.finish()
    values = logged(log.run)
    assert values[SAMPLES] == {number: number * SIZE for number in seen}
    assert set(values[f"lm loss{VS_SAMPLES}"]) == set(seen)


def test_progress_counts_all_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """progress.txt has the iteration of the checkpoint, and the operations of both jobs."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    for first in (1, 11):
        log = start(
            LoggerConfig(log_progress=True), trackers="json", train_iters=30, global_batch_size=SIZE, seq_length=TOKENS,
            flops_per_token=1e9, save=tmp_path / "saved", write=lambda text: None,
            init={"id": "r", "resume": "allow", "project": "p", "inline": True},
        )  # fmt: skip
        for iteration in itertools.islice(itertools.count(first), 10):
            call(log, iteration)
        with log.checkpoint():
            pass
        log.run.finish()
    text = (tmp_path / "saved/progress.txt").read_text()
    assert re.findall(r"Iteration: (\d+)", text) == ["10", "20"]
    assert re.findall(r"Floating-point operations: (\S+)", text) == ["8.00e+12", "1.60e+13"]
