"""Norms of parameters and gradients, and zeros in gradients: few kernels, no synchronisation, right when sharded.

All norms are l2, taken by ``torch._foreach_norm`` (one kernel for many tensors) and added up in float32 or better,
whatever the tensors' type. What ranks hold of a sharded tensor (DTensor: FSDP2, tensor parallel) is summed over the
mesh dimensions that shard it by one ``all_reduce`` for all values of a mesh dimension: every rank must ask at the
same steps. Replicated tensors (DDP) need no other rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from trackers.instruments.later import elements
from trackers.instruments.torch_needed import torch_for

PARAMETERS, GRADIENTS, ZEROS = "params-norm", "grad-norm", "num-zeros"
LAYERS = {PARAMETERS: "l2_norm/param", GRADIENTS: "l2_norm/grad"}


class _Named(NamedTuple):
    name: str
    parameter: Any


class Norms:
    """Measures one model.

    Args:
        model: a module, or several (a pipeline stage's chunks); parameters that are shared count once, and so do
            those that Megatron marks ``shared``.
        per_layer: also each parameter's norm, as ``l2_norm/grad/{name}`` and ``l2_norm/param/{name}``, and the
            ``global`` one beside them.
        zeros: count the zeros in gradients, too.
        group: a process group whose ranks hold different parts of the model as plain tensors (Megatron's model
            parallel group, FSDP1's group).

    Raises:
        MissingPackage: torch isn't installed.
    """

    def __init__(self, model: Any, *, per_layer: bool = False, zeros: bool = False, group: Any = None) -> None:
        self._torch = torch_for("norms")
        chunks = list(model) if isinstance(model, (list, tuple)) else [model]
        self._named = list(_unique(chunks))
        self._per_layer = per_layer
        self._zeros = zeros
        self._group = group

    def parameters(self) -> dict[str, Any]:
        """``params-norm``, and each parameter's."""
        return self._values(PARAMETERS, self._named, [named.parameter for named in self._named], zeros=False)

    def gradients(self) -> dict[str, Any]:
        """``grad-norm``, each gradient's, and ``num-zeros``; nothing where there is no gradient.

        Gradients are those of the moment: before the optimizer's step, after clipping if that came before.
        """
        named = [named for named in self._named if named.parameter.grad is not None]
        return self._values(GRADIENTS, named, [one.parameter.grad for one in named], zeros=self._zeros)

    def _values(self, what: str, named: Sequence[_Named], tensors: Sequence[Any], zeros: bool) -> dict[str, Any]:
        if not tensors:
            return {}
        torch = self._torch
        with torch.no_grad():
            parts = [_dense(tensor) for tensor in tensors]
            shards = [_shards(tensor, self._group) for tensor in tensors]
            norms = self._norms(parts)
            counts = self._count_zeros(parts) if zeros else None
            if any(shards):
                norms, counts = self._across(norms, counts, shards)
            total = torch.linalg.vector_norm(norms)
            found: dict[str, Any] = {what: total}
            if counts is not None:
                found[ZEROS] = counts.sum()
            if self._per_layer:
                prefix = LAYERS[what]
                found[f"{prefix}/global"] = total
                found.update(elements([f"{prefix}/{one.name}" for one in named], norms))
            return found

    def _norms(self, parts: Sequence[Any]) -> Any:
        """Each tensor's norm, as one tensor of shape (n,)."""
        torch = self._torch
        places: dict[tuple[Any, Any], list[int]] = {}
        for place, part in enumerate(parts):
            places.setdefault((part.device, part.dtype), []).append(place)
        if len(places) == 1:
            return torch.stack(self._foreach(parts))
        found: list[Any] = [None] * len(parts)
        device = parts[0].device
        for group in places.values():
            for place, norm in zip(group, self._foreach([parts[place] for place in group]), strict=True):
                found[place] = norm.to(device, torch.float32, non_blocking=True)
        return torch.stack(found)

    def _foreach(self, parts: Sequence[Any]) -> Any:
        torch = self._torch
        if parts[0].dtype in (torch.bfloat16, torch.float16):  # their own sums would have three digits
            return torch._foreach_norm(parts, 2, dtype=torch.float32)
        return torch._foreach_norm(parts, 2)

    def _count_zeros(self, parts: Sequence[Any]) -> Any:
        torch = self._torch
        counts = [part.numel() - torch.count_nonzero(part) for part in parts]
        return torch.stack([count.to(parts[0].device, non_blocking=True) for count in counts])

    def _across(self, norms: Any, counts: Any, shards: Sequence[tuple[Any, ...]]) -> tuple[Any, Any]:
        """Add up what the ranks of each process group hold. Float64 holds squares and counts without loss."""
        torch = self._torch
        rows = [norms.double() ** 2] if counts is None else [norms.double() ** 2, counts.double()]
        table = torch.stack(rows)
        for group in dict.fromkeys(group for groups in shards for group in groups):
            places = [place for place, groups in enumerate(shards) if group in groups]
            part = table[:, places].contiguous()
            torch.distributed.all_reduce(part, group=group)
            table[:, places] = part
        return table[0].sqrt(), None if counts is None else table[1].to(torch.int64)


def _unique(chunks: Sequence[Any]) -> Iterable[_Named]:
    seen: set[int] = set()
    for number, chunk in enumerate(chunks):
        prefix = f"{number}." if len(chunks) > 1 else ""
        for name, parameter in chunk.named_parameters():
            if id(parameter) not in seen and not getattr(parameter, "shared", False):
                seen.add(id(parameter))
                yield _Named(prefix + name, parameter)


def _dense(tensor: Any) -> Any:
    """What this rank holds of a tensor, as a plain one."""
    if hasattr(tensor, "placements"):
        tensor = tensor.full_tensor() if any(one.is_partial() for one in tensor.placements) else tensor.to_local()
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    return tensor.detach()


def _shards(tensor: Any, group: Any) -> tuple[Any, ...]:
    """The process groups whose ranks hold different parts of a tensor."""
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return () if group is None else (group,)
    if any(one.is_partial() for one in placements):
        return ()
    mesh = tensor.device_mesh
    return tuple(mesh.get_group(place) for place, one in enumerate(placements) if not one.is_replicate())
