"""A round's plan: who logs how much to which trackers, and what is done to it when. All of it follows from the seed."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence

from tests.chaos.deeds import DEEDS, LEAVES, SIGNALS

TRACKERS = ("wandb", "trackio", "tensorboard", "mlflow", "json")
HEAVY = ("wandb", "mlflow", "trackio")
FAULTS = (
    {"kind": "refuse"},
    {"kind": "status", "status": 500},
    {"kind": "status", "status": 502, "match": "file_stream"},
    {"kind": "status", "status": 429, "retry_after_s": 1},
    {"kind": "hang"},
    {"kind": "delay", "seconds": 0.3},
    {"kind": "drop", "count": 2},
    {"kind": "garbage", "match": "file_stream"},
)
POINTS = (
    "*.commit.before", "*.commit.after", "*.write.before", "*.write.after", "*.close.before", "*.close.after",
    "*.open.after", "file.*", "owned.*", "order.*", "wandb.*", "mlflow.*", "trackio.*", "tensorboard.*", "json.*",
    "relay.*",
)  # fmt: skip
"""Patterns of failpoints that helpers die at."""


HARMS = (
    *("state deleted", "state and order deleted", "older state", "older state and order"),
    *("store damaged", "store deleted"),
)
"""What is done to a tracker's delivery, or to what it wrote, before the run is synced again."""
HARMS_MEANWHILE = ("state deleted", "older state", "store deleted")
"""The same while training goes on, as actions."""


@dataclasses.dataclass(frozen=True)
class Harm:
    """kind: of HARMS. chance: where there is a choice (which copy, which byte), 0 to 1."""

    kind: str
    tracker: str
    chance: float


