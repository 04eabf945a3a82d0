"""Where torch's wrappers let one see their collectives: communication hooks of DDP and FSDP, ``fully_shard``'s own.

Sources: https://docs.pytorch.org/docs/stable/ddp_comm_hooks.html, FullyShardedDataParallel.register_comm_hook and
https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html (set_custom_reduce_scatter,
set_custom_all_gather: torch 2.8 and later).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trackers.errors import UsageError
from trackers.instruments.torch_needed import torch_for

if TYPE_CHECKING:
    from trackers.instruments.communication import Communication


def watch(home: Communication, model: Any, hook: Callable[..., Any] | None, state: Any) -> None:
    """See :meth:`trackers.instruments.communication.Communication.watch`."""
    torch = torch_for("communication")
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        model.register_comm_hook(state, ddp_hook(home, hook, model.process_group))
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
        from trackers.instruments.communication import unknown_wrapper

        raise unknown_wrapper(model)


def ddp_hook(home: Communication, inner: Callable[..., Any] | None, group: Any) -> Callable[[Any, Any], Any]:
    """A hook for DDP that times what another does with each bucket; default torch's all-reduce."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    from trackers.instruments.communication import GRADIENTS

    run: Callable[..., Any] = inner or default_hooks.allreduce_hook

    def timed(state: Any, bucket: Any) -> Any:
        size = bucket.buffer().nbytes
        collective = home.begin(GRADIENTS, size, home.per_link("all_reduce", group))

        def done(future: Any) -> Any:
            collective.end()
            return future.value()

        return run(group if state is None and inner is None else state, bucket).then(done)

    timed.__annotations__ = {}  # DDP refuses any but its own types, and can't read those that are text
    return timed


def _watch_fsdp(home: Communication, model: Any, hook: Callable[..., Any] | None, state: Any) -> None:
    """FSDP's hooks have done their work, on the current stream, when they return."""
    from torch.distributed.algorithms._comm_hooks import default_hooks

    from trackers.instruments.communication import GRADIENTS

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

    from trackers.instruments.communication import GRADIENTS, PARAMETERS

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
