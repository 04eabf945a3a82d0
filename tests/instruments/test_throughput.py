"""Throughput, floating-point operations, peaks and the remaining time, against arithmetic of their own."""

from __future__ import annotations

import importlib.util
import math
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from tests import ROOT
from tests.fakes.cuda import Cuda
from tests.helpers import Time
from trackers.errors import UsageError
from trackers.instruments import timers
from trackers.instruments.clock import TrainingClock
from trackers.instruments.flops import Transformer
from trackers.instruments.peaks import PARTS, PRECISIONS, SOURCES, given_tflops, part, peak_tflops
from trackers.instruments.throughput import Remaining, Throughput
from trackers.values.device_copy import DeferredNumber


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time(50.0)
    monkeypatch.setattr(timers, "time", clock)
    return clock


def test_rates_are_those_of_the_window(clock: Time) -> None:
    """What went through in the last steps, divided by their time; per device, by the devices; the first step not."""
    training = TrainingClock("cpu")
    throughput = Throughput(training, window=3, devices=4, micro_batch_size=2, global_batch_size=16)
    assert throughput.values() == {}
    clock.now += 100.0  # compiling
    throughput.step(training.step(), 16, 1600)
    assert throughput.values() == {}
    taken = [(0.5, 16), (0.25, 16), (1.0, 8), (2.0, 16), (0.125, 4)]
    for place, (seconds, samples) in enumerate(taken):
        clock.now += seconds
        throughput.step(training.step(), samples, samples * 100)
        window = taken[max(0, place - 2) : place + 1]
        elapsed, count = sum(s for s, _ in window), sum(n for _, n in window)
        assert throughput.values() == {
            "throughput/micro_batch_size": 2,
            "throughput/global_batch_size": 16,
            "throughput/batches_per_sec": pytest.approx(len(window) / elapsed),
            "throughput/device/batches_per_sec": pytest.approx(len(window) / elapsed / 4),
            "throughput/samples_per_sec": pytest.approx(count / elapsed),
            "throughput/device/samples_per_sec": pytest.approx(count / elapsed / 4),
            "throughput/tokens_per_sec": pytest.approx(100 * count / elapsed),
            "throughput/device/tokens_per_sec": pytest.approx(100 * count / elapsed / 4),
        }


def test_pauses_are_kept_out_and_told(clock: Time) -> None:
    """An evaluation and a checkpoint change no rate; what they took, and the first step, is told by name."""
    training = TrainingClock("cpu")
    throughput = Throughput(training)
    clock.now += 30.0
    throughput.step(training.step())
    for _ in range(4):
        clock.now += 0.5
        throughput.step(training.step())
        with training.pause("evaluation"):
            clock.now += 7.0
            with training.pause("inner"):
                clock.now += 1.0
        with training.pause("save-checkpoint"):
            clock.now += 2.0
    assert throughput.values()["throughput/batches_per_sec"] == pytest.approx(2.0)
    apart = {what: sum(span.elapsed_s for span in spans) for what, spans in training.take_apart().items()}
    assert apart == {"first-step": 30.0, "evaluation": 32.0, "save-checkpoint": 8.0}
    assert training.take_apart() == {}


def test_pause_that_fails_lets_the_clock_go_on(clock: Time) -> None:
    """An exception in an evaluation goes on, and training is measured again after it."""
    training = TrainingClock("cpu")
    first = training.step()
    with pytest.raises(OSError, match="disk"), training.pause("evaluation"):
        raise OSError("disk")
    clock.now += 3.0
    assert training.span(first, training.step()).elapsed_s == 3.0


def test_operations_are_those_since_the_last_time(clock: Time) -> None:
    """TFLOP/s = operations of the interval ÷ elapsed ÷ devices ÷ 1e12; utilisation = that ÷ the device's peak."""
    training = TrainingClock("cpu")
    throughput = Throughput(training, window=100, devices=8, flops_per_token=6e9, peak_tflops=500.0)
    throughput.step(training.step(), None, 0)
    for tokens, seconds in ((1_000_000, 4.0), (3_000_000, 5.0)):
        clock.now += seconds
        throughput.step(training.step(), None, tokens)
        found = throughput.values()
        per_device = tokens * 6e9 / seconds / 8 / 1e12
        assert found["throughput/tflops/device"] == pytest.approx(per_device)
        assert found["throughput/tflops"] == pytest.approx(per_device * 8)
        assert found["throughput/device/mfu"] == pytest.approx(per_device / 500.0)
    assert "throughput/tflops" not in throughput.values()


