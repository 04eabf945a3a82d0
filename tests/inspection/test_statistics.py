"""Statistics of tensors against an independent computation in float64; nothing waits for the device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.instruments.test_norms import WAITING, NothingWaits
from trackers.inspection import hooks
from trackers.inspection.hooks import TensorRequest
from trackers.inspection.inspector import combined
from trackers.inspection.statistics import FP8_STATS, TENSOR_STATS, Cast, fp8_statistic, moments

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**60), max_value=2.0**60)
SMALL = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-(2.0**-100), max_value=2.0**-100)
ZERO = st.sampled_from([0.0, -0.0])


class NothingMoves(NothingWaits):
    """As its parent, but a tensor may become another type where it is."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        self.seen.append(name)
        within = name == "_to_copy" and (kwargs or {}).get("device") is None
        assert within or name not in WAITING, f"{name} would wait for the GPU"
        return func(*args, **(kwargs or {}))


def measured(tensor: torch.Tensor, stats: dict[str, Any], piece: int | None = None) -> dict[str, float]:
    """The statistics of one tensor."""
    wanted = TensorRequest.of("layer", "activation", stats)
    parts = moments(torch, tensor, [*wanted.groups, "range"], piece)
    amax = torch.stack([part.row[:2].abs().amax() for part in parts]).amax()
    parts += [hooks.rounded(torch, tensor, cast, amax) for cast in wanted.casts]
    found = combined(torch, [(wanted, part) for part in parts], 1).own
    return {name.removeprefix("layer_activation_"): float(value) for name, value in found.items()}


def exact(x: np.ndarray[Any, Any]) -> dict[str, float]:
    """LogTensorStats in float64, each by its definition."""
    flat = x.astype(np.float64).ravel()
    nonzero = np.abs(flat[flat != 0])
    return {
        "min": float(flat.min()),
        "max": float(flat.max()),
        "mean": math.fsum(flat) / len(flat),
        "std": float(np.std(flat, ddof=1)) if len(flat) > 1 else math.nan,
        "l1_norm": math.fsum(np.abs(flat)),
        "l2_norm": math.sqrt(math.fsum(flat**2)),
        "cur_amax": float(np.abs(flat).max()),
        "dynamic_range": math.log2(nonzero.max()) - math.log2(nonzero.min()) if len(nonzero) else math.inf,
    }


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(FLOATS, SMALL, ZERO), min_size=1, max_size=40), st.sampled_from([None, 0, 1, 7]))
def test_statistics_are_those_of_the_elements(data: list[float], piece: int | None) -> None:
    """All eight, of any numbers, however the tensor is cut into pieces; subnormal numbers and both zeros, too."""
    x = np.array(data, dtype=np.float32)
    found, expected = measured(torch.from_numpy(x), TENSOR_STATS, piece), exact(x)
    scale = max(abs(expected["min"]), abs(expected["max"]))
    for name in TENSOR_STATS:
        if name in ("min", "max", "cur_amax"):
            assert found[name] == expected[name], name
        elif scale < 1e18 and (scale > 1e-15 or name == "dynamic_range"):  # squares beyond float32's range aside
            assert found[name] == pytest.approx(expected[name], rel=1e-5, abs=1e-5 * scale, nan_ok=True), name


@pytest.mark.parametrize("whole", [False, True], ids=["in pieces", "at once"])
@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(torch.float32, 5e-6), (torch.float64, 1e-12), (torch.bfloat16, 5e-6), (torch.half, 5e-6)],
)
def test_large_tensors_keep_their_digits(dtype: torch.dtype, precision: float, whole: bool) -> None:
    """A million and some elements far from zero, not contiguous, in every type: half types are summed in float32."""
    torch.manual_seed(0)
    tensor = (torch.randn(1100, 1024) * 0.3 + 2).to(dtype).t()
    tensor[5, :7] = 0
    found = measured(tensor, TENSOR_STATS, 0 if whole else None)
    for name, value in exact(tensor.double().numpy()).items():
        # torch adds up absolute values one by one on a processor, unlike on a GPU.
        assert found[name] == pytest.approx(value, rel=2e-5 if whole and name == "l1_norm" else precision), name


