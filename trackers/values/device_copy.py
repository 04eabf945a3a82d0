"""Values still on their way from an accelerator: copied without waiting, recorded when they have arrived.

A record that holds such a value waits in a queue, and so do all records behind it, so that order is kept. The
queue is bounded: when it is full, values of the oldest record that haven't arrived are given up and counted.

A ``DeferredNumber`` is computed once its sources are on the host: logged like any other, and recorded then.
"""

from __future__ import annotations

import ctypes
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Protocol

from trackers.records import Number
from trackers.support.backlog import Backlog
from trackers.support.clock import monotonic
from trackers.support.interruption import pass_on, suppress
from trackers.values.coerce import Unrecordable, number, whole

MAX_PENDING = 1024
"""Records that may wait for an accelerator. CUDA itself queues about as many kernels before a launch blocks."""


class Transfer:
    """One value on its way. ``ready`` never waits; ``value`` is called once it is ready."""

    def ready(self) -> bool:
        raise NotImplementedError

    def value(self) -> Number:
        raise NotImplementedError


_unused: dict[tuple[Any, int], list[Any]] = {}


def pinned(shape: Sequence[int], dtype: Any) -> Any:
    """A page-locked tensor to copy to, used again after :func:`unpin`, and never freed.

    To free one after an error on the device aborts the process in torch's allocator (SIGABRT instead of the exit code 1
    of an exception): at the interpreter's end those of values that never arrived would be.
    """
    torch = sys.modules["torch"]
    size = math.prod(shape)
    unused = _unused.get((dtype, size))
    if unused:
        return unused.pop().reshape(shape)
    buffer = torch.empty(size, dtype=dtype, pin_memory=True)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(buffer))
    return buffer.reshape(shape)


def unpin(buffer: Any) -> None:
    """Leave a tensor of :func:`pinned`, whose numbers have been read, to the next value."""
    _unused.setdefault((buffer.dtype, buffer.numel()), []).append(buffer.reshape(-1))


class TorchTransfer(Transfer):
    """A CUDA (or ROCm) tensor, copied to pinned memory on a stream of its own, behind the producing stream.

    Mostly a scalar; ``host`` has the numbers of a larger one once it is ready.
    """

    _streams: ClassVar[dict[int, Any]] = {}

    def __init__(self, tensor: Any) -> None:
        torch = sys.modules["torch"]
        source = tensor.detach()
        if source.dtype in (torch.bfloat16, torch.float16):
            source = source.float()
        producer = torch.cuda.current_stream(source.device)
        if source.device.index not in self._streams:
            self._streams[source.device.index] = torch.cuda.Stream(source.device)
        side = self._streams[source.device.index]
        # The value is taken as it is now: a copy on the producer's stream comes before any later in-place change.
        snapshot = source.clone()
        side.wait_stream(producer)
        self.host = pinned(source.shape, source.dtype)
        self._value: Number | None = None
        with torch.cuda.stream(side):
            self.host.copy_(snapshot, non_blocking=True)
            snapshot.record_stream(side)
            self._event = torch.cuda.Event()
            self._event.record(side)

    def ready(self) -> bool:
        return not capturing() and bool(self._event.query())

    def value(self) -> Number:
        if self._value is None:
            self._value = number(self.host)
            unpin(self.host)
        return self._value


class TorchBatch:
    """Several scalars of one CUDA device in one copy, as doubles: otherwise as :class:`TorchTransfer`, at its price."""

    def __init__(self, tensors: Sequence[Any]) -> None:
        torch = sys.modules["torch"]
        by_type: dict[Any, list[int]] = {}
        for index, tensor in enumerate(tensors):
            by_type.setdefault(tensor.dtype, []).append(index)
        # Stacking copies the values as they are now, before any later in-place change.
        stacked = [torch.stack([tensors[n].detach().reshape(()) for n in group]) for group in by_type.values()]
        snapshot = torch.cat([part.double() for part in stacked])
        self._index_of = {index: row for row, index in enumerate(n for group in by_type.values() for n in group)}
        device = snapshot.device
        if device.index not in TorchTransfer._streams:
            TorchTransfer._streams[device.index] = torch.cuda.Stream(device)
        side = TorchTransfer._streams[device.index]
        side.wait_stream(torch.cuda.current_stream(device))
        self._host = pinned(snapshot.shape, snapshot.dtype)
        self._values: list[float] | None = None
        with torch.cuda.stream(side):
            self._host.copy_(snapshot, non_blocking=True)
            snapshot.record_stream(side)
            self._event = torch.cuda.Event()
            self._event.record(side)

    def ready(self) -> bool:
        """Whether they have arrived; never waits."""
        return self._values is not None or (not capturing() and bool(self._event.query()))

    def value(self, index: int) -> float:
        """One of them, once they have arrived."""
        if self._values is None:
            self._values = self._host.tolist()
            unpin(self._host)
        return self._values[self._index_of[index]]


