"""Effect of rounding a tensor to FP8: TransformerEngine's recipes, simulated with torch's own FP8 types.

fp8_current_scaling: one scale for the tensor, the format's largest number over the largest absolute value.
mxfp8: a scale, a power of two, for 32 elements in a row (OCP Microscaling Formats, MX v1.0; E8M0, rounded up).
fp8_block_scaling: one for 128 x 128 elements, a power of two, rounded down.
Source: TransformerEngine, common/recipe/recipe_common.cuh, common/util/ptx.cuh, pytorch/tensor/*_tensor.py.
"""

from __future__ import annotations

from typing import Any

from trackers.errors import UsageError
from trackers.inspection.statistics import FP8_COLUMNS, Cast, MomentSums

TYPES = {"E4M3": "float8_e4m3fn", "E5M2": "float8_e5m2"}
LARGEST = {"E4M3": 448.0, "E5M2": 57344.0}
FLOAT_MAX = 3.4028234663852886e38
BLOCK, TILE = 32, 128
LOWEST, HIGHEST = -127, 127
"""Exponents that E8M0 holds."""
PIECE = 1 << 22
"""Elements that are rounded at a time: what bounds the memory that it takes."""


def check(torch: Any, format: str) -> None:
    """Raise UsageError where this torch has no such type."""
    if not hasattr(torch, TYPES[format]):
        raise UsageError(
            f"LogFp8TensorStats: torch {torch.__version__} has no {TYPES[format]}: install torch 2.1 or later, or "
            "take the feature out"
        )


def rounded(torch: Any, tensor: Any, cast: Cast, amax: Any) -> MomentSums:
    """What a cast does to a tensor: underflows (nonzero elements that become zero), the smallest and the largest
    inverse of a scale, and the sum of squared errors.

    Args:
        tensor: a floating-point one with elements. amax: its largest absolute value, a scalar tensor.
    """
    if cast.recipe == "fp8_current_scaling":
        found = _per_tensor(torch, tensor, cast.format, amax)
    else:
        matrix = tensor.reshape(-1, tensor.shape[-1] if tensor.dim() else 1)
        matrix = matrix.t() if cast.columnwise else matrix
        found = (_blocks if cast.recipe == "mxfp8" else _tiles)(torch, matrix, cast.format)
    names = tuple(cast.column(name) for name in FP8_COLUMNS)
    return MomentSums(tensor.numel(), names, torch.stack([one.to(torch.float64) for one in found]))  # counts, too


def _round(torch: Any, scaled: Any, format: str) -> Any:
    """To the nearest number that the format has, as float32; what is too large becomes its largest."""
    largest = LARGEST[format]
    return scaled.clamp(-largest, largest).to(getattr(torch, TYPES[format])).to(torch.float32)


def _compare(torch: Any, exact: Any, scaled: Any, inverse: Any, format: str) -> tuple[Any, Any]:
    whole = _round(torch, scaled, format)
    lost = torch.count_nonzero(exact) - torch.count_nonzero(whole)
    return lost, (whole.mul_(inverse).sub_(exact)).square_().sum()


def _scale(torch: Any, amax: Any, format: str, *, power_of_two: bool) -> Any:
    amax = amax.to(torch.float32)
    scale = torch.div(torch.full_like(amax, LARGEST[format]), amax)  # a number / a tensor isn't rounded correctly
    scale = scale.clamp(max=FLOAT_MAX)
    if power_of_two:
        scale = torch.ldexp(torch.ones_like(scale), torch.frexp(scale).exponent - 1)
    return torch.where(torch.isfinite(amax) & (amax > 0), scale, torch.ones_like(scale))


def _per_tensor(torch: Any, tensor: Any, format: str, amax: Any) -> tuple[Any, ...]:
    scale = _scale(torch, amax, format, power_of_two=False)
    inverse = torch.reciprocal(scale)
    sums = []
    for one in tensor.reshape(-1).split(PIECE):
        exact = one.to(torch.float32)
        sums.append(_compare(torch, exact, exact * scale, inverse, format))
    return _total(torch, [lost for lost, _ in sums]), inverse, inverse, _total(torch, [error for _, error in sums])


def _blocks(torch: Any, matrix: Any, format: str) -> tuple[Any, ...]:
    """mxfp8 of a matrix, a few rows at a time; rows are filled up with zeros, which change nothing."""
    lost, low, high, errors = [], [], [], []
    width = matrix.shape[1] + -matrix.shape[1] % BLOCK
    for rows in matrix.split(max(1, PIECE // width)):
        blocks = torch.nn.functional.pad(rows.to(torch.float32), (0, width - rows.shape[1])).reshape(-1, BLOCK)
        amax = blocks.abs().amax(dim=1, keepdim=True)
        fraction, exponent = torch.frexp(amax * (1.0 / LARGEST[format]))
        exponent = (exponent - (fraction == 0.5).to(exponent.dtype)).clamp(LOWEST, HIGHEST)
        exponent = torch.where(amax == 0, torch.full_like(exponent, LOWEST), exponent)
        one = torch.ones_like(amax)
        inverse = torch.ldexp(one, exponent)
        under, error = _compare(torch, blocks, blocks * torch.ldexp(one, -exponent), inverse, format)
        lost.append(under)
        errors.append(error)
        # A block of zeros has no scale to speak of: it is no smallest one.
        low.append(torch.where(exponent == LOWEST, torch.full_like(inverse, torch.inf), inverse).amin())
        high.append(inverse.amax())
    smallest = torch.stack(low).amin()
    smallest = torch.where(torch.isinf(smallest), torch.zeros_like(smallest), smallest)
    return _total(torch, lost), smallest, torch.stack(high).amax(), _total(torch, errors)


def _tiles(torch: Any, matrix: Any, format: str) -> tuple[Any, ...]:
    """fp8_block_scaling of a matrix, some rows of tiles at a time."""
    lost, low, high, errors = [], [], [], []
    width = matrix.shape[1] + -matrix.shape[1] % TILE
    for rows in matrix.split(max(TILE, PIECE // width // TILE * TILE)):
        missing = (0, width - rows.shape[1], 0, -rows.shape[0] % TILE)
        tiles = torch.nn.functional.pad(rows.to(torch.float32), missing).reshape(-1, TILE, width // TILE, TILE)
        scale = _scale(torch, tiles.abs().amax(dim=(1, 3), keepdim=True), format, power_of_two=True)
        inverse = torch.reciprocal(scale)
        under, error = _compare(torch, tiles, tiles * scale, inverse, format)
        lost.append(under)
        errors.append(error)
        low.append(inverse.amin())
        high.append(inverse.amax())
    return _total(torch, lost), torch.stack(low).amin(), torch.stack(high).amax(), _total(torch, errors)


def _total(torch: Any, values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else torch.stack(values).sum()
