"""A finished journal, made by a real run without a relay, and deliveries of it that die where they are told to."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests import forked
from tests.chaos.audit import Said, read_said
from tests.chaos.mutants import environment
from trackers.journal.helper_process import command
from trackers.journal.run_directory import RunDirectory
from trackers.relay.parts.plans import DeliveryPlan, arguments

SEED = "prepared"
ID = "prepared1"
CALLS = 300
LIMIT_S = 120.0


@dataclasses.dataclass(frozen=True)
class Journal:
    """A run that nobody has delivered yet, and what its training said."""

    directory: Path

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.directory / "runs" / "chaos" / ID)

    @property
    def said(self) -> Said:
        return read_said(self.directory / "said.txt")

    def copy(self, to: Path) -> Journal:
        """The same journal elsewhere."""
        shutil.copytree(self.directory, to)
        return Journal(to)


def train(directory: Path, *, changes: Iterable[str] = (), end: str = "fail", failpoint: str = "") -> Journal:
    """Log 300 calls as an offline run without relay, in a process of its own, which may die on the way."""
    directory.mkdir(parents=True, exist_ok=True)
    journal = Journal(directory)
    job = {
        "said": str(directory / "said.txt"), "seed": SEED, "trackers": ["json"], "project": "chaos", "id": ID,
        "first": max(journal.said.begun, default=-1) + 1, "count": CALLS, "seconds": 0.0, "end": end,
        "preempting": False, "timeout": 0, "armed": failpoint,
    }  # fmt: skip
    env = {
        **os.environ, **environment(changes), "TRACKER_MODE": "offline", "TRACKER_RELAY": "n",
        "TRACKER_DIR": str(directory / "runs"),
    }  # fmt: skip
    code = _run([sys.executable, "-m", "tests.chaos.train", json.dumps(job)], env, directory)
    dies = bool(failpoint) or any(change.startswith("torn") for change in changes)
    assert code == (-signal.SIGKILL if dies else 0), f"training ended with {code}"
    return journal


def deliver(journal: Journal, tracker: str, *, failpoint: str = "", changes: Iterable[str] = ()) -> int:
    """One delivery process, to its end or to its death; its exit code."""
    env = {**os.environ, **environment(("small_batches", *changes)), "TRACKERS_FAILPOINT": failpoint}
    preload = (*forked.PACKAGE, *forked.VENDORS.get(tracker, ()))
    words = arguments("delivery", journal.run.path, DeliveryPlan(tracker, os.getpid()))
    return _run(command(words), env, journal.directory, preload)


def sync(journal: Journal, tracker: str, *, failpoint: str = "") -> int:
    """``trackers sync``; its exit code."""
    env = {**os.environ, **environment(["small_batches"]), "TRACKERS_FAILPOINT": failpoint}
    words = [sys.executable, "-m", "trackers", "sync", str(journal.run.path), "--to", tracker]
    return _run(words, env, journal.directory)


def strays(journal: Journal) -> list[str]:
    """Temporary and claim files that nobody will use any more."""
    return [path.name for path in journal.run.path.rglob("*") if path.name.endswith((".tmp", ".taken", ".new"))]


def _run(words: list[str], env: dict[str, str], directory: Path, preload: tuple[str, ...] = forked.PACKAGE) -> int:
    env = {name: value for name, value in env.items() if value}
    with open(directory / "output.txt", "ab") as out:
        return forked.run(words, preload=preload, cwd=directory, env=env, stdout=out, timeout=LIMIT_S).returncode


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Journal:
    """300 calls of a run that failed with an exit code, undelivered."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WANDB_MODE", "online")
        return train(tmp_path_factory.mktemp("journal") / "run")