def test_what_is_not_known_is_absent(clock: Time) -> None:
    """Without counts there are no rates of them, without operations no TFLOP/s, without a peak no utilisation."""
    training = TrainingClock("cpu")
    throughput = Throughput(training, flops_per_step=1e12)
    throughput.step(training.step())
    clock.now += 2.0
    throughput.step(training.step())
    assert throughput.values() == {
        "throughput/batches_per_sec": 0.5,
        "throughput/device/batches_per_sec": 0.5,
        "throughput/tflops": 0.5,
        "throughput/tflops/device": 0.5,
    }


def test_steps_without_time_have_no_rate(clock: Time) -> None:
    """A clock too coarse to see a step gives NaN, not a division by zero."""
    training = TrainingClock("cpu")
    throughput = Throughput(training)
    throughput.step(training.step())
    throughput.step(training.step())
    assert math.isnan(throughput.values()["throughput/batches_per_sec"])


def test_gpu_rates_are_the_gpus_and_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU a step's time is what the GPU needed, though the host ran ahead; it is known when the GPU is there."""
    cuda = Cuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    training = TrainingClock()
    throughput = Throughput(training)
    cuda.work(9000.0)
    throughput.step(training.step(), 4)
    for _ in range(10):
        cuda.work(250.0)
        throughput.step(training.step(), 4)
        with training.pause("evaluation"):
            cuda.work(1000.0)
    found = throughput.values()["throughput/samples_per_sec"]
    assert isinstance(found, DeferredNumber)
    assert not found.ready()
    cuda.run()
    assert found.ready()
    assert found.value() == pytest.approx(16.0)
    apart = {what: sum(span.elapsed_s for span in spans) for what, spans in training.take_apart().items()}
    assert apart == {"first-step": pytest.approx(9.0), "evaluation": pytest.approx(10.0)}
    assert cuda.synchronized == 0


def test_remaining_time_is_right_after_a_resume() -> None:
    """Elapsed ÷ fraction × (1 − fraction) since this start; the steps before it don't make training look quick."""
    remaining = Remaining(total_steps=1000, start_step=900, unit="minutes")
    for step in range(901, 911):
        remaining.stepped(60.0 + (step - 901) * 3.0)  # compiling took a minute
    assert remaining.remaining_s(910, 60.0 + 9 * 3.0) == pytest.approx(90 * 3.0)
    found = remaining.values(910, 87.0, 910 * 8, None)
    assert found == {
        "time/remaining_estimate": pytest.approx(4.5),
        "time/total": pytest.approx(1.45),
        "time/batches": 910,
        "time/samples": 7280,
    }


def test_remaining_time_at_the_edges() -> None:
    """Unknown before a step, from the first step alone after one, zero at the end and beyond."""
    remaining = Remaining(total_steps=4)
    assert remaining.remaining_s(0, 1.0) is None
    remaining.stepped(10.0)
    assert remaining.remaining_s(1, 10.0) == 30.0
    assert remaining.remaining_s(4, 13.0) == 0.0
    assert remaining.remaining_s(6, 20.0) == 0.0
    with pytest.raises(UsageError, match="known are seconds, minutes, hours, days"):
        Remaining(10, unit="weeks")


def gpt_example() -> Any:
    path = ROOT / "examples/gpt2/model.py"
    spec = importlib.util.spec_from_file_location("gpt2_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpt2_model"] = module
    spec.loader.exec_module(module)
    return module