@dataclasses.dataclass(frozen=True)
class Action:
    """after_s: pause since the last one. logged: not before so many of the attempt's calls were begun.

    kind: kill_training, kill_relay, kill_delivery, kill_deliveries, kill_helpers, kill_all, kill_service (W&B's own
    process), kill_agent (the machine's, which other rounds use too), fault (of W&B's server), healthy, lock (a
    database, for ``argument`` seconds), sync, sync_killed,
    look_elsewhere (from another PID namespace, by a clock that is an hour ahead),
    or one of HARMS_MEANWHILE (to tracker ``argument``).
    """

    kind: str
    after_s: float = 0.0
    logged: int = 0
    argument: str = ""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One training process.

    end: finish, fail, wait (to be killed) or a way to leave without a word (:mod:`tests.chaos.deeds`). failpoint: for
    its first relay's processes. deeds: what it does to itself, by the number of its call. full_at_finish: its disk is
    full when it ends, and freed while ``finish`` waits.
    """

    count: int
    seconds: float
    end: str
    preempting: bool
    failpoint: str
    actions: tuple[Action, ...]
    deeds: tuple[tuple[int, str], ...] = ()
    full_at_finish: bool = False


@dataclasses.dataclass(frozen=True)
class Plan:
    """syncs: how many more times the run is synced after it is delivered. harms: each done before one further sync.

    offline: W&B's client writes files; between two attempts they are uploaded and cleaned away by W&B's own commands.
    agent: relays are forks of the machine's agent, where there is one.
    rot: where in the journal a bit is flipped once the run is delivered, 0 to 1; negative: none is.
    """

    seed: str
    trackers: tuple[str, ...]
    attempts: tuple[Attempt, ...]
    syncs: int
    harms: tuple[Harm, ...] = ()
    offline: bool = False
    agent: bool = False
    rot: float = -1.0

    @property
    def count(self) -> int:
        """Calls of ``log`` if every attempt gets to its end."""
        return sum(attempt.count for attempt in self.attempts)


def make(seed: str, trackers: Sequence[str] = (), *, seconds: float = 4.0, agent: bool = False) -> Plan:
    """The plan of a seed.

    Args:
        trackers: those of the round; default one heavy one and one or two others.
        seconds: how long training takes, about.
        agent: with the machine's agent, which may be killed; all else is as without.
    """
    chance = random.Random(f"{seed}:plan")
    chosen = tuple(trackers) or _subset(chance)
    again = chance.random() < 0.35
    calls = chance.randint(950, 1500)
    cut = chance.randint(100, calls - 100) if again else 0
    attempts = [_attempt(chance, chosen, cut, seconds * cut / calls, last=False)] if again else []
    attempts.append(_attempt(chance, chosen, calls - cut, seconds * (calls - cut) / calls, last=True))
    syncs = chance.choice((0, 0, 1, 2))
    harms = [
        Harm(chance.choice(HARMS), chance.choice(chosen), chance.random()) for _ in range(chance.choice((0, 1, 2)))
    ]
    offline = "wandb" in chosen and chance.random() < (0.5 if again else 0.1)
    if offline and again:  # what was uploaded and cleaned away is known by the delivery's state alone
        attempts = [dataclasses.replace(one, actions=_keeping_wandb(one.actions)) for one in attempts]
        harms = [harm for harm in harms if harm.tracker != "wandb"]
    if agent:
        apart = random.Random(f"{seed}:agent")
        attempts = [_killing_agent(apart, one) for one in attempts]
    apart = random.Random(f"{seed}:rot")
    rot = apart.random() if apart.random() < 0.4 else -1.0
    attempts = [_refusing_files(apart, one) for one in attempts]
    apart = random.Random(f"{seed}:signals")
    attempts = [_signalled(apart, one) for one in attempts]
    return Plan(seed, chosen, tuple(attempts), syncs, tuple(harms), offline, agent, rot)


def _refusing_files(chance: random.Random, attempt: Attempt) -> Attempt:
    if chance.random() < 0.6 or attempt.count < 50:
        return attempt
    deed = (chance.randrange(attempt.count - 25), "refused_files")
    return dataclasses.replace(attempt, deeds=tuple(sorted((*attempt.deeds, deed))))


def _signalled(chance: random.Random, attempt: Attempt) -> Attempt:
    """With handlers that raise, with waiting for children, and seen from elsewhere."""
    forks = any(kind == "fork" for _, kind in attempt.deeds)  # whose child lives as long as training
    kinds = [kind for kind in SIGNALS if chance.random() < 0.3 and not (forks and kind == "children")]
    deeds = tuple(sorted((*attempt.deeds, *((chance.randrange(attempt.count), kind) for kind in kinds))))
    look = Action("look_elsewhere", 0.0, chance.randrange(attempt.count))
    actions = sorted((*attempt.actions, *([look] if chance.random() < 0.3 else [])), key=lambda action: action.logged)
    return dataclasses.replace(attempt, deeds=deeds, actions=tuple(actions))


def _killing_agent(chance: random.Random, attempt: Attempt) -> Attempt:
    if chance.random() < 0.5:
        return attempt
    kill = Action("kill_agent", chance.choice((0.0, chance.uniform(0.0, 1.0))), chance.choice((0, attempt.count // 2)))
    actions = sorted((kill, *attempt.actions), key=lambda action: action.logged)
    return dataclasses.replace(attempt, actions=tuple(actions))


def _keeping_wandb(actions: Sequence[Action]) -> tuple[Action, ...]:
    return tuple(one for one in actions if not (one.kind in HARMS_MEANWHILE and one.argument == "wandb"))


def _subset(chance: random.Random) -> tuple[str, ...]:
    names = {chance.choice((*HEAVY, "wandb")), chance.choice(("tensorboard", "json"))}
    if chance.random() < 0.4:
        names.add(chance.choice(TRACKERS))
    return tuple(name for name in TRACKERS if name in names)


def _attempt(chance: random.Random, trackers: Sequence[str], count: int, seconds: float, *, last: bool) -> Attempt:
    killed = not last or chance.random() < 0.6
    actions = [_action(chance, trackers, count) for _ in range(chance.randint(1, 4))]
    ending = "wait" if killed else chance.choice(("finish", "finish", "fail", *chance.sample(tuple(LEAVES), 3)))
    if killed:
        # Every call is made: a round must have its thousand records. When it is killed it may wait, or just end.
        final = chance.choice(("kill_training", "kill_all"))
        actions.append(Action(final, chance.choice((0.0, 0.0, chance.uniform(0, 2))), count))
    point = f"{chance.choice(POINTS)}=kill:{chance.randint(1, 6)}" if chance.random() < 0.4 else ""
    ordered = sorted(actions, key=lambda action: action.logged)
    kinds = chance.sample(DEEDS, chance.choice((0, 0, 1, 1, 2)))
    deeds = tuple(sorted((chance.randrange(count), kind) for kind in kinds))
    full = ending in ("finish", "fail") and chance.random() < 0.3
    return Attempt(count, seconds, ending, chance.random() < 0.15, point, tuple(ordered), deeds, full)


def _action(chance: random.Random, trackers: Sequence[str], count: int) -> Action:
    kinds = ["kill_relay", "kill_relay", "kill_delivery", "kill_delivery", "kill_delivery", "kill_deliveries"]
    kinds += ["kill_helpers", "sync", "sync_killed", *HARMS_MEANWHILE]
    if "wandb" in trackers:
        kinds += ["kill_service", "fault", "fault"]
    if "mlflow" in trackers or "trackio" in trackers:
        kinds += ["lock"]
    kind = chance.choice(kinds)
    argument = ""
    if kind == "kill_delivery" or kind in HARMS_MEANWHILE:
        argument = chance.choice(trackers)
    elif kind == "fault":
        argument = str(chance.randrange(len(FAULTS)))
    elif kind == "lock":
        argument = f"{chance.uniform(0.1, 2.0):.2f}"
    return Action(kind, chance.choice((0.0, chance.uniform(0.0, 1.5))), chance.randrange(count), argument)
