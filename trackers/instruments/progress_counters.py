"""What training has gone through: samples, tokens and floating-point operations, those before this start included."""

from __future__ import annotations

from trackers.metrics import checkpoint_keys
from trackers.records import Number

BATCH, SAMPLES, TOKENS = "batch-size", "consumed-samples", "consumed-tokens"


class Consumed:
    """Counts, of all ranks together. What isn't said for a step isn't known from then on.

    Args:
        start_step: steps that were done before this start.
        samples_per_step, tokens_per_step: to guess what they took by, where the next three aren't given.
        samples, tokens, flops: gone through before this start.
        flops_per_token, flops_per_step: operations; the first needs counted tokens.

    Attributes:
        batch: samples of the last step. samples, tokens, flops: so far; None where that isn't known.
        job_flops: since this start.
    """

    def __init__(
        self,
        start_step: int = 0,
        *,
        samples_per_step: int | None = None,
        tokens_per_step: int | None = None,
        samples: int | None = None,
        tokens: int | None = None,
        flops: float | None = None,
        flops_per_token: float | None = None,
        flops_per_step: float | None = None,
    ) -> None:
        self._per_token, self._per_step = flops_per_token, flops_per_step
        self.batch = samples_per_step
        self.samples = _times(samples_per_step, start_step) if samples is None else samples
        self.tokens = _times(tokens_per_step, start_step) if tokens is None else tokens
        self.flops = self._operations(start_step, self.tokens) if flops is None else flops
        self.job_flops = self._operations(0, 0)

    def step(self, samples: int | None, tokens: int | None) -> None:
        """A step ended."""
        more = self._operations(1, tokens)
        self.batch = samples
        self.samples, self.tokens = _plus(self.samples, samples), _plus(self.tokens, tokens)
        self.flops = _sum(self.flops, more)
        self.job_flops = _sum(self.job_flops, more)

    def values(self) -> dict[str, Number]:
        """What a loop logs of it."""
        return _known({BATCH: self.batch, SAMPLES: self.samples, TOKENS: self.tokens})

    def at_checkpoint(self, step: int) -> dict[str, Number]:
        """What a checkpoint saved at this step is recorded by."""
        return {
            checkpoint_keys.ITERATION: step,
            **_known(
                {
                    checkpoint_keys.SAMPLES: self.samples,
                    checkpoint_keys.TOKENS: self.tokens,
                    checkpoint_keys.FLOPS: self.flops,
                    checkpoint_keys.JOB_FLOPS: self.job_flops,
                }
            ),
        }

    def _operations(self, steps: int, tokens: int | None) -> float | None:
        if self._per_step is not None:
            return self._per_step * steps
        return None if self._per_token is None or tokens is None else self._per_token * tokens


def _known(values: dict[str, Number | None]) -> dict[str, Number]:
    return {name: value for name, value in values.items() if value is not None}


def _times(each: int | None, steps: int) -> int | None:
    return None if each is None else each * steps


def _plus(count: int | None, more: int | None) -> int | None:
    return more if count is None else None if more is None else count + more


def _sum(before: float | None, more: float | None) -> float | None:
    return None if before is None or more is None else before + more
