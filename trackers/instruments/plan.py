"""What a training loop is told before its first step: ``run.loop``, Megatron's log and the loop itself share it."""

from __future__ import annotations

import dataclasses
from typing import Any

from trackers.instruments.options import check_numbers

NUMBERS = (
    "total_steps", "start_step", "samples_per_step", "tokens_per_step", "consumed_samples", "consumed_tokens",
    "consumed_flops", "micro_batch_size", "flops_per_token", "flops_per_step",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class LoopPlan:
    """A training loop, as its measurements need to know it.

    Attributes:
        total_steps: where training ends; without it no remaining time is known.
        start_step: steps that were done before this start.
        samples_per_step, tokens_per_step: of all ranks together; ``loop.step`` may say otherwise for one step.
        consumed_samples, consumed_tokens, consumed_flops: gone through before this start; default start_step times so
            many, which is wrong where the world size changed meanwhile.
        micro_batch_size: samples that go through a rank at once. ranks: how many train together.
        together: times and memory are logged as values of all ranks; else they are this rank's own.
        flops_per_token, flops_per_step: see :mod:`trackers.instruments.peaks`. precision: of the matrix products:
            bf16, fp16, fp8, tf32, fp32, fp4; default as :mod:`trackers.instruments.peaks` finds it.
        model: a module, or several. optimizer: one, or several: gradients are measured just before it steps.
        group: see :class:`trackers.instruments.norms.Norms`.
        device: "cuda", "cpu" or "auto", as for timers.
    """

    total_steps: int | None = None
    start_step: int | None = None
    samples_per_step: int | None = None
    tokens_per_step: int | None = None
    consumed_samples: int | None = None
    consumed_tokens: int | None = None
    consumed_flops: float | None = None
    micro_batch_size: int | None = None
    ranks: int = 1
    together: bool = True
    flops_per_token: float | None = None
    flops_per_step: float | None = None
    precision: str | None = None
    model: Any = None
    optimizer: Any = None
    group: Any = None
    device: str = "auto"

    def check(self) -> None:
        """Raise UsageError for a number that makes no sense, or for an unknown precision."""
        check_numbers(self.precision, **{name: getattr(self, name) for name in NUMBERS})
