"""The numbers of a tensor, in as few and as cheap passes as torch allows, on its own device: nothing is waited for.

On a processor a tensor is taken in pieces that stay in its cache, so that memory is read once. The smallest nonzero
absolute value comes from the bits: of two floats without their signs the larger one has the larger bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from trackers.inspection.statistics import COLUMNS

PIECE = 1 << 20
"""Elements of a piece on a processor: 4 MiB of float32 and as much to work in; smaller ones cost more calls."""


class MomentSums(NamedTuple):
    """Numbers of a tensor, or of a piece of it. row: a tensor of shape (len(names),). elements: how many."""

    elements: int
    names: tuple[str, ...]
    row: Any


def moments(torch: Any, tensor: Any, groups: Sequence[str], piece: int | None = None) -> list[MomentSums]:
    """One part for each piece of the tensor.

    Args:
        tensor: a floating-point one with elements; half types are computed in float32.
        groups: of ``statistics.COLUMNS``. piece: elements of one; 0: all at once, as suits a GPU; default
            PIECE on a processor, else 0.
    """
    chosen = [group for group in COLUMNS if group in groups]
    names = tuple(name for group in chosen for name in COLUMNS[group])
    flat = tensor.reshape(-1)
    if piece is None:
        piece = PIECE if tensor.device.type == "cpu" else 0
    if not piece:
        wide = flat if flat.dtype in (torch.float32, torch.float64) else flat.float()
        return [MomentSums(wide.numel(), names, torch.stack(list(_at_once(torch, wide, chosen))))]
    room = None
    parts = []
    for one in flat.split(piece):
        wide = one if one.dtype in (torch.float32, torch.float64) else one.float()
        room = torch.empty_like(wide) if room is None else room[: wide.numel()]
        parts.append(MomentSums(wide.numel(), names, torch.stack(list(_in_room(torch, wide, room, chosen)))))
    return parts


def _in_room(torch: Any, one: Any, room: Any, groups: Sequence[str]) -> Iterator[Any]:
    """The columns of a piece that fits a cache; room: as large, for what is in between."""
    for group in groups:
        if group == "range":
            yield from torch.aminmax(one)
        elif group == "moments":
            mean = one.mean()
            torch.sub(one, mean, out=room)
            yield from (mean, torch.dot(room, room))
        elif group == "l1":
            yield torch.abs(one, out=room).sum()
        else:
            yield _least(torch, one, room)


def _at_once(torch: Any, one: Any, groups: Sequence[str]) -> Iterator[Any]:
    """The columns of a whole tensor, where each call is a kernel that is bound by the memory's speed."""
    for group in groups:
        if group == "range":
            yield from torch.aminmax(one)
        elif group == "moments":
            variance, mean = torch.var_mean(one, correction=0)
            yield from (mean, variance * one.numel())
        elif group == "l1":
            yield torch.linalg.vector_norm(one, 1)
        else:
            yield _least(torch, one, None)


def _least(torch: Any, one: Any, room: Any) -> Any:
    """The smallest nonzero absolute value; 0 where all are zero.

    As integers: lowest - 2 * bits drops the sign and wraps, so that zero becomes the smallest number, and the
    smallest nonzero value the largest.
    """
    whole = torch.int32 if one.dtype == torch.float32 else torch.int64
    lowest = torch.full((), torch.iinfo(whole).min, dtype=whole, device=one.device)
    out = {} if room is None else {"out": room.view(whole)}
    largest = torch.sub(lowest, one.view(whole), alpha=2, **out).amax()
    doubled = torch.sub(lowest, largest)
    bits = torch.bitwise_and(torch.bitwise_right_shift(doubled, 1), torch.iinfo(whole).max)
    return bits.view(one.dtype)
