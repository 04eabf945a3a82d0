"""Two clocks compared by the times at which a store wrote."""

from __future__ import annotations

import math
import random

import pytest

from trackers.object_storage.clock import StoreClock


def compared(ahead_s: float, count: int, *, cut: bool, seed: int = 1) -> StoreClock:
    """A clock that is ahead, after objects written at any part of a second, each within a tenth."""
    chance = random.Random(seed)
    clock = StoreClock()
    for _ in range(count):
        stored = 1_800_000_000 + chance.random() * 1000
        began = stored - chance.random() * 0.1
        ended = stored + chance.random() * 0.1
        clock.add(began + ahead_s, ended + ahead_s, float(math.floor(stored)) if cut else stored)
    return clock


@pytest.mark.parametrize("ahead_s", [0.0, 37.2, -4000.5])
@pytest.mark.parametrize("cut", [True, False])
def test_difference_lies_within_what_is_said(ahead_s: float, cut: bool) -> None:
    """However late answers come, and though S3 cuts its times to seconds."""
    for seed in range(20):
        clock = compared(ahead_s, 20, cut=cut, seed=seed)
        assert abs(clock.ahead_s - ahead_s) <= clock.within_s + 1e-6
        assert clock.within_s < 0.2


def test_one_object_bounds_it_to_a_second() -> None:
    """And nothing is known before."""
    assert StoreClock().within_s == math.inf
    assert StoreClock().ahead_s == 0.0
    assert 0.5 <= compared(5.0, 1, cut=True).within_s <= 0.7


def test_clock_that_was_set_is_followed() -> None:
    """Bounds that contradict each other are of a clock that was set: the newer ones count."""
    clock = compared(0.0, 20, cut=True)
    clock.add(1_800_000_100.5, 1_800_000_100.6, 1_800_000_000.0)
    assert clock.count == 1
    assert abs(clock.ahead_s - 100) < 1
