"""Statistics: the numbers that each needs of a tensor, and its computation on the host from these numbers.

Sources: TransformerEngine, transformer_engine/debug/features/log_tensor_stats.py, log_fp8_tensor_stats.py and
utils/stats_computation.py (github.com/NVIDIA/TransformerEngine).

The numbers of a tensor, in as few and as cheap passes as torch allows, on its own device: nothing is waited for.

On a processor a tensor is taken in pieces that stay in its cache, so that memory is read once. The smallest nonzero
absolute value comes from the bits: of two floats without their signs the larger one has the larger bits.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.records import Number
from trackers.reductions import Max, Mean, Min, Norm, Range, Reduction, SampleStd, Sum
from trackers.support.interruption import pass_on
from trackers.values.device_copy import PendingRecord, Queue, Transfer

COLUMNS = {"range": ("low", "high"), "moments": ("mean", "m2"), "l1": ("l1",), "least": ("least",)}
"""Numbers that a pass over a tensor gives, by group: smallest and largest element; mean and the sum of squared
differences from it; sum of absolute values; smallest absolute value that isn't 0 (0: there is none)."""

RECIPES = ("fp8_current_scaling", "mxfp8", "fp8_block_scaling", "fp8_delayed_scaling")
FORMATS = ("HYBRID", "E4M3", "E5M2")
BACKWARD = ("gradient", "wgrad", "dgrad")
"""Tensors for which HYBRID means E5M2."""

FP8_COLUMNS = ("underflows", "scale_inv_min", "scale_inv_max", "square_error")
FP8_STATS = ("underflows%", "scale_inv_min", "scale_inv_max", "mse")
_FP8_NAME = re.compile(
    rf"(?:(?P<recipe>{'|'.join(RECIPES)})_)?(?P<stat>{'|'.join(FP8_STATS)})(?P<columnwise>_columnwise)?"
)

Whole = dict[str, Number]
"""Numbers of a tensor: the columns of all its parts together, and ``count``, its elements."""


class Cast(NamedTuple):
    """A way to round a tensor to eight bits. format: E4M3 or E5M2. columnwise: blocks lie along the first dimension."""

    recipe: str
    format: str
    columnwise: bool = False

    def column(self, name: str) -> str:
        """Where a number of this cast is in a row."""
        return "/".join((self.recipe, self.format, "columnwise" if self.columnwise else "rowwise", name))


class Statistic(NamedTuple):
    """One number of a tensor.

    Attributes:
        value: of a tensor, or of what ranks hold together.
        kind, parts: the reduction that gives the number of all ranks, and what this rank adds to it.
        groups: of :data:`COLUMNS` that it needs. cast: the rounding that it needs.
    """

    value: Callable[[Whole], Number]
    kind: type[Reduction]
    parts: tuple[Callable[[Whole], Number], ...]
    groups: tuple[str, ...] = ()
    cast: Cast | None = None


def _amax(whole: Whole) -> float:
    low, high = whole["low"], whole["high"]
    return math.nan if math.isnan(low) or math.isnan(high) else max(-low, high)


def _log2(value: float) -> float:
    return math.log2(value) if value > 0 else -math.inf if value == 0 else math.nan


def _top(whole: Whole) -> float:
    return math.inf if _amax(whole) == 0 else _log2(_amax(whole))  # TransformerEngine: inf where all is zero


def _bottom(whole: Whole) -> float:
    return _log2(whole["least"] or 1.0)


def _std(whole: Whole) -> float:
    return math.sqrt(whole["m2"] / (whole["count"] - 1)) if whole["count"] > 1 else math.nan


def _l2(whole: Whole) -> float:
    return math.sqrt(whole["m2"] + whole["count"] * whole["mean"] ** 2)


def _of(name: str) -> Callable[[Whole], Number]:
    return lambda whole: whole[name]


TENSOR_STATS = {
    "min": Statistic(_of("low"), Min, (_of("low"),), ("range",)),
    "max": Statistic(_of("high"), Max, (_of("high"),), ("range",)),
    "mean": Statistic(_of("mean"), Mean, (lambda whole: whole["mean"] * whole["count"], _of("count")), ("moments",)),
    "std": Statistic(_std, SampleStd, (_of("mean"), _of("m2"), _of("count")), ("moments",)),
    "l1_norm": Statistic(_of("l1"), Sum, (_of("l1"),), ("l1",)),
    "l2_norm": Statistic(_l2, Norm, (_l2,), ("moments",)),
    "cur_amax": Statistic(_amax, Max, (_amax,), ("range",)),
    "dynamic_range": Statistic(lambda w: _top(w) - _bottom(w), Range, (_bottom, _top), ("range", "least")),
}
"""LogTensorStats."""

