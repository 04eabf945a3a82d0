"""Values on their way from an accelerator: never waited for, order kept, bounded, drained at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import trackers
from trackers.journal.stream import StreamReader
from trackers.records import Metrics, Number, Summary
from trackers.training import recorder
from trackers.training.run import Run
from trackers.values import device_copy
from trackers.values.device_copy import Transfer


class OnDevice:
    """A scalar on an accelerator that a test finishes when it likes; reading it too early is an error."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.done = False


class Moving(Transfer):
    def __init__(self, source: OnDevice) -> None:
        self._source = source

    def ready(self) -> bool:
        return self._source.done

    def value(self) -> Number:
        assert self._source.done, "a value was read before it had arrived"
        return self._source.value


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """A run that only writes its journal and takes OnDevice for a tensor on an accelerator."""
    real = device_copy.transfer

    def transfer(value: Any) -> Transfer | None:
        return Moving(value) if isinstance(value, OnDevice) else real(value)

    monkeypatch.setattr(recorder, "transfer", transfer)
    monkeypatch.setattr(recorder, "DRAIN_S", 0.2)
    monkeypatch.setenv("TRACKER_RELAY", "n")
    run = trackers.init("json", project="p", mode="offline")
    assert isinstance(run, Run)
    yield run
    run.finish()


def logged(run: Run) -> list[tuple[int | None, dict[str, Number]]]:
    reader = StreamReader(Path(run.dir, "streams", "rank-0.1.jsonl"))
    return [(r.step, r.values) for r in reader.read(10**6) if isinstance(r, Metrics)]


def test_value_is_recorded_when_it_has_arrived_with_its_own_step(run: Run) -> None:
    """Nothing is written before its value is there, and what comes behind keeps its place."""
    loss = OnDevice(1.5)
    run.log({"loss": loss, "lr": 0.1}, step=0)
    run.log({"loss": 2.5}, step=1)
    run.log({"text": "behind"}, step=2)
    assert logged(run) == []
    loss.done = True
    run.log({"loss": 3.5}, step=3)
    assert logged(run) == [(0, {"loss": 1.5, "lr": 0.1}), (1, {"loss": 2.5}), (3, {"loss": 3.5})]
    run.log({"loss": 4.5}, step=4)
    assert logged(run)[-1] == (4, {"loss": 4.5})


def test_times_are_those_of_the_call(run: Run) -> None:
    """A value that arrives late is recorded with the time at which it was logged."""
    loss = OnDevice(1.0)
    run.log({"loss": loss}, step=0)
    run.log({"loss": 2.0}, step=1)
    loss.done = True
    run.log({"loss": 3.0}, step=2)
    reader = StreamReader(Path(run.dir, "streams", "rank-0.1.jsonl"))
    times = [record.time for record in reader.read(100) if isinstance(record, Metrics)]
    assert times == sorted(times)
    assert len(times) == 3