def counted(step: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def test_operations_of_gpt_are_those_that_torch_counts() -> None:
    """The formula gives, for the example's model, what torch counts as it runs, forward and backward."""
    module = gpt_example()
    model = module.GPT(module.Shape(vocabulary=96, block=16, layers=3, heads=4, width=32))
    tokens = torch.randint(96, (2, 16))
    sizes = Transformer(layers=3, width=32, heads=4, vocabulary=96, length=16)
    with sdpa_kernel(SDPBackend.MATH):  # torch doesn't count the fused one of a processor
        forward = counted(lambda: model(tokens, tokens))
        step = counted(lambda: model(tokens, tokens).backward())
    assert sizes.forward_per_token() * tokens.numel() == forward
    assert sizes.per_step(tokens.numel()) == step


class Gated(nn.Module):
    """A layer with grouped queries and a gated feed-forward part, or the experts that one token goes through."""

    def __init__(self, width: int, heads: int, kv_heads: int, head_width: int, feeds: list[int], experts: int) -> None:
        super().__init__()
        self.shape = heads, kv_heads, head_width
        self.query = nn.Linear(width, heads * head_width)
        self.key_value = nn.Linear(width, 2 * kv_heads * head_width)
        self.out = nn.Linear(heads * head_width, width)
        self.router = nn.Linear(width, experts) if experts else None
        self.feeds = nn.ModuleList(
            nn.ModuleList([nn.Linear(width, feed), nn.Linear(width, feed), nn.Linear(feed, width)]) for feed in feeds
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads, kv_heads, head_width = self.shape
        count, length, _ = x.shape
        query = self.query(x).view(count, length, heads, head_width).transpose(1, 2)
        key, value = self.key_value(x).view(count, length, 2 * kv_heads, head_width).transpose(1, 2).chunk(2, dim=1)
        key, value = (part.repeat_interleave(heads // kv_heads, dim=1) for part in (key, value))
        seen = (query @ key.transpose(2, 3)).softmax(dim=-1) @ value
        x = x + self.out(seen.transpose(1, 2).reshape(count, length, -1))
        if self.router is not None:
            x = x + self.router(x).sum(dim=-1, keepdim=True)
        for up, gate, down in self.feeds:
            x = x + down(up(x) * nn.functional.silu(gate(x)))
        return x


@pytest.mark.parametrize("experts", [0, 8])
def test_operations_with_grouped_queries_gates_and_experts(experts: int) -> None:
    """So it does for grouped queries, a head width of its own, gated parts, and routed and shared experts."""
    width, heads, kv_heads, head_width, feed, shared, layers, vocabulary, length = 24, 6, 2, 10, 40, 28, 2, 50, 12
    feeds = [feed] * 3 + [shared] if experts else [feed]
    body = [Gated(width, heads, kv_heads, head_width, feeds, experts) for _ in range(layers)]
    model = nn.Sequential(*body, nn.Linear(width, vocabulary))
    x = torch.randn(3, length, width, requires_grad=True)
    sizes = Transformer(
        layers=layers, width=width, heads=heads, vocabulary=vocabulary, length=length, kv_heads=kv_heads,
        head_width=head_width, feed_width=feed, gated=True, experts=experts, active=3 if experts else 0,
        shared_width=shared if experts else 0,
    )  # fmt: skip
    tokens = 3 * length
    assert counted(lambda: model(x)) == sizes.forward_per_token() * tokens
    assert counted(lambda: model(x).sum().backward()) == sizes.per_step(tokens)


def test_operations_of_gpt_are_megatrons_formula() -> None:
    """72 B s L h² (1 + s/6h + V/12hL), of Narayanan et al. 2021, for GPT-3."""
    batch, s, layers, h, vocabulary = 1536, 2048, 96, 12288, 51200
    sizes = Transformer(layers=layers, width=h, heads=96, vocabulary=vocabulary, length=s)
    formula = 72 * batch * s * layers * h**2 * (1 + s / (6 * h) + vocabulary / (12 * h * layers))
    assert sizes.per_step(batch * s) == pytest.approx(formula, rel=1e-12)
    halved = Transformer(layers=layers, width=h, heads=96, vocabulary=vocabulary, length=s, causal=True)
    assert sizes.per_token() - halved.per_token() == pytest.approx(6 * s * h * layers)


def test_layers_of_experts_among_dense_ones() -> None:
    """Where only some layers have experts, each layer counts as what it is."""
    sizes = {"layers": 4, "width": 8, "heads": 2, "vocabulary": 10, "length": 4, "feed_width": 16}
    dense = Transformer(**sizes)  # type: ignore[arg-type]
    mixed = Transformer(**sizes, experts=4, active=2, expert_layers=1)  # type: ignore[arg-type]
    assert mixed.forward_per_token() - dense.forward_per_token() == 2 * 8 * 16 * 2 + 2 * 8 * 4


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layers": 0}, "layers must be 1 or more"),
        ({"experts": 4, "active": 5}, "active must be 1 to 4"),
        ({"experts": 4}, "active must be 1 to 4"),
        ({"experts": 4, "active": 1, "expert_layers": 3}, "expert_layers must be 0 to 2"),
    ],
)
def test_sizes_that_do_not_fit_are_errors(wrong: dict[str, int], message: str) -> None:
    """Sizes that no model has are refused, with what they must be."""
    sizes = {"layers": 2, "width": 8, "heads": 2, "vocabulary": 10, "length": 4}
    with pytest.raises(UsageError, match=message):
        Transformer(**{**sizes, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4),
        ("NVIDIA H100 PCIe", "bf16", 756),
        ("NVIDIA H100 NVL", "fp8", 1671),
        ("NVIDIA H200", "fp16", 989.4),
        ("NVIDIA GH200 480GB", "bf16", 989.4),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA GB200", "fp4", 10000),
        ("NVIDIA A100-SXM4-80GB", "tf32", 156),
        ("NVIDIA A100 80GB PCIe", "bf16", 312),
        ("NVIDIA L40S", "bf16", 362.05),
        ("NVIDIA L4", "bf16", 121),
        ("Tesla V100-SXM2-16GB", "fp16", 125),
        ("Tesla T4", "fp16", 65),
        ("NVIDIA GeForce RTX 4090", "bf16", 165.2),
        ("AMD Instinct MI300X", "bf16", 1307.4),
        ("AMD Instinct MI325X", "fp8", 2614.9),
        ("AMD Instinct MI355X", "bf16", 2516.6),
        ("AMD Instinct MI250X / MI250", "bf16", 191.5),
        ("AMD Radeon PRO W7900", "fp16", 122.6),
    ],
)
def test_peak_is_found_by_the_devices_name(name: str, precision: str, tflops: float) -> None:
    """Names as torch gives them lead to the vendor's dense figure."""
    assert peak_tflops(name, precision) == tflops


@pytest.mark.parametrize(
    "name", ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "NVIDIA A10G", "NVIDIA L40G",
             "NVIDIA GeForce GTX 1080", "NVIDIA Tesla V100", "Intel(R) Data Center GPU Max 1550", ""],
)  # fmt: skip
def test_unknown_part_has_no_peak(name: str) -> None:
    """A part that isn't listed, and a slice of one, has none rather than a near one's."""
    assert part(name) is None
    assert peak_tflops(name, "bf16") is None


def test_table_of_peaks_agrees_with_itself() -> None:
    """Every part has a source; narrower types are never slower, and fp8 is twice bf16 where there is both."""
    for one in PARTS:
        assert one.source in SOURCES
        assert set(one.tflops) <= set(PRECISIONS)
        order = [one.tflops[name] for name in ("fp32", "tf32", "bf16", "fp8", "fp4") if name in one.tflops]
        assert order == sorted(order)
        if "fp8" in one.tflops:
            assert one.tflops["fp8"] == pytest.approx(2 * one.tflops["bf16"], rel=0.02)
    assert {one.source for one in PARTS} == set(SOURCES)
    assert peak_tflops("Tesla T4", "bf16") is None
    with pytest.raises(UsageError, match="precision 'int8'"):
        peak_tflops("Tesla T4", "int8")


def test_peak_can_be_set() -> None:
    """TRACKER_PEAK_TFLOPS is a number; what isn't one is an error that says what to give."""
    assert given_tflops("1000.5") == 1000.5
    assert given_tflops("") is None
    for wrong in ("fast", "-3", "0", "inf", "nan"):
        with pytest.raises(UsageError, match="give the device's peak in TFLOP/s"):
            given_tflops(wrong)
