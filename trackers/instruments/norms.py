"""Norms of parameters and gradients, and zeros in gradients: few kernels, no synchronisation, right when sharded.

All norms are l2, taken by ``torch._foreach_norm`` (one kernel for many tensors) and added up in float32 or better,
whatever the tensors' type. What ranks hold of a sharded tensor (DTensor: FSDP2, tensor parallel) is summed over the
mesh dimensions that shard it by one ``all_reduce`` for all values of a mesh dimension: every rank must ask at the
same steps. Replicated tensors (DDP) need no other rank.

Sharded models measure the same columns on every rank, whichever gradients are there, and a rank that fails takes part
with NaN, raises afterwards, and takes part again the next time: no rank is left alone in a collective.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.support.interruption import pass_on
from trackers.support.optional import torch_for
from trackers.values.device_copy import elements

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
            parallel group, FSDP1's group). Where its ranks have other names than each other (a pipeline's stages),
            each parameter's own norm is this rank's.

    Attributes:
        spread: whether the ranks need each other: then all of them ask, at the same steps.
        joined: whether this rank took part in all that the others wait for, though what it asked for may have raised.

    Raises:
        MissingPackage: torch isn't installed. UsageError: not a module.
    """

    def __init__(self, model: Any, *, per_layer: bool = False, zeros: bool = False, group: Any = None) -> None:
        self._torch = torch_for("norms")
        chunks = list(model) if isinstance(model, (list, tuple)) else [model]
        self._named = list(_unique(chunks))
        self._per_layer = per_layer
        self._zeros = zeros
        self._group = group
        self._alike = group is not None and per_layer and self._same_names()
        self._tables: dict[str, Any] = {}
        self._indices: dict[tuple[int, ...], Any] = {}
        self.joined = False
        self.spread = group is not None or any(_groups(named.parameter, None) for named in self._named)

    def parameters(self) -> dict[str, Any]:
        """``params-norm``, and each parameter's."""
        return self._values(PARAMETERS, self._named, [named.parameter for named in self._named], zeros=False)

    def gradients(self, scale: Any = None) -> dict[str, Any]:
        """``grad-norm``, each gradient's, and ``num-zeros``; nothing where there is no gradient (sharded: NaN).

        Gradients are those of the moment: before the optimizer's step, after clipping if that came before.

        Args:
            scale: what a gradient scaler has multiplied them by, and the optimizer will divide them by.
        """
        named = [one for one in self._named
                 if one.parameter.grad is not None or (self.spread and one.parameter.requires_grad)]  # fmt: skip
        return self._values(GRADIENTS, named, [entry.parameter.grad for entry in named], self._zeros, scale)

    def _values(
        self, what: str, named: Sequence[_Named], tensors: Sequence[Any], zeros: bool, scale: Any = None
    ) -> dict[str, Any]:
        torch = self._torch
        with torch.no_grad():
            if self.spread:
                norms, total, counts = self._across(what, named, tensors, zeros)
            elif not tensors:
                return {}
            else:
                parts = [_dense(tensor) for tensor in tensors]
                norms = torch.stack(self._norms(parts))
                total, counts = torch.linalg.vector_norm(norms), self._count_zeros(parts).sum() if zeros else None
            if scale is not None:  # a GradScaler's: its gradients are of the scaled loss
                norms, total = norms / scale, total / scale
            values: dict[str, Any] = {what: total}
            if counts is not None:
                values[ZEROS] = counts
            if self._per_layer:
                prefix = LAYERS[what]
                values[f"{prefix}/global"] = total
                values.update(elements([f"{prefix}/{entry.name}" for entry in named], norms))
            return values

    def _norms(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Each tensor's norm, all of one type and on one device."""
        torch = self._torch
        indices: dict[tuple[Any, Any], list[int]] = {}
        for index, part in enumerate(parts):
            indices.setdefault((part.device, part.dtype), []).append(index)
        if len(indices) == 1:
            return self._foreach(parts)  # type: ignore[no-any-return]
        norms: list[Any] = [None] * len(parts)
        device = parts[0].device
        for group in indices.values():
            for index, norm in zip(group, self._foreach([parts[index] for index in group]), strict=True):
                norms[index] = norm.to(device, torch.float32, non_blocking=True)
        return norms

    def _foreach(self, parts: Sequence[Any]) -> Any:
        torch = self._torch
        if parts[0].dtype in (torch.bfloat16, torch.float16):  # their own sums would have three digits
            return torch._foreach_norm(parts, 2, dtype=torch.float32)
        return torch._foreach_norm(parts, 2)

    def _count_zeros(self, parts: Sequence[Any]) -> Any:
        torch = self._torch
        counts = [part.numel() - torch.count_nonzero(part) for part in parts]
        return torch.stack([count.to(parts[0].device, non_blocking=True) for count in counts])

    def _across(self, what: str, named: Sequence[_Named], tensors: Sequence[Any], zeros: bool) -> tuple[Any, Any, Any]:
        """Norms, the norm of all, and zeros or None, of what ranks hold together; NaN where one failed or none has any.

        The table: squares, zeros and how many ranks have the tensor; float64 holds squares and counts without loss.
        """
        torch = self._torch
        table = self._tables.get(what)
        if table is None or table.shape[1] != len(tensors):  # kept: a rank without memory can still say that it failed
            table = torch.empty((3, len(tensors)), dtype=torch.float64, device=self._device())
            self._tables[what] = table
        failed: Exception | None = None
        self.joined = False
        try:
            self._fill(table, tensors, zeros)
        except Exception as error:
            pass_on(error)
            failed = error
            table.fill_(math.nan)
        groups = [
            _groups(entry.parameter if tensor is None else tensor, self._group)
            for entry, tensor in zip(named, tensors, strict=True)
        ]
        plain = tuple(index for index, own in enumerate(groups) if own == (self._group,)) if not self._alike else ()
        for group in dict.fromkeys(group for own in groups for group in own):
            indices = tuple(index for index, own in enumerate(groups) if group in own and index not in plain)
            if indices:
                part = self._columns(table, indices)
                torch.distributed.all_reduce(part, group=group)
                if part is not table:
                    table.index_copy_(1, self._index(indices, table.device), part)
        sums = table.sum(dim=1)
        if self._group is not None and not self._alike:  # ranks may hold other tensors, and another number of them
            own = self._columns(table, plain).sum(dim=1)
            torch.distributed.all_reduce(own, group=self._group)
            rest = tuple(index for index in range(len(tensors)) if index not in plain)
            sums = own + self._columns(table, rest).sum(dim=1) if rest else own
        self.joined = True
        if failed is not None:  # only now: the other ranks would wait in a collective
            raise failed
        nan = table.new_full((), math.nan)
        norms = torch.where(table[2] > 0, table[0].sqrt(), nan)
        return norms, torch.where(sums[2] > 0, sums[0].sqrt(), nan), sums[1] if zeros else None

    def _fill(self, table: Any, tensors: Sequence[Any], zeros: bool) -> None:
        """What this rank holds; a tensor that it lacks counts nothing."""
        torch = self._torch
        here = [index for index, tensor in enumerate(tensors) if tensor is not None]
        parts, failed = [], None
        for index in here:
            try:
                parts.append(_dense(tensors[index]))
            except Exception as error:  # the next one may need the other ranks
                pass_on(error)
                failed = error
        if failed is not None:
            raise failed
        table.zero_()
        if not here:
            return
        whole = len(here) == len(tensors)
        rows = [torch.stack(self._norms(parts)).double() ** 2]
        rows += [self._count_zeros(parts)] if zeros else []
        for row, values in enumerate(rows):
            if values.device != table.device:
                values = values.to(table.device, non_blocking=True)
            if whole:
                table[row].copy_(values)
            else:
                table[row].index_copy_(0, self._index(tuple(here), table.device), values.double())
        if whole:
            table[2].fill_(1.0)
        else:
            table[2].index_fill_(0, self._index(tuple(here), table.device), 1.0)

    def _device(self) -> Any:
        """Where this rank's parameters are; a rank without any goes by its group."""
        if self._named:
            return _local(self._named[0].parameter).device
        cuda = self._torch.cuda
        nccl = "nccl" in self._torch.distributed.get_backend_config(self._group) and cuda.is_available()
        return self._torch.device("cuda", cuda.current_device()) if nccl else self._torch.device("cpu")

    def _columns(self, table: Any, indices: tuple[int, ...]) -> Any:
        return table if len(indices) == table.shape[1] else table.index_select(1, self._index(indices, table.device))

    def _index(self, indices: tuple[int, ...], device: Any) -> Any:
        """Indices as a tensor on the device, without waiting for it, once."""
        tensor = self._indices.get(indices)
        if tensor is None:
            tensor = self._torch.tensor(indices, dtype=self._torch.int64)
            if device.type == "cuda":
                tensor = tensor.pin_memory().to(device, non_blocking=True)
            self._indices[indices] = tensor
        return tensor

    def _same_names(self) -> bool:
        """Whether all ranks of the group hold parts of the same tensors. Asked once, when this is made."""
        distributed = self._torch.distributed
        own = [named.name for named in self._named]
        names: list[Any] = [None] * distributed.get_world_size(self._group)
        distributed.all_gather_object(names, own, group=self._group)
        return all(other == own for other in names)


def _unique(chunks: Sequence[Any]) -> Iterable[_Named]:
    seen: set[int] = set()
    for number, chunk in enumerate(chunks):
        prefix = f"{number}." if len(chunks) > 1 else ""
        if not hasattr(chunk, "named_parameters"):
            raise UsageError(f"norms: chunk {number} of the model is {type(chunk).__name__}: give a torch.nn.Module")
        for name, parameter in chunk.named_parameters():
            if id(parameter) not in seen and not getattr(parameter, "shared", False):
                seen.add(id(parameter))
                yield _Named(prefix + name, parameter)


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "placements") else tensor


def _dense(tensor: Any) -> Any:
    """What this rank holds of a tensor, as a plain one."""
    if hasattr(tensor, "placements") and any(placement.is_partial() for placement in tensor.placements):
        tensor = tensor.full_tensor()
    tensor = _local(tensor)
    if tensor.is_sparse:
        tensor = tensor.coalesce().values()
    return tensor.detach()


def _groups(tensor: Any, group: Any) -> tuple[Any, ...]:
    """The process groups whose ranks hold different parts of a tensor."""
    placements = getattr(tensor, "placements", None)
    if placements is None:
        return () if group is None else (group,)
    if any(placement.is_partial() for placement in placements):
        return ()
    mesh = tensor.device_mesh
    return tuple(
        mesh.get_group(dimension) for dimension, placement in enumerate(placements) if not placement.is_replicate()
    )
