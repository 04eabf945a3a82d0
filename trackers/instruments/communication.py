"""Communication between ranks, timed as it happens: real collectives, real bytes, never an estimate.

    with run.communication("gradient_sync", bytes=buffer.nbytes):
        dist.all_reduce(buffer)
    run.communications.watch(model)          # DDP, FSDP or fully_shard: each collective of its gradients

Algorithm bandwidth is bytes ÷ duration; bandwidth is what each rank's link carried, which doesn't fall with the number
of ranks: algorithm bandwidth × 2(n−1)/n for an all-reduce, × (n−1)/n for a gather or a scatter
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). With two ranks and an all-reduce they are the
same. Collectives that overlap share their time: durations are those in which at least one was under way.
"""

from __future__ import annotations

import operator
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.instruments.timers import cuda_in_use
from trackers.support.interruption import pass_on
from trackers.support.optional import torch_for
from trackers.support.staying import Stays
from trackers.values.device_copy import capturing, deferred_number

PREFIX = "communication/"
GRADIENTS = "gradient_sync"
PARAMETERS = "parameter_gather"
MB = 1e6
MS = 1000.0
MOST = 100_000
"""Collectives between two logs that are kept; more are counted and left out."""

LINKS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all_gather": lambda ranks: (ranks - 1) / ranks,
    "reduce_scatter": lambda ranks: (ranks - 1) / ranks,
    "all_to_all": lambda ranks: (ranks - 1) / ranks,
    "broadcast": lambda ranks: 1.0,
    "reduce": lambda ranks: 1.0,
    "send": lambda ranks: 1.0,
}
"""By collective: bytes that a link carries for each byte of the operation."""


class _Moment(NamedTuple):
    """A moment on the clock: seconds of the processor, or an event on the GPU."""

    seconds: float
    event: Any = None


class _Collective:
    """One collective. ``ready`` once its end is known."""

    __slots__ = ("_device", "_home", "_last", "bytes", "first", "name", "per_link")

    def __init__(self, home: Communication, name: str, size: int, per_link: float, device: str = "auto") -> None:
        self._home = home
        self._device = device
        self.name = name
        self.bytes = size
        self.per_link = per_link
        self.first = home.now(device)
        self._last: _Moment | None = None

    def end(self) -> None:
        """It is over (on a GPU: when the stream has come so far)."""
        if self._last is None and self.first is not None:
            self._last = self._home.now(self._device)
            if self._last is None:
                self._home.drop(self)

    @property
    def ended(self) -> bool:
        return self._last is not None

    @property
    def ready(self) -> bool:
        if self._last is None or self._last.event is None:
            return self._last is not None
        return not capturing() and bool(self._last.event.query())

    def times(self, origin: _Moment) -> tuple[float, float]:
        """When it began and ended, seconds after a moment."""
        assert self.first is not None
        assert self._last is not None
        if self.first.event is None or self._last.event is None or origin.event is None:
            return self.first.seconds - origin.seconds, self._last.seconds - origin.seconds
        return tuple(origin.event.elapsed_time(moment.event) / MS for moment in (self.first, self._last))


class TimedCollective:
    """Times its body as one collective; an exception inside is not counted."""

    def __init__(self, home: Communication, name: str, size: int, per_link: float, device: str) -> None:
        self._home = home
        self._what = name, size, per_link, device

    def __enter__(self) -> TimedCollective:
        self._collective = self._home.begin(*self._what)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is None:
            self._collective.end()
        else:
            self._home.drop(self._collective)


