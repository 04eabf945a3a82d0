"""Values across ranks by torch.distributed: one asynchronous all-gather for each call of ``log``.

Every rank's row goes to all of them as one vector of doubles, and the main rank reduces with the arithmetic that the
relay uses. The collective is launched on the group that training uses, in the order of the calls, and is never waited
for: later calls check whether it is done. Every rank has to make every call that holds a reduction.

Vectors have fixed sizes and begin with a hash of the names: otherwise ranks that disagree on names would exchange
vectors of different lengths, which ends the process with gloo and hangs with NCCL.
Source: https://docs.pytorch.org/docs/stable/distributed.html, "Synchronous and asynchronous collective operations".
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from trackers.ranks.contribution import ReductionRow
from trackers.records import Finish, Number, Record
from trackers.reductions import Layout
from trackers.support.interruption import pass_on, suppress
from trackers.values.device_copy import Transfer, capturing, on_gpu, pinned, unpin

LEAST = 1024
"""Numbers in the smallest vector; larger sizes are doubled from it."""
HEAD = 1
UNINITIALISED = (
    "reduce='torch': torch.distributed isn't initialised: call torch.distributed.init_process_group before the "
    "first log, or leave reduce out"
)


class PendingGather(Transfer):
    """An all-gather in progress. ``value`` is every rank's vector, or [] if it failed or isn't wanted.

    Args:
        hosted: it runs on the CPU (gloo): waiting for it before it is done would block this thread.
    """

    _streams: ClassVar[dict[Any, Any]] = {}

    def __init__(
        self, work: Any, gathered: Any, sent: Any, width: int, *, is_main: bool, failed: Callable[[str], None],
        hosted: bool = False,
    ) -> None:  # fmt: skip
        self._work = work
        self._gathered = gathered
        self._sent = sent  # in use until the collective is done
        self._width = width
        self._is_main = is_main
        self._on_gpu = bool(gathered.is_cuda)
        self._failed = failed
        self._event: Any = None
        if not hosted:
            self._copy_to_host()

    def ready(self) -> bool:
        if self._on_gpu and capturing():  # CUDA refuses queries while a graph is captured
            return False
        if self._event is None and self._work.is_completed():
            with suppress(RuntimeError):  # the collective failed: value says so
                self._copy_to_host()
        return bool(self._work.is_completed() if self._event is None else self._event.query())

    def _copy_to_host(self) -> None:
        """Queue a copy to the host after the collective, if the result is wanted and on a GPU."""
        if not self._is_main or not self._on_gpu:
            return
        torch, gathered = sys.modules["torch"], self._gathered
        if gathered.device not in self._streams:
            self._streams[gathered.device] = torch.cuda.Stream(gathered.device)
        stream = self._streams[gathered.device]
        host = pinned(gathered.shape, gathered.dtype)
        with torch.cuda.stream(stream):
            self._work.wait()  # makes this stream wait, neither this process nor training's stream
            host.copy_(gathered, non_blocking=True)
            gathered.record_stream(stream)
            event = torch.cuda.Event()
            event.record(stream)
        self._gathered, self._event = host, event

    def value(self) -> Any:
        try:
            if self._event is None:
                self._work.wait()
            if not self._is_main:  # reading it would wait for the GPU
                return []
            rows = self._gathered.view(-1, self._width).tolist()
            if self._event is not None:
                unpin(self._gathered)
            return rows
        except RuntimeError as error:
            pass_on(error)
            self._failed(f"values across ranks: the collective failed: {error}")
            return []


class Collective:
    """Transport by a collective, see :class:`trackers.ranks.contribution.Transport`.

    Args:
        main: the rank that records. say: called with what couldn't be done.
    """

    def __init__(self, main: int, say: Callable[[str], None]) -> None:
        self._main = main
        self._say = say
        self._layout_hashes: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}

    def move(self, value: Any) -> Any:
        """Keep a value on a GPU: the vector is built there."""
        return on_gpu(value).detach().reshape(()) if getattr(value, "is_cuda", False) is True else None

    def batch(self, parts: list[Any]) -> list[Any]:
        """Return the parts unchanged."""
        return parts

    def quick(self, step: int | None, time: float, values: Mapping[str, Any]) -> bool:
        """Never: each call launches a collective."""
        return False

    def begin(self, step: int | None, time: float, added: ReductionRow) -> dict[Any, Any]:
        """Launch the collective."""
        torch = sys.modules.get("torch")
        distributed = getattr(torch, "distributed", None)
        if torch is None or distributed is None or not distributed.is_available() or not distributed.is_initialized():
            self._say(UNINITIALISED)
            return {}
        if torch.cuda.is_initialized() and capturing():
            self._say("values across ranks: a CUDA graph is being captured: no collective is put into it")
            return {}
        width = added.layout.width + HEAD
        size = max(LEAST, 1 << (width - 1).bit_length())
        try:
            sent = self._own_vector(torch, distributed, added, size)
            gathered = torch.empty(size * distributed.get_world_size(), dtype=sent.dtype, device=sent.device)
            gather = getattr(distributed, "all_gather_single", None) or distributed.all_gather_into_tensor
            work = gather(gathered, sent, async_op=True)
            is_main = distributed.get_rank() == self._main
            hosted = distributed.get_backend() == "gloo"
            return {0: PendingGather(work, gathered, sent, size, is_main=is_main, failed=self._say, hosted=hosted)}
        except RuntimeError as error:
            pass_on(error)
            self._say(f"values across ranks: the collective failed: {error}")
            return {}

    def end(self, step: int | None, time: float, added: ReductionRow, arrived: Mapping[Any, Any]) -> dict[str, Number]:
        """Reduce, on the main rank."""
        vectors = arrived.get(0)
        if not vectors:  # no collective was launched, perhaps because torch is missing
            return {}
        distributed = sys.modules["torch.distributed"]
        if not distributed.is_initialized() or distributed.get_rank() != self._main:
            return {}  # nothing comes: another rank records, or the script has destroyed the group
        own = self._hash(added.layout)
        rows = {
            rank: vector[HEAD : HEAD + added.layout.width] for rank, vector in enumerate(vectors) if vector[0] == own
        }
        others = [rank for rank in range(len(vectors)) if rank not in rows]
        if others:
            listed = ", ".join(map(str, others[:16]))
            self._say(
                f"ranks disagree on names: rank {listed} logs other values across ranks than rank {self._main} beside "
                f"{', '.join(added.layout.names[:3])}: what it has is left out"
            )
        return added.layout.reduce(rows) if rows else {}

    def note(self, record: Record) -> None:
        """The main rank knows its own definitions."""

    def close(self, finish: Finish) -> None:
        """The group is training's to destroy."""

    def _own_vector(self, torch: Any, distributed: Any, added: ReductionRow, size: int) -> Any:
        """This rank's vector; zeros if it can't be built: the other ranks wait for one in any case."""
        try:
            return self._vector(torch, distributed, added, size)
        except Exception as error:
            pass_on(error)
            self._say(f"values across ranks: {type(error).__name__}: {error}: what this rank has is left out")
        return torch.zeros(size, dtype=torch.float64, device=self._device(torch, distributed, added.parts))

    def _device(self, torch: Any, distributed: Any, parts: Sequence[Any]) -> Any:
        """Device of the vector, also of one of zeros: it selects the group's backend, the same on every rank."""
        on_gpu = next((part.device for part in parts if getattr(part, "is_cuda", False) is True), None)
        if on_gpu is None and distributed.get_backend() == "nccl":  # NCCL takes no others
            return torch.device("cuda", torch.cuda.current_device())
        return on_gpu or torch.device("cpu")

    def _vector(self, torch: Any, distributed: Any, added: ReductionRow, size: int) -> Any:
        parts = added.parts
        on_gpu = [index for index, part in enumerate(parts) if getattr(part, "is_cuda", False) is True]
        numbers = (
            [0.0 if index in set(on_gpu) else float(part) for index, part in enumerate(parts)] if on_gpu else parts
        )
        row = [float(self._hash(added.layout)), *numbers]
        device = self._device(torch, distributed, parts)
        if device.type == "cpu":
            vector = torch.zeros(size, dtype=torch.float64)
            vector[: len(row)] = torch.tensor(row, dtype=torch.float64)
            return vector
        vector = torch.zeros(size, dtype=torch.float64, device=device)
        vector[: len(row)].copy_(torch.tensor(row, dtype=torch.float64).pin_memory(), non_blocking=True)
        if on_gpu:
            indices = torch.tensor([index + HEAD for index in on_gpu]).pin_memory().to(device, non_blocking=True)
            vector.index_copy_(0, indices, torch.stack([parts[index].double() for index in on_gpu]))
        return vector

    def _hash(self, layout: Layout) -> int:
        key = (layout.names, layout.kinds)
        if key not in self._layout_hashes:
            digest = hashlib.sha256(repr(key).encode()).digest()
            self._layout_hashes[key] = int.from_bytes(digest[:6], "big")  # a double holds 53 bits
        return self._layout_hashes[key]