def test_queue_is_bounded_and_gives_up_counted_values(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """When too many records wait, the oldest is written without its missing value, and that is counted and said."""
    monkeypatch.setattr(device_copy, "MAX_PENDING", 5)
    for step in range(8):
        run.log({"loss": OnDevice(float(step)), "lr": 0.1}, step=step)
    assert logged(run) == [(step, {"lr": 0.1}) for step in range(3)]
    run.finish()
    assert [step for step, _ in logged(run)] == list(range(8))
    assert "8 values were given up" in capsys.readouterr().err


def test_finish_drains_what_has_arrived(run: Run) -> None:
    """At the end everything that is ready is written before the finish record."""
    values = [OnDevice(float(step)) for step in range(4)]
    for step, value in enumerate(values):
        run.log({"loss": value}, step=step)
    for value in values:
        value.done = True
    run.finish()
    assert logged(run) == [(step, {"loss": float(step)}) for step in range(4)]


def test_result_on_an_accelerator_is_not_read_early(run: Run) -> None:
    """``final/`` values may be on an accelerator too."""
    best = OnDevice(0.25)
    run.log({"final/best": best})
    run.summary["other"] = 1.0
    best.done = True
    run.log({"a": 1.0})
    reader = StreamReader(Path(run.dir, "streams", "rank-0.1.jsonl"))
    found = [record.values for record in reader.read(100) if isinstance(record, Summary)]
    assert found == [{"final/best": 0.25}, {"other": 1.0}]


class Failed(Transfer):
    """A value on a device that has failed: asking for it raises, as CUDA does after an illegal access."""

    def ready(self) -> bool:
        raise RuntimeError("CUDA error: device-side assert triggered")


def test_device_that_fails_takes_nothing_else_with_it(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """Its values are given up, counted, with the driver's word; records behind them are written, and so is the end."""
    run.log({"loss": Failed(), "lr": 0.1}, step=0)
    run.log({"loss": 2.0}, step=1)
    run.log({"final/best": Failed()})
    run.log({"text": "behind"}, step=3)
    assert logged(run) == [(0, {"lr": 0.1}), (1, {"loss": 2.0})]
    run.finish()
    lines = Path(run.dir, "streams", "rank-0.1.jsonl").read_text().splitlines()
    assert '"kind":"finish"' in lines[-1]
    assert "2 values were given up: RuntimeError: CUDA error: device-side assert" in capsys.readouterr().err


class Event:
    """CUDA's, while a graph is captured: asking would end the capture."""

    def query(self) -> bool:
        raise AssertionError("asked while a graph was captured")


def test_capture_of_a_graph_is_left_alone(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While a CUDA graph is captured no value is copied, which is said, and no event asked; plain values go on."""
    cuda = SimpleNamespace(is_current_stream_capturing=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    scalar = SimpleNamespace(is_cuda=True, numel=lambda: 1, is_complex=lambda: False, item=lambda: 1.0)
    moving, batch = object.__new__(device_copy.TorchTransfer), object.__new__(device_copy.TorchBatch)
    moving._event, batch._event, batch._values = Event(), Event(), None
    assert not moving.ready()
    assert not batch.ready()
    run.log({"loss": scalar, "lr": 0.1}, step=0)
    run.log({"worst": trackers.Max(scalar), "lr": 0.2}, step=1)
    assert [values["lr"] for _, values in logged(run)] == [0.1, 0.2]
    assert capsys.readouterr().err.count("a CUDA graph is being captured") == 2


@pytest.mark.parametrize("kind", [trackers.Max, lambda value: value])
def test_part_of_a_sharded_scalar_is_no_value(kind: Any, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A DTensor that every rank has alike is its number; one that is spread over ranks is said, with what to do."""
    import torch
    from torch.distributed.tensor import DTensor, Partial, Replicate
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        one = torch.tensor(3.0)
        same, part = (DTensor.from_local(one, mesh, [place], run_check=False) for place in (Replicate(), Partial()))
        run.log({"same": kind(same), "part": kind(part)}, step=0)
    finally:
        torch.distributed.destroy_process_group()
    assert logged(run) == [(0, {"same": 3.0})]
    assert "part: each rank holds a part of this DTensor (P" in (said := capsys.readouterr().err)
    assert "log value.full_tensor()" in said


def test_page_locked_memory_is_used_again_and_never_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A buffer that was read serves the next value of its size; the interpreter's end frees none of them."""
    import torch

    made: list[int] = []

    def empty(size: int, dtype: Any, pin_memory: bool) -> Any:
        assert pin_memory
        made.append(size)
        return torch.zeros(size, dtype=dtype)

    monkeypatch.setattr(device_copy, "_unused", {})
    monkeypatch.setattr(torch, "empty", empty)
    first = device_copy.pinned((), torch.float32)
    assert first.shape == ()
    second = device_copy.pinned((), torch.float32)
    other = device_copy.pinned((2, 3), torch.float64)
    assert other.shape == (2, 3)
    device_copy.unpin(first)
    again = device_copy.pinned((), torch.float32)
    assert again.data_ptr() == first.data_ptr()
    assert second.data_ptr() != first.data_ptr()
    device_copy.unpin(other)
    assert device_copy.pinned((6,), torch.float64).data_ptr() == other.data_ptr()
    assert made == [1, 1, 6]