class Communication(Stays):
    """The collectives of one rank.

    Args:
        ranks: how many take part where nothing else is said. say: called with a line that says what went wrong.
    """

    def __init__(self, ranks: int = 1, say: Callable[[str], None] = lambda line: None) -> None:
        self._ranks = max(1, ranks)
        self._say = say
        self._collectives: deque[_Collective] = deque()

    def _elsewhere(self) -> tuple[Any, ...]:
        return Communication, (self._ranks,)

    def timed(
        self, name: str, bytes: int, kind: str = "all_reduce", ranks: int | None = None, device: str = "auto"
    ) -> TimedCollective:
        """A context manager around one collective, or several; what is asynchronous must be waited for in it.

        Args:
            name: as in ``communication/{name}/…``. bytes: of the operation, on this rank.
            kind: all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce or send. An unknown one is
                said, and counts as a broadcast.
            ranks: how many take part; default all.
            device: "cpu" for a collective of the host's (gloo) in a process that uses CUDA: by the processor's clock.
        """
        return TimedCollective(self, name, int(bytes), self._per_link(kind, ranks), device)

    def watch(self, model: Any, hook: Callable[..., Any] | None = None, state: Any = None) -> None:
        """Time the collectives of a model that is wrapped by DDP, FSDP, or ``fully_shard``.

        Args:
            hook, state: a communication hook of your own, for DDP and FSDP; default what torch does without one.

        Raises:
            UsageError: the model isn't wrapped by any of them. MissingPackage: torch isn't installed.
        """
        _watch(self, model, hook, state)

    def begin(self, name: str, size: int, per_link: float, device: str = "auto") -> _Collective:
        """A collective begins now."""
        collective = _Collective(self, name, size, per_link, device)
        if len(self._collectives) >= MOST:
            self._say(f"communication: more than {MOST} collectives between two logs: the oldest are left out")
            self._collectives.popleft()
        if collective.first is not None:
            self._collectives.append(collective)
        return collective

    def drop(self, collective: _Collective) -> None:
        """It failed: it isn't counted."""
        if collective in self._collectives:
            self._collectives.remove(collective)

    def per_link(self, kind: str, group: Any = None) -> float:
        """Bytes that a link carries for each byte of a collective of a process group."""
        size = getattr(group, "size", None)
        return self._per_link(kind, int(size()) if callable(size) else None)

    def now(self, device: str = "auto") -> _Moment | None:
        """This moment: on a GPU's current stream where CUDA is in use; None where that can't be told."""
        cuda = None if device == "cpu" else cuda_in_use()
        if cuda is None:
            return _Moment(time.perf_counter())
        try:
            if cuda.is_current_stream_capturing():
                self._say("communication: a CUDA graph is captured: collectives in it can't be timed")
                return None
            event = cuda.Event(enable_timing=True)
            event.record()
        except RuntimeError as error:  # a GPU that has failed
            pass_on(error)
            self._say(f"communication: {error}")
            return None
        return _Moment(time.perf_counter(), event)

    def take(self) -> dict[str, Any]:
        """What to log: by name, of the collectives that ended since the last call.

        ``count`` how many; ``bytes`` and ``duration_ms`` of one, on average; ``bandwidth_mb_per_sec`` and
        ``algorithm_bandwidth_mb_per_sec`` of all together, in MB (1e6) per second.
        """
        ended: dict[str, list[_Collective]] = {}
        open_still: deque[_Collective] = deque()
        while self._collectives:
            collective = self._collectives.popleft()
            if collective.ended:
                ended.setdefault(collective.name, []).append(collective)
            else:
                open_still.append(collective)
        self._collectives.extend(open_still)
        values: dict[str, Any] = {}
        for name, group in ended.items():
            values.update(self._values(name, group))
        return values

    def _values(self, name: str, group: list[_Collective]) -> dict[str, Any]:
        origin = group[0].first  # a near one: CUDA's elapsed_time has 24 bits, which are milliseconds after hours
        assert origin is not None
        size = sum(collective.bytes for collective in group)
        carried = sum(collective.bytes * collective.per_link for collective in group)

        def busy_s() -> float:
            return union(collective.times(origin) for collective in group)

        def rate(count: float) -> float:
            seconds = busy_s()
            return count / MB / seconds if seconds > 0 else float("nan")

        prefix = f"{PREFIX}{name}/"
        return {
            f"{prefix}count": len(group),
            f"{prefix}bytes": size / len(group),
            f"{prefix}duration_ms": deferred_number(group, lambda: MS * busy_s() / len(group)),
            f"{prefix}bandwidth_mb_per_sec": deferred_number(group, lambda: rate(carried)),
            f"{prefix}algorithm_bandwidth_mb_per_sec": deferred_number(group, lambda: rate(size)),
        }

    def _per_link(self, kind: str, ranks: int | None) -> float:
        link = LINKS.get(kind)
        if link is None:
            self._say(f"communication: {kind!r} is no known collective ({', '.join(LINKS)}); taken as a broadcast")
            return 1.0
        return link(self._ranks if ranks is None else max(1, ranks))


def union(spans: Iterable[tuple[float, float]]) -> float:
    """How long at least one of the spans lasted."""
    total, until = 0.0, float("-inf")
    for first, last in sorted(spans):
        if last > until:
            total += last - max(first, until)
            until = last
    return total


