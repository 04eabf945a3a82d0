"""Rounds of chaos: real runs, random kills, every store audited. ``make chaos`` plays as many as it is told."""

from __future__ import annotations

import collections
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests import forked
from tests.chaos import fleet
from tests.chaos.__main__ import line, play, table
from tests.chaos.deeds import DEEDS, LEAVES, SIGNALS
from tests.chaos.plan import HARMS, HARMS_MEANWHILE, TRACKERS, make
from tests.chaos.round import LEAST_RECORDS, Shared
from tests.helpers import T0, begun_run
from trackers.journal.run_directory import StreamName
from trackers.records import Metrics, encode

SEED, ROUNDS = "ci1", 20


CHOSEN = (1716, 694)
"""Rounds that every test run plays: each tracker, online and offline, one and two attempts."""


def play_cleanly(numbers: Sequence[int], directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Play rounds; nothing may be lost, doubled or wrong in any store."""
    for name, value in Shared(directory).variables().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tests.chaos.round.subprocess", forked.SUBPROCESS)
    outcomes = play(numbers, SEED, directory, jobs=2, seconds=2.0)
    bad = [line(number, outcome) for number, outcome in zip(numbers, outcomes, strict=True) if not outcome.clean()]
    assert not bad, "\n".join([*bad, table(outcomes)])
    assert sum(outcome.kills for outcome in outcomes) > len(numbers)
    assert all(outcome.records >= LEAST_RECORDS for outcome in outcomes)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_rounds_lose_and_double_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever dies, each tracker holds what ``log`` returned from: once, in order, with its time and its status."""
    play_cleanly(CHOSEN, tmp_path, monkeypatch)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_twenty_rounds_lose_and_double_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for each tracker in at least five rounds, and for each kind of harm."""
    play_cleanly(range(ROUNDS), tmp_path, monkeypatch)


def test_chosen_rounds_meet_every_tracker() -> None:
    """The few rounds of each test run have every tracker, offline and resumed runs, and deaths at failpoints."""
    plans = [make(f"{SEED}:{number}", seconds=2.0) for number in CHOSEN]
    attempts = [attempt for plan in plans for attempt in plan.attempts]
    kinds = {action.kind for attempt in attempts for action in attempt.actions}
    assert {name for plan in plans for name in plan.trackers} == set(TRACKERS)
    assert any(plan.offline and len(plan.attempts) > 1 for plan in plans)
    assert any(not plan.offline and len(plan.attempts) > 1 for plan in plans)
    assert any(attempt.failpoint for attempt in attempts)
    assert kinds >= {"kill_training", "kill_relay", "kill_delivery", "kill_all", "fault", "lock", "sync_killed"}


def test_rounds_of_the_tests_meet_every_tracker_and_every_harm() -> None:
    """The seed of these rounds has each tracker in at least five of them, and each kind of harm at least once."""
    plans = [make(f"{SEED}:{number}", seconds=2.0) for number in range(ROUNDS)]
    trackers = collections.Counter(name for plan in plans for name in plan.trackers)
    assert set(trackers) == set(TRACKERS)
    assert min(trackers.values()) >= 5
    attempts = [attempt for plan in plans for attempt in plan.attempts]
    assert {action.kind for attempt in attempts for action in attempt.actions} == {
        *("kill_training", "kill_relay", "kill_delivery", "kill_deliveries", "kill_helpers", "kill_all"),
        *("kill_service", "fault", "lock", "sync", "sync_killed", "look_elsewhere"),
        *HARMS_MEANWHILE,
    }
    assert {kind for attempt in attempts for _, kind in attempt.deeds} == {*DEEDS, *SIGNALS, "refused_files"}
    assert any(plan.rot >= 0 for plan in plans)
    assert {harm.kind for plan in plans for harm in plan.harms} == set(HARMS)
    assert any(plan.offline and len(plan.attempts) > 1 for plan in plans)
    assert any(attempt.full_at_finish for attempt in attempts)
    assert sum(attempt.end in LEAVES for attempt in attempts) >= 2
    assert any(attempt.failpoint for attempt in attempts)


def test_seed_repeats_a_round() -> None:
    """The same seed gives the same plan, another seed another."""
    assert make("7:3") == make("7:3")
    assert make("7:3") != make("7:4")


@pytest.mark.slow
@pytest.mark.processes
def test_fleet_that_writes_to_a_store_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve runs through three relays, which are killed; ``make chaos-fleet`` has a thousand, for ten minutes."""
    monkeypatch.setattr("trackers.relay.delivery.delivery.RETRY_S", (0.05, 0.2))
    plan = fleet.Plan(runs=12, relays=3, writers=1, seconds=4.0, rate=40.0, every_s=1.0, kill_s=0.3, failing=0.05)
    outcome = fleet.play(tmp_path, plan)
    assert (outcome.lost, outcome.doubled, outcome.unended) == (0, 0, 0), outcome
    assert outcome.kills >= 3
    assert outcome.written > 500


def test_fleet_s_audit_sees_what_is_lost_and_doubled(tmp_path: Path) -> None:
    """A store that lacks a run's last records, and has others twice, doesn't pass."""
    outcome = fleet.Outcome()
    run, writer = begun_run(tmp_path / "runs/fleet/one", trackers=["storage"])
    for step in range(10):
        writer.write(encode(Metrics(step=step, time=T0, values={"loss": 1.0})))
    writer.release()
    content = run.stream(StreamName("rank", 0, 1)).read_bytes()
    lines = content.splitlines(keepends=True)
    other = tmp_path / "store/fleet/one/streams"
    other.mkdir(parents=True)
    (other / "rank-0.1.jsonl").write_bytes(b"".join([*lines[:8], lines[7]]))
    fleet.count(tmp_path, f"file://{tmp_path}/store", [run], outcome)
    assert (outcome.written, outcome.lost, outcome.doubled, outcome.unended) == (10, 3, 1, 1)