class BatchPart(Transfer):
    """One value of a batch."""

    def __init__(self, batch: TorchBatch, index: int) -> None:
        self._batch = batch
        self._index = index

    def ready(self) -> bool:
        return self._batch.ready()

    def value(self) -> Number:
        return self._batch.value(self._index)


class JaxTransfer(Transfer):
    """A JAX scalar: the copy to the host is started at once; ``is_ready`` tells when it can be read."""

    def __init__(self, array: Any) -> None:
        self._array = array.copy() if hasattr(array, "copy") else array  # the caller may donate its buffer
        self._array.copy_to_host_async()

    def ready(self) -> bool:
        return bool(self._array.is_ready())

    def value(self) -> Number:
        return number(self._array)


def transfer(value: Any) -> Transfer | None:
    """Start moving a value to the host if it lies on an accelerator; None if it can be read at once.

    Raises:
        Unrecordable: not a scalar.
    """
    if isinstance(value, Transfer):
        return value
    if getattr(value, "is_cuda", False) is True:
        return TorchTransfer(on_gpu(value))
    if callable(getattr(value, "copy_to_host_async", None)) and callable(getattr(value, "is_ready", None)):
        if getattr(value, "size", 1) != 1:
            raise Unrecordable(f"an array of shape {tuple(value.shape)} is not a scalar: log a reduction of it")
        return None if value.is_ready() else JaxTransfer(value)
    return None


def hold(value: Any) -> Any:
    """As :func:`transfer`, but a CUDA scalar stays where it is, to be moved with others by :func:`batched`.

    Raises:
        Unrecordable: not a scalar.
    """
    return on_gpu(value) if getattr(value, "is_cuda", False) is True else transfer(value)


def on_gpu(value: Any) -> Any:
    """A CUDA scalar that may be copied now.

    Raises:
        Unrecordable: it is none, or has no value yet: work that is captured into a CUDA graph hasn't been done, and a
            copy on another stream would end the capture.
    """
    if value.numel() != 1 or value.is_complex():
        raise Unrecordable(f"a tensor of shape {tuple(value.shape)} is not a real scalar: log a reduction of it")
    if capturing():
        raise Unrecordable("a CUDA graph is being captured: log what the graph leaves behind once it is replayed")
    return whole(value)


def capturing() -> bool:
    """Whether this thread captures a CUDA graph: events must not be asked then, which would end the capture
    (https://docs.nvidia.com/cuda/cuda-driver-api, cuThreadExchangeStreamCaptureMode; torch's allocator spares it, too).
    """
    torch = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_current_stream_capturing())


def batched(values: list[Any]) -> list[Any]:
    """The same values with those on CUDA devices started to move, one copy for each device."""
    moving: dict[Any, list[int]] = {}
    for index, value in enumerate(values):
        if getattr(value, "is_cuda", False) is True:
            moving.setdefault(value.device, []).append(index)
    for indices in moving.values():
        batch = TorchBatch([values[index] for index in indices])
        for row, index in enumerate(indices):
            values[index] = BatchPart(batch, row)
    return values


class PendingRecord:
    """A record some of whose numbers are still on their way.

    Attributes:
        error: what an accelerator that has failed answered; its values never arrive, and hold nothing up.
    """

    __slots__ = ("_built", "build", "error", "numbers")

    def __init__(self, numbers: dict[str, Any], build: Callable[[dict[str, Number]], bytes]) -> None:
        self.numbers = numbers
        self.build = build
        self.error = ""
        self._built: tuple[bytes, int] | None = None

    def ready(self) -> bool:
        with suppress(Exception):
            return all(value.ready() for value in self.numbers.values() if isinstance(value, Transfer))
        return True

    def line(self) -> tuple[bytes, int]:
        """The record as lines, the same each time, and how many values were left out because they hadn't arrived."""
        if self._built is not None:
            return self._built
        arrived: dict[str, Number] = {}
        lost = 0
        for name, value in self.numbers.items():
            if not isinstance(value, Transfer):
                arrived[name] = value
                continue
            try:
                if value.ready():
                    arrived[name] = value.value()
                else:
                    lost += 1
            except Exception as error:
                pass_on(error)
                self.error = f"{type(error).__name__}: {error}"
                lost += 1
        self._built = self.build(arrived), lost
        return self._built


class HeldRecord(PendingRecord):
    """The lines of a record whose files wait for the disk.

    Args:
        names: of the files. backlog: where they wait.
    """

    __slots__ = ("_backlog", "_names", "lines")

    def __init__(self, lines: bytes, names: frozenset[str], backlog: Backlog) -> None:
        super().__init__({}, lambda numbers: b"")
        self.lines = lines
        self._names, self._backlog = names, backlog
        backlog.record_bytes += len(lines)

    def ready(self) -> bool:
        return not self._backlog.waits_for(self._names)

    def line(self) -> tuple[bytes, int]:
        """The lines; none, and one record that is given up, where its files aren't there."""
        if self._built is None:
            missing = self._backlog.waits_for(self._names) or self._backlog.lacks(self._names)
            self._built = (b"", 1) if missing else (self.lines, 0)
            self._backlog.record_bytes -= len(self.lines)
        return self._built


