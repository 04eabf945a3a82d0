"""Twenty rounds of chaos: real runs, random kills, every store audited. More by ``make chaos``."""

from __future__ import annotations

import collections
from pathlib import Path

import pytest

from tests.chaos.__main__ import line, play, table
from tests.chaos.deeds import DEEDS, LEAVES
from tests.chaos.plan import HARMS, HARMS_MEANWHILE, TRACKERS, make
from tests.chaos.round import LEAST_RECORDS, Shared

SEED, ROUNDS = "ci1", 20


@pytest.mark.timeout(1200)
def test_twenty_rounds_lose_and_double_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever dies, each tracker holds what ``log`` returned from: once, in order, with its time and its status."""
    for name, value in Shared(tmp_path).variables().items():
        monkeypatch.setenv(name, value)
    outcomes = play(range(ROUNDS), SEED, tmp_path, jobs=2, seconds=2.0)
    bad = [line(number, outcome) for number, outcome in enumerate(outcomes) if not outcome.clean()]
    assert not bad, "\n".join([*bad, table(outcomes)])
    assert sum(outcome.kills for outcome in outcomes) > ROUNDS
    assert all(outcome.records >= LEAST_RECORDS for outcome in outcomes)


def test_rounds_of_the_tests_meet_every_tracker_and_every_harm() -> None:
    """The seed of these rounds has each tracker in at least five of them, and each kind of harm at least once."""
    plans = [make(f"{SEED}:{number}", seconds=2.0) for number in range(ROUNDS)]
    trackers = collections.Counter(name for plan in plans for name in plan.trackers)
    assert set(trackers) == set(TRACKERS)
    assert min(trackers.values()) >= 5
    attempts = [attempt for plan in plans for attempt in plan.attempts]
    assert {action.kind for attempt in attempts for action in attempt.actions} == {
        *("kill_training", "kill_relay", "kill_delivery", "kill_deliveries", "kill_helpers", "kill_all"),
        *("kill_service", "fault", "lock", "sync", "sync_killed"),
        *HARMS_MEANWHILE,
    }
    assert {kind for attempt in attempts for _, kind in attempt.deeds} == set(DEEDS)
    assert {harm.kind for plan in plans for harm in plan.harms} == set(HARMS)
    assert any(plan.offline and len(plan.attempts) > 1 for plan in plans)
    assert any(attempt.full_at_finish for attempt in attempts)
    assert sum(attempt.end in LEAVES for attempt in attempts) >= 2
    assert any(attempt.failpoint for attempt in attempts)


def test_seed_repeats_a_round() -> None:
    """The same seed gives the same plan, another seed another."""
    assert make("7:3") == make("7:3")
    assert make("7:3") != make("7:4")