BASE_STATS = ("min", "max", "mean", "std", "l1_norm", "l2_norm")
"""Statistics that nvdlfw-inspect's own LogTensorStats supports."""


def fp8_statistic(name: str, format: str) -> Statistic | str:
    """The statistic of LogFp8TensorStats with this name, as in ``mxfp8_underflows%``; or why there is none.

    Without a recipe's name it is that of per-tensor current scaling.

    Args:
        format: E4M3 or E5M2.
    """
    match = _FP8_NAME.fullmatch(name)
    if match is None:
        return f"known are {', '.join(FP8_STATS)}, each also as RECIPE_STATISTIC of {', '.join(RECIPES[:-1])}"
    recipe, columnwise = match["recipe"] or RECIPES[0], match["columnwise"] is not None
    if recipe == "fp8_delayed_scaling":
        return "delayed scaling depends on the history of a training in FP8, which only TransformerEngine knows"
    if columnwise and recipe == RECIPES[0]:
        return "one scale for the whole tensor is the same in both directions: leave out _columnwise"
    cast = Cast(recipe, format, columnwise)
    under, error = _of(cast.column("underflows")), _of(cast.column("square_error"))
    if match["stat"] == "underflows%":
        value: Callable[[Whole], Number] = lambda whole: 100 * under(whole) / whole["count"]  # noqa: E731
        return Statistic(value, Mean, (lambda whole: 100 * under(whole), _of("count")), (), cast)
    if match["stat"] == "mse":
        return Statistic(lambda whole: error(whole) / whole["count"], Mean, (error, _of("count")), (), cast)
    scale = _of(cast.column(match["stat"]))
    return Statistic(scale, Min if match["stat"].endswith("min") else Max, (scale,), (), cast)


def whole(parts: Sequence[Whole]) -> Whole:
    """The numbers of all parts of a tensor, or of several tensors, together.

    Source of the moments: Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances" (1979).
    """
    if len(parts) == 1:
        return parts[0]
    counts = [part["count"] for part in parts]
    total: Whole = {"count": sum(counts)}
    for name in parts[0]:
        values = [part[name] for part in parts]
        if name.endswith("underflows") or name.endswith("square_error") or name == "l1":
            total[name] = _sum(values)
        elif name in ("low", "high") or name.endswith(("scale_inv_min", "scale_inv_max")):
            total[name] = _end(values, min if name in ("low",) or name.endswith("min") else max)
        elif name == "least":
            total[name] = min((value for value in values if value != 0), default=0.0)
    if "mean" in parts[0]:
        mean = _sum([part["mean"] * part["count"] for part in parts]) / total["count"]
        total["mean"] = mean
        total["m2"] = _sum([part["m2"] + part["count"] * (part["mean"] - mean) ** 2 for part in parts])
    return total


def _sum(values: Sequence[Number]) -> float:
    return float(sum(values)) if not all(map(math.isfinite, values)) else math.fsum(values)


def _end(values: Sequence[Number], which: Callable[[Sequence[Number]], Number]) -> Number:
    return math.nan if any(map(math.isnan, values)) else which(values)


PIECE = 1 << 20
"""Elements of a piece on a processor: 4 MiB of float32 and as much to work in; smaller ones cost more calls."""

ROW = 1024
"""Elements whose squares are added up one after the other."""


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
    for part in flat.split(piece):
        wide = part if part.dtype in (torch.float32, torch.float64) else part.float()
        room = torch.empty_like(wide) if room is None else room[: wide.numel()]
        parts.append(MomentSums(wide.numel(), names, torch.stack(list(_in_room(torch, wide, room, chosen)))))
    return parts


def _in_room(torch: Any, tensor: Any, room: Any, groups: Sequence[str]) -> Iterator[Any]:
    """The columns of a piece that fits a cache; room: as large, for what is in between."""
    for group in groups:
        if group == "range":
            yield from torch.aminmax(tensor)
        elif group == "moments":
            mean = tensor.mean()
            torch.sub(tensor, mean, out=room)
            yield from (mean, _squares(torch, room))
        elif group == "l1":
            yield torch.abs(tensor, out=room).sum()
        else:
            yield _least(torch, tensor, room)