class Queue:
    """Records in order, some of which wait. ``lost`` counts values given up; ``why`` is the last reason.

    Args:
        accept: takes lines, in one step. push: called with them afterwards.
        has: whether it has taken these, asked where an exception from outside came in between.
        most: records that may wait; default MAX_PENDING.
    """

    def __init__(
        self,
        accept: Callable[[bytes], object] = lambda lines: None,
        push: Callable[[bytes], object] = lambda lines: None,
        has: Callable[[bytes], bool] = lambda lines: True,
        most: int = 0,
    ) -> None:
        self._accept = accept
        self._push = push
        self._has = has
        self._most = most
        self._passed: bytes | None = None
        self._entries: deque[bytes | PendingRecord] = deque()
        self.lost = 0
        self.why = "the accelerator hadn't delivered them"

    def __len__(self) -> int:
        return len(self._entries)

    def holds(self, lines: bytes) -> bool:
        """Whether this very object waits."""
        return any(
            entry is lines or (isinstance(entry, HeldRecord) and entry.lines is lines) for entry in self._entries
        )

    def add(self, entry: bytes | PendingRecord) -> None:
        self._entries.append(entry)
        if len(self._entries) > (self._most or MAX_PENDING):
            self._pass_one()
        self.drain()

    def drain(self) -> None:
        """Write what is ready, in order, without waiting."""
        while self._entries:
            head = self._entries[0]
            if isinstance(head, PendingRecord) and not head.ready():
                return
            self._pass_one()

    def finish(self, timeout_s: float) -> None:
        """Write all, waiting up to ``timeout_s`` for what is on its way; the rest is given up."""
        until = monotonic() + timeout_s
        while self._entries:
            self.drain()
            if self._entries:
                if monotonic() > until:
                    self._pass_one()
                else:
                    time.sleep(0.001)

    def _pass_one(self) -> None:
        if not self._entries:  # a signal's handler has passed them
            return
        head = self._entries[0]
        line, lost = head.line() if isinstance(head, PendingRecord) else (head, 0)
        if self._passed is line and not self._has(line):  # interrupted before it was taken
            self._passed = None
        # No signal's handler, which may log as well, can run between these.
        if self._passed is not line and self._entries and self._entries[0] is head:
            self._passed = line
            self._accept(line)
        self._push(line)
        if self._entries and self._entries[0] is head:
            self._entries.popleft()
            self.lost += lost
            if isinstance(head, PendingRecord):
                self.why = head.error or self.why


class Awaited(Protocol):
    """Something that may not be known yet."""

    @property
    def ready(self) -> bool:
        """Asks, never waits."""


class DeferredNumber(Transfer):
    """A number computed from what is still on its way. ``run.log`` takes it as it takes a tensor."""

    def __init__(self, sources: Sequence[Awaited], compute: Callable[[], Number]) -> None:
        self._sources = sources
        self._compute = compute

    def ready(self) -> bool:
        return all(source.ready for source in self._sources)

    def value(self) -> Number:
        return self._compute()


def deferred_number(sources: Sequence[Awaited], compute: Callable[[], Number]) -> Any:
    """The number itself where all is known, else a :class:`DeferredNumber`."""
    later = DeferredNumber(sources, compute)
    return later.value() if later.ready() else later


class Vector:
    """Many numbers in one tensor: one copy brings them all to the host."""

    def __init__(self, tensor: Any) -> None:
        self._moving = TorchTransfer(tensor) if getattr(tensor, "is_cuda", False) else None
        self._values: list[Number] | None = tensor.tolist() if self._moving is None else None

    @property
    def ready(self) -> bool:
        return self._moving is None or self._moving.ready()

    def value(self, index: int) -> Number:
        """One of the numbers, once ``ready``."""
        if self._values is None:
            assert self._moving is not None
            self._values = self._moving.host.tolist()
            unpin(self._moving.host)
        return self._values[index]


def elements(names: Sequence[str], tensor: Any) -> dict[str, Any]:
    """The numbers of a one-dimensional tensor by name; :class:`DeferredNumber` for those on a GPU."""
    vector = Vector(tensor)
    return {name: deferred_number([vector], partial(vector.value, index)) for index, name in enumerate(names)}


class Scalar:
    """A number, or a scalar tensor that may be on its way from a GPU."""

    def __init__(self, value: Any) -> None:
        moving = transfer(value)
        self._moving = moving
        self._value = number(value) if moving is None else None

    @property
    def ready(self) -> bool:
        return self._moving is None or self._moving.ready()

    def value(self) -> Number:
        """The number, once ``ready``."""
        if self._value is None:
            assert self._moving is not None
            self._value = self._moving.value()
        return self._value