@pytest.mark.parametrize("elements", [1, 7, 1023, 1024, 1025, 5000, 3 << 20])
def test_moments_need_no_product_of_a_blas(elements: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch may be built with a BLAS that adds up one by one: squares keep their digits, whatever remains of a row."""
    monkeypatch.setattr(torch, "dot", None)
    torch.manual_seed(0)
    tensor = torch.randn(elements) * 0.3 + 2
    found = measured(tensor, {"std": TENSOR_STATS["std"]})["std"]
    assert found == pytest.approx(exact(tensor.numpy())["std"], rel=5e-6, nan_ok=True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_none_stay_visible(bad: float) -> None:
    """A NaN or an infinity among the elements shows in what it spoils, in every piece's company."""
    tensor = torch.ones(3000)
    tensor[2500] = bad
    found = measured(tensor, TENSOR_STATS, 1000)
    for name in ("max", "cur_amax", "l1_norm", "mean", "std", "l2_norm", "dynamic_range"):
        if not (bad == -math.inf and name == "max"):
            assert not math.isfinite(found[name]), name
    assert found["min"] == bad or math.isnan(found["min"]) or bad == math.inf


def table(format: str) -> np.ndarray[Any, Any]:
    """Every number of an FP8 format from zero up, in the order of its bits (OCP 8-bit Floating Point, 2023)."""
    mantissa, bias = (3, 7) if format == "E4M3" else (2, 15)
    found = []
    for bits in range(128):
        exponent, fraction = bits >> mantissa, bits & ((1 << mantissa) - 1)
        if (format == "E4M3" and bits == 127) or (format == "E5M2" and exponent == 31):
            break  # NaN, infinity
        whole = (fraction / (1 << mantissa)) + (1 if exponent else 0)
        found.append(whole * 2.0 ** (max(exponent, 1) - bias))
    return np.array(found)


def nearest(x: np.ndarray[Any, Any], format: str) -> np.ndarray[Any, Any]:
    """The format's nearest numbers, ties to even, beyond its range the largest."""
    numbers = table(format)
    size = np.minimum(np.abs(x), numbers[-1])
    high = np.searchsorted(numbers, size)
    low = np.maximum(high - 1, 0)
    below, above = size - numbers[low], numbers[high] - size
    up = (above < below) | ((above == below) & (high % 2 == 0))
    return np.copysign(np.where(up, numbers[high], numbers[low]), x)


def simulated(x: np.ndarray[Any, Any], cast: Cast) -> dict[str, float]:
    """LogFp8TensorStats of a matrix in float64, block by block."""
    if cast.columnwise:
        x = x.T
    high, wide = {"fp8_current_scaling": x.shape, "mxfp8": (1, 32), "fp8_block_scaling": (128, 128)}[cast.recipe]
    largest, lost, error, inverses = table(cast.format)[-1], 0, 0.0, []
    for top in range(0, x.shape[0], high):
        for left in range(0, x.shape[1], wide):
            block = x[top : top + high, left : left + wide]
            amax = np.float32(np.abs(block).max())
            if cast.recipe == "mxfp8":
                ratio = float(np.float32(amax * np.float32(1 / largest)))
                power = -127 if ratio == 0 else math.frexp(ratio)[1] - (math.frexp(ratio)[0] == 0.5)
                inverse = 2.0 ** min(127, max(-127, power))
            else:
                with np.errstate(divide="ignore", over="ignore"):
                    scale = np.float32(largest) / amax if amax > 0 else np.float32(1)
                scale = min(float(scale), float(np.finfo(np.float32).max))
                if cast.recipe == "fp8_block_scaling":
                    scale = 2.0 ** (math.frexp(scale)[1] - 1)
                inverse = float(np.float32(1) / np.float32(scale))
            multiplier = np.float32(scale if cast.recipe != "mxfp8" else 1 / inverse)
            rounded = nearest((block * multiplier).astype(np.float64), cast.format)
            lost += int(np.count_nonzero(block)) - int(np.count_nonzero(rounded))
            back = rounded.astype(np.float32) * np.float32(inverse)  # as whoever multiplies reads it
            error += float(((back.astype(np.float64) - block) ** 2).sum())
            inverses.append(inverse)
    least = [inverse for inverse in inverses if cast.recipe != "mxfp8" or inverse > 2.0**-127]
    return {
        "underflows%": 100 * lost / x.size,
        "scale_inv_min": min(least, default=0.0),
        "scale_inv_max": max(inverses),
        "mse": error / x.size,
    }


CASTS = [
    Cast(recipe, format, columnwise)
    for recipe in ("fp8_current_scaling", "mxfp8", "fp8_block_scaling")
    for format in ("E4M3", "E5M2")
    for columnwise in (False, True)
    if not (columnwise and recipe == "fp8_current_scaling")
]


def statistics_of(cast: Cast) -> dict[str, Any]:
    names = [f"{cast.recipe}_{stat}{'_columnwise' * cast.columnwise}" for stat in FP8_STATS]
    return {name: fp8_statistic(name, cast.format) for name in names}


def compare(x: np.ndarray[Any, Any], cast: Cast) -> None:
    found = measured(torch.from_numpy(x), statistics_of(cast))
    for stat, value in simulated(x, cast).items():
        name = f"{cast.recipe}_{stat}{'_columnwise' * cast.columnwise}"
        assert found[name] == pytest.approx(value, rel=1e-5, abs=1e-37), (name, cast)


@pytest.mark.slow
@pytest.mark.parametrize("cast", CASTS, ids=lambda cast: cast.column("")[:-1])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_fp8_statistics_are_those_of_a_float64_simulation(cast: Cast, data: st.DataObject) -> None:
    """Underflows, scales and errors of both formats and every recipe, for any numbers, against a table of FP8."""
    wide = data.draw(st.integers(1, 40))
    moderate = st.floats(width=32, min_value=-(2.0**14), max_value=2.0**14, allow_subnormal=False)
    numbers = data.draw(st.lists(st.one_of(moderate, ZERO), min_size=wide, max_size=wide * 3))
    high = len(numbers) // wide
    compare(np.array(numbers[: high * wide], dtype=np.float32).reshape(high, wide), cast)


@pytest.mark.parametrize("cast", CASTS, ids=lambda cast: cast.column("")[:-1])
def test_fp8_statistics_of_real_tensors(cast: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient's kind of numbers, several blocks and tiles that aren't full, taken in several pieces."""
    monkeypatch.setattr(hooks, "PIECE", 1 << 12)
    source = np.random.default_rng(0)
    x = (source.standard_normal((150, 200)) * 2.0 ** source.integers(-24, 4, (150, 200))).astype(np.float32)
    x[:40, :64] = 0
    found = simulated(x, cast)
    assert 0 < found["underflows%"] < 50
    compare(x, cast)


@pytest.mark.parametrize("number", [7981.875, 121.6875])
def test_scale_is_the_rounded_quotient(number: float) -> None:
    """As in TransformerEngine, bit for bit: the reciprocal times the format's largest number is another one."""
    for cast in CASTS:
        compare(np.array([[number]], dtype=np.float32), cast)


def test_prefix_is_left_out_for_the_recipe_in_use() -> None:
    """``mse`` is that of per-tensor current scaling, and costs one cast where both are asked for."""
    names = ("underflows%", "fp8_current_scaling_underflows%", "mse", "mxfp8_mse")
    stats = {name: fp8_statistic(name, "E4M3") for name in names}
    assert len(TensorRequest.of("l", "weight", stats).casts) == 2  # type: ignore[arg-type]
    found = measured(torch.randn(64, 64) ** 9, stats)
    assert found["underflows%"] == found["fp8_current_scaling_underflows%"] > 0
    assert found["mse"] != found["mxfp8_mse"]


@pytest.mark.parametrize("fill", [0.0, 1e-45, math.inf, math.nan])
def test_fp8_scales_of_odd_tensors_are_finite(fill: float) -> None:
    """Where no scale can be made of the largest value, as for zeros or infinities, it is 1, as in TransformerEngine."""
    found = measured(torch.full((4, 4), fill), {"scale_inv_min": fp8_statistic("scale_inv_min", "E4M3")})
    expected = 1.0 if fill != 1e-45 else pytest.approx(1 / float(np.finfo(np.float32).max))
    assert found["scale_inv_min"] == expected


def test_nothing_waits_for_the_device() -> None:
    """Not one operation reads a value or copies between devices, in any statistic of any type."""
    wanted = TensorRequest.of("l", "weight", TENSOR_STATS)
    for dtype in (torch.float32, torch.bfloat16):
        tensor = torch.randn(70, 90).to(dtype)
        for piece in (None, 0, 1000):
            with NothingMoves() as mode:
                parts = moments(torch, tensor, wanted.groups, piece)
                amax = parts[0].row[:2].abs().amax()
                for cast in CASTS:
                    hooks.rounded(torch, tensor, cast, amax)
            assert "aminmax" in mode.seen
