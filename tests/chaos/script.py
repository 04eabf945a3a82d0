"""What training logs in a round: call number n of a seed, the same for who logs it and for who audits it."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

NAN, INFINITY = float("nan"), float("inf")
CONFIG_EVERY, SUMMARY_EVERY = 97, 61
START_CONFIG = {"lr": 0.001, "model": {"depth": 4, "width": 64}}


class Call(NamedTuple):
    """One call of ``log``: metrics and perhaps a text, at a step.

    config, summary: what is set right after it; {} mostly.
    """

    step: int
    metrics: dict[str, float | int]
    text: str
    config: dict[str, Any]
    summary: dict[str, Any]


def call(seed: str, n: int) -> Call:
    """Call ``n``, counted from 0 over all attempts. Its metric ``n`` tells it from every other.

    One in twenty repeats the step before it, one in thirty goes back by up to ten; every seventeenth value of ``y``
    is NaN or infinite; every value is exact in single precision, so that all trackers must give it back.
    """
    chance = random.Random(f"{seed}:{n}")
    luck = chance.random()
    step = n - 1 if luck < 0.05 and n else n - chance.randint(2, 10) if luck < 0.083 and n > 10 else n
    metrics: dict[str, float | int] = {"n": n, "x": n * 0.5}
    if n % 2:
        metrics["y"] = (NAN, INFINITY, -INFINITY)[n // 17 % 3] if n % 17 == 0 else -n * 0.25
    if n % 5 == 0:
        metrics["perf/tokens per sec"] = 1000 + n
    text = f'sample {n}: größer, "quoted"\nsecond line' if n % 13 == 0 else ""
    config = {"phase": {"changed": n}} if n % CONFIG_EVERY == CONFIG_EVERY - 1 else {}
    summary = {"reached": n} if n % SUMMARY_EVERY == SUMMARY_EVERY - 1 else {}
    return Call(step, metrics, text, config, summary)


def records(first: int, count: int) -> int:
    """How many records these calls make: metrics, texts, changes of configuration and results."""
    calls = range(first, first + count)
    texts = sum(n % 13 == 0 for n in calls)
    configs = sum(n % CONFIG_EVERY == CONFIG_EVERY - 1 for n in calls)
    summaries = sum(n % SUMMARY_EVERY == SUMMARY_EVERY - 1 for n in calls)
    return count + texts + configs + summaries