def _squares(torch: Any, tensor: Any) -> Any:
    """The sum of squares, row by row: plain BLAS libraries add up a dot product one by one, and lose digits."""
    rows = tensor.numel() // ROW * ROW
    if not rows:
        return torch.linalg.vector_norm(tensor).square()
    whole = torch.linalg.vector_norm(tensor[:rows].view(-1, ROW), dim=1).square().sum()
    return whole if rows == tensor.numel() else whole + torch.linalg.vector_norm(tensor[rows:]).square()


def _at_once(torch: Any, tensor: Any, groups: Sequence[str]) -> Iterator[Any]:
    """The columns of a whole tensor, where each call is a kernel that is bound by the memory's speed."""
    for group in groups:
        if group == "range":
            yield from torch.aminmax(tensor)
        elif group == "moments":
            variance, mean = torch.var_mean(tensor, correction=0)
            yield from (mean, variance * tensor.numel())
        elif group == "l1":
            yield torch.linalg.vector_norm(tensor, 1)
        else:
            yield _least(torch, tensor, None)


def _least(torch: Any, tensor: Any, room: Any) -> Any:
    """The smallest nonzero absolute value; 0 where all are zero.

    As integers: lowest - 2 * bits drops the sign and wraps, so that zero becomes the smallest number, and the
    smallest nonzero value the largest.
    """
    whole = torch.int32 if tensor.dtype == torch.float32 else torch.int64
    lowest = torch.full((), torch.iinfo(whole).min, dtype=whole, device=tensor.device)
    out = {} if room is None else {"out": room.view(whole)}
    largest = torch.sub(lowest, tensor.view(whole), alpha=2, **out).amax()
    doubled = torch.sub(lowest, largest)
    bits = torch.bitwise_and(torch.bitwise_right_shift(doubled, 1), torch.iinfo(whole).max)
    return bits.view(tensor.dtype)


FOLDER = "nvdlfw_inspect_statistics_logs"
"""Source: nvdlfw_inspect/logging.py, as of version 0.2.2."""
DRAIN_S = 10.0


class TextLog:
    """One rank's file. What an earlier start has written stays.

    Args:
        directory: where ``nvdlfw_inspect_statistics_logs`` is. rank: of all processes.
        say: called, once, when the file can't be written any more.

    Raises:
        UsageError: the file can't be made.
    """

    def __init__(self, directory: str | os.PathLike[str], rank: int, say: Callable[[str], None]) -> None:
        self.path = Path(directory).expanduser() / FOLDER / f"nvdlfw_inspect_globalrank-{rank}.log"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._fd: int | None = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        except OSError as error:
            pass_on(error)
            raise UsageError(
                f"tensor inspection: log_dir {os.fspath(directory)!r} can't be written: {error.strerror}: give another"
            ) from None
        self._say = say
        self._queue = Queue(self._write)

    def log(self, values: Mapping[str, Any], iteration: int) -> None:
        """Write a line for each value; those that come from a GPU when they are there, in order."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now)) + f",{int(now * 1000) % 1000:03d}"

        def build(arrived: Mapping[str, Any]) -> bytes:
            return "".join(line(stamp, name, iteration, value) for name, value in arrived.items()).encode()

        numbers = dict(values)
        if len(self._queue) or any(isinstance(value, Transfer) for value in numbers.values()):
            self._queue.add(PendingRecord(numbers, build))
        else:
            self._write(build(numbers))

    def drain(self) -> None:
        """Write what has arrived meanwhile."""
        if len(self._queue):
            self._queue.drain()

    def close(self) -> None:
        """Write the rest, waiting some seconds for what is on its way."""
        self._queue.finish(DRAIN_S)
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, lines: bytes) -> None:
        if self._fd is None:
            return
        try:
            os.write(self._fd, lines)
        except OSError as error:
            pass_on(error)
            os.close(self._fd)
            self._fd = None
            self._say(f"tensor inspection: {self.path} can't be written ({error.strerror}): the trackers go on")


def line(stamp: str, name: str, iteration: int, value: float) -> str:
    """A line of the log."""
    return f"{stamp} - INFO - {name} \t\t\t\t iteration={iteration:06d} \t\t\t\t value={value:.4f}\n"