def unknown_wrapper(model: Any) -> UsageError:
    """The error for a model that has no collectives to watch."""
    return UsageError(
        f"communication: {type(model).__name__} is wrapped neither by DistributedDataParallel nor FSDP nor "
        "fully_shard; time its collectives with run.communication(name, bytes)"
    )


def _watch(home: Communication, model: Any, hook: Callable[..., Any] | None, state: Any) -> None:
    """Communication hooks of DDP and FSDP, ``fully_shard``'s own (torch 2.8 and later).

    Sources: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html, FullyShardedDataParallel.register_comm_hook and
    https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (set_custom_reduce_scatter,
    set_custom_all_gather).
    """
    torch = torch_for("communication")
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        model.register_comm_hook(state, DdpHook(home, hook, model.process_group))
        return
    from torch.distributed import fsdp

    sharded = getattr(fsdp, "FSDPModule", ())
    parts = [module for module in model.modules() if isinstance(module, sharded)] if sharded else []
    if parts:
        for part in parts:
            _watch_sharded(home, part)
    elif isinstance(model, fsdp.FullyShardedDataParallel):
        _watch_fsdp(home, model, hook, state)
    else:
        raise unknown_wrapper(model)


class DdpHook:
    """A hook for DDP that times what another does with each bucket; default torch's all-reduce.

    A copy of the model, or one in another process, has that other hook.
    """

    def __init__(self, home: Communication, inner: Callable[..., Any] | None, group: Any) -> None:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        self._home, self._group, self._is_default = home, group, inner is None
        self._run: Callable[..., Any] = inner or default_hooks.allreduce_hook
        self.__name__ = self.__qualname__ = type(self).__name__  # DDP asks for them

    def __call__(self, state, bucket):  # type: ignore[no-untyped-def]  # DDP can't read types that are text
        size = bucket.buffer().nbytes
        collective = self._home.begin(GRADIENTS, size, self._home.per_link("all_reduce", self._group))

        def done(future: Any) -> Any:
            collective.end()
            return future.value()

        return self._run(self._group if state is None and self._is_default else state, bucket).then(done)

    def __reduce__(self) -> Any:
        return operator.itemgetter(0), ((self._run,),)


def _watch_fsdp(home: Communication, model: Any, hook: Callable[..., Any] | None, state: Any) -> None:
    """FSDP's hooks have done their work, on the current stream, when they return."""
    from torch.distributed.algorithms._comm_hooks import default_hooks

    group = model.process_group

    def timed(state: Any, grad: Any, *output: Any) -> None:
        kind = "reduce_scatter" if output else "all_reduce"
        run = hook or (default_hooks.reduce_scatter_hook if output else default_hooks.allreduce_hook)
        collective = home.begin(GRADIENTS, grad.nbytes, home.per_link(kind, group))
        run(state, grad, *output)
        collective.end()

    model.register_comm_hook(state or default_hooks.DefaultState(group), timed)


def _watch_sharded(home: Communication, module: Any) -> None:
    if not hasattr(module, "set_custom_reduce_scatter"):
        raise UsageError("communication: watching fully_shard needs torch 2.8 or later")
    from torch.distributed.fsdp._fully_shard import _fsdp_collectives as collectives

    class Scatter(collectives.DefaultReduceScatter):  # type: ignore[misc]
        def __call__(self, output_tensor: Any, input_tensor: Any, group: Any, *more: Any, **named: Any) -> Any:
            collective = home.begin(GRADIENTS, input_tensor.nbytes, home.per_link("reduce_scatter", group))
            return _when_done(super().__call__(output_tensor, input_tensor, group, *more, **named), collective)

    class Gather(collectives.DefaultAllGather):  # type: ignore[misc]
        def __call__(self, output_tensor: Any, input_tensor: Any, group: Any, *more: Any, **named: Any) -> Any:
            collective = home.begin(PARAMETERS, output_tensor.nbytes, home.per_link("all_gather", group))
            return _when_done(super().__call__(output_tensor, input_tensor, group, *more, **named), collective)

    module.set_custom_reduce_scatter(Scatter())
    module.set_custom_all_gather(Gather())


def _when_done(work: Any, collective: Any) -> Any:
    """End a collective with its work: at once where the call has waited for it."""
    if work is None:
        collective.end()
    else:
        work.get_future().then(lambda future: collective.end())
    return work
