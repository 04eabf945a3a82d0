"""One round: real processes, real kills, then the audit of every store."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil

from tests.chaos.audit import Findings, Said, audit, audit_files, read, read_said
from tests.chaos.deeds import LEAVES
from tests.chaos.plan import FAULTS, HARMS_MEANWHILE, TRACKERS, Action, Attempt, Harm, Plan
from tests.chaos.script import records
from tests.conftest import environment
from trackers.journal import helper_process
from trackers.journal.run_directory import RunDirectory
from trackers.relay.agent import endpoint
from trackers.relay.delivery.cursor_file import delivery_report, read_account

ROOT = Path(__file__).resolve().parents[2]
MARK = "TRACKERS_CHAOS"
"""Environment variable that names the processes of one round."""

PATIENCE_S = 25.0
"""How long a relay that lives gets to deliver the rest by itself."""
ARMED_PATIENCE_S = 3.0
"""The same where its processes die at a failpoint again and again."""
SYNC_S = 150.0
LEAST_RECORDS = 1000
STEP_S = 60.0
NOTICED_S = 0.2
"""A delivery that commits later than this after its store was deleted has had the time to notice."""

_audit = threading.Lock()


@dataclasses.dataclass
class Outcome:
    """calls: that returned. records: that these made. actions: as carried out.

    delivered: "by itself", or why one sync was needed: "dead" (nobody lived), "armed" (who lived died at a failpoint
    again and again), "late" (the relay lived, but wasn't through after PATIENCE_S).

    late_with: trackers that lacked something then. problem: why the round couldn't be played or delivered to its
    end; "" if it was.
    """

    plan: Plan
    calls: int = 0
    records: int = 0
    delivered: str = ""
    findings: list[Findings] = dataclasses.field(default_factory=list)
    actions: list[str] = dataclasses.field(default_factory=list)
    kills: int = 0
    late_with: list[str] = dataclasses.field(default_factory=list)
    problem: str = ""
    seconds: float = 0.0

    def clean(self) -> bool:
        """Nothing is wrong."""
        return not self.problem and not any(found.total() for found in self.findings)


class Shared:
    """What the rounds of one session have in common: a home, MLflow's database, trackio's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.home = self.root / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        self.mlflow = self.root / "mlflow.db"
        self.mlflow_uri = f"sqlite:///{self.mlflow}"

    def agents(self) -> list[psutil.Process]:
        """The agents of the rounds, living."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if words[3:5] == ["agent", str(self.root / "trackers")] and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def kill_agents(self) -> int:
        """SIGKILL to the agents; how many there were."""
        found = self.agents()
        for process in found:
            process.kill()
        psutil.wait_procs(found, STEP_S)
        return len(found)

    def start_agent(self, environ: dict[str, str]) -> None:
        """See that there is an agent for processes with this environment, which has loaded all trackers."""
        helper = helper_process.environment(environ)
        self.root.chmod(0o700)
        folder = self.root / "trackers"
        socket = folder / f"{endpoint.key(helper, ())}.sock"
        plan = json.dumps({"trackers": TRACKERS, "nice": 0})
        if not self.agents():
            socket.unlink(missing_ok=True)  # of one that was killed
        deadline = time.monotonic() + SYNC_S
        while not socket.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {SYNC_S:g} s for an agent at {socket}")
            time.sleep(0.1)
            if self.agents():
                continue
            subprocess.Popen(
                helper_process.command(["agent", str(folder), socket.stem, plan]),
                env=endpoint.environment(helper), cwd="/", start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def variables(self) -> dict[str, str]:
        """The environment of every process of every round."""
        return {
            "XDG_RUNTIME_DIR": str(self.root),
            **environment(self.home),
            "WANDB_MODE": "online",
            "WANDB_API_KEY": "k" * 40,
            "MLFLOW_TRACKING_URI": self.mlflow_uri,
        }


class Round:
    """Plays one plan."""

    def __init__(self, plan: Plan, shared: Shared, number: int) -> None:
        self.plan = plan
        self.shared = shared
        self.name = f"round-{number}"
        self.directory = shared.root / self.name
        self.directory.mkdir()
        self.said = self.directory / "said.txt"
        self.id = f"chaos{number}"
        self.run = RunDirectory(self.directory / "runs" / self.name / self.id)
        self.outcome = Outcome(plan)
        self._mark = f"{shared.root}:{number}"
        self._env = {**os.environ, **shared.variables(), MARK: self._mark, "WANDB_DIR": str(self.directory)}
        for name in ("TRACKERS_FAILPOINT", "WANDB_BASE_URL"):
            self._env.pop(name, None)
        self._training: subprocess.Popen[bytes] | None = None
        self._syncs: list[subprocess.Popen[bytes]] = []
        self._server: subprocess.Popen[str] | None = None
        self._url = ""
        self._killed_training = False
        self._locks: list[threading.Thread] = []
        self._leaves = False
        self.mlflow = shared.mlflow
        acts = [(act.kind, act.argument) for attempt in plan.attempts for act in attempt.actions]
        if ("store deleted", "mlflow") in [*acts, *((harm.kind, harm.tracker) for harm in plan.harms)]:
            self.mlflow = self.directory / "own-mlflow.db"  # not the one of all rounds
        self._env["MLFLOW_TRACKING_URI"] = self.mlflow_uri = f"sqlite:///{self.mlflow}"
        self._copies: list[Path] = []
        self._deleted: dict[str, float] = {}

    def play(self) -> Outcome:
        """Everything, from the first process to the audit."""
        began = time.monotonic()
        try:
            with self._wandb():
                for number, attempt in enumerate(self.plan.attempts):
                    if number and self.plan.offline:
                        self._upload_and_clean()
                    self._attempt(attempt, first=number == 0)
                self._deliver()
                if self.plan.offline:
                    self._upload()
                self._examine()
        except Exception as error:
            self.outcome.problem = f"{type(error).__name__}: {error}"
        finally:
            self._kill(lambda process: True)
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    @contextlib.contextmanager
    def _wandb(self) -> Iterator[None]:
        if "wandb" not in self.plan.trackers:
            yield
            return
        command = [sys.executable, "-m", "tests.fakes.wandb_server"]
        env = {name: value for name, value in self._env.items() if name != MARK}
        with subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdout is not None
            self._url = server.stdout.readline().strip()
            self._env["WANDB_BASE_URL"] = self._url
            if self.plan.offline:
                self._env["WANDB_MODE"] = "offline"
            try:
                yield
            finally:
                server.kill()

    def _attempt(self, attempt: Attempt, *, first: bool) -> None:
        begun = read_said(self.said).begun
        start = max(begun, default=-1) + 1
        job = {
            "said": str(self.said),
            "seed": self.plan.seed,
            "trackers": list(self.plan.trackers),
            "project": self.name,
            "id": self.id,
            "first": start,
            "count": attempt.count,
            "seconds": attempt.seconds,
            "end": attempt.end,
            "preempting": attempt.preempting,
            "deeds": attempt.deeds,
            "full_at_finish": attempt.full_at_finish,
            "timeout": 20 if attempt.full_at_finish else 5,
        }
        self.outcome.actions += [kind for _, kind in attempt.deeds]
        self.outcome.actions += [f"leave {attempt.end}"] if attempt.end in LEAVES else []
        self.outcome.actions += ["full_at_finish"] if attempt.full_at_finish else []
        self._leaves = attempt.end in LEAVES
        env = {**self._env, "PYTHONPATH": str(ROOT)}
        if self.plan.agent:
            env["TRACKER_AGENT"] = "y"
            env["TRACKER_AGENT_DELIVERIES"] = "2"  # they take turns
            self.shared.start_agent(env)
        if attempt.failpoint:
            env["TRACKERS_FAILPOINT"] = attempt.failpoint
            self.outcome.actions.append(f"failpoint {attempt.failpoint}")
        with open(self.directory / "training.log", "ab") as log:
            self._training = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.train", json.dumps(job)],
                cwd=self.directory,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._killed_training = False
        self._wait(lambda: "ready" in read_said(self.said).words[-1:] or self._begun() >= start, "training is ready")
        for action in attempt.actions:
            if self._training.poll() is None:
                self._wait(
                    lambda action=action: self._begun() >= start + action.logged or self._at_end(attempt),  # type: ignore[misc]
                    f"call {action.logged} for {action.kind}",
                )
            time.sleep(action.after_s)
            self._see_that_training_lives()
            self._act(action)
        self._training.wait(STEP_S)
        self._see_that_training_lives()

    def _see_that_training_lives(self) -> None:
        assert self._training is not None
        code = self._training.poll()
        if code and not self._killed_training and not (self._leaves and self._said_last("finishing")):
            raise RuntimeError(f"training ended with {code}: see {self.directory}/training.log")

    def _begun(self) -> int:
        return max(read_said(self.said).begun, default=-1)

    def _at_end(self, attempt: Attempt) -> bool:
        assert self._training is not None
        if self._training.poll() is not None:
            return True
        return self._said_last("waiting", "finishing", "finished")

    def _said_last(self, *words: str) -> bool:
        return any(read_said(self.said).words[-1:] == [word] for word in words)

    def _wait_for_shield(self) -> None:
        """What training does now may lose records by what is promised, if it is killed meanwhile."""
        self._wait(
            lambda: ([w for w in read_said(self.said).words if w.endswith("shield")] or [""])[-1] != "shield",
            "training's deed is done",
        )

    def _act(self, action: Action) -> None:
        assert self._training is not None
        kind = action.kind
        self._keep_state()
        self.outcome.actions.append(f"{kind} {action.argument}".strip())
        if kind in ("kill_training", "kill_all"):
            self._wait_for_shield()
        if kind == "kill_training":
            self._killed_training = True
            self._training.kill()
        elif kind == "kill_all":
            self._killed_training = True
            self._kill(lambda process: True)
        elif kind == "kill_relay":
            self._kill(lambda process: _role(process)[0] == "relay")
        elif kind == "kill_delivery":
            self._kill(lambda process: _role(process) == ("delivery", action.argument))
        elif kind == "kill_deliveries":
            self._kill(lambda process: _role(process)[0] == "delivery")
        elif kind == "kill_helpers":
            self._kill(lambda process: _role(process)[0] in ("relay", "delivery", "service"))
        elif kind == "kill_agent":
            self.outcome.kills += self.shared.kill_agents()
        elif kind == "kill_service":
            self._kill(lambda process: _role(process)[0] == "service")
        elif kind in HARMS_MEANWHILE:
            if kind != "store deleted":  # a delivery that has it open must notice by itself
                self._kill(lambda process: _role(process) == ("delivery", action.argument))
            self._harm(Harm(kind, action.argument, 0.5))
            if kind == "store deleted":
                self._deleted[action.argument] = time.time()
        elif kind == "fault":
            self._fault(FAULTS[int(action.argument)])
        elif kind == "lock":
            thread = threading.Thread(target=self._lock, args=(float(action.argument),))
            thread.start()
            self._locks.append(thread)
        elif kind == "look_elsewhere":
            self._look_elsewhere()
        elif kind == "sync":
            self._syncs.append(self._sync())
        elif kind == "sync_killed":
            sync = self._sync()
            time.sleep(1.5)
            # Its deliveries are left to see for themselves that nobody is there any more.
            sync.kill()
            sync.wait()

    def _fault(self, fields: dict[str, Any]) -> None:
        # A server that refuses can't be told to listen again: it does so by itself.
        fields = {**fields, "seconds": 2.0} if fields.get("kind") == "refuse" else fields
        request = urllib.request.Request(f"{self._url}/_fault", json.dumps(fields).encode(), method="POST")
        for _ in range(50):
            with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=10) as answer:
                answer.read()
                return
            time.sleep(0.1)
        raise RuntimeError("the stand-in for W&B's server doesn't answer")

    def _look_elsewhere(self) -> None:
        """Who sees the run from another PID namespace, by another clock, doesn't call it crashed while it lives."""
        assert self._training is not None
        if os.geteuid():  # only root may make one
            return
        env = {**self._env, "PYTHONPATH": f"{ROOT / 'tests/chaos/hook'}:{ROOT}", "TRACKERS_TEST_SKEW_S": "3600"}
        alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
        done = subprocess.run(
            [*alone, sys.executable, "-m", "trackers", "ls", "--dir", str(self.directory / "runs"), "--json"],
            cwd=self.directory, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        )  # fmt: skip
        (row,) = json.loads(done.stdout)
        status = row["status"]["name"]
        ends = self._said_last("finishing", "finished")  # how it ends may be recorded, though its process still lives
        if self._training.poll() is None and status in ("crashed", "preempted") and not ends:
            raise RuntimeError(f"from another PID namespace the living run has {status}")

    def _lock(self, seconds: float) -> None:
        """Hold the databases locked, as somebody else's transaction does."""
        paths = [self.mlflow] if "mlflow" in self.plan.trackers else []
        if "trackio" in self.plan.trackers:
            paths.append(self.shared.home / "trackio" / f"{self.name}.db")
        for path in paths:
            if path.exists():
                with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=5)) as base:
                    base.execute("BEGIN IMMEDIATE")
                    time.sleep(seconds)

    def _sync(self, *options: str) -> subprocess.Popen[bytes]:
        with open(self.directory / "sync.log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "trackers", "sync", str(self.run.path), *options],
                cwd=self.directory,
                env={**self._env, "PYTHONPATH": str(ROOT)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _deliver(self) -> None:
        """Let what lives do its work, then sync once; then as often as the plan says."""
        if self._url:
            self._fault({})
        for thread in self._locks:
            thread.join()
        for sync in self._syncs:
            with contextlib.suppress(subprocess.TimeoutExpired):
                sync.wait(PATIENCE_S)
        armed = any(attempt.failpoint for attempt in self.plan.attempts)
        deadline = time.monotonic() + (ARMED_PATIENCE_S if armed else PATIENCE_S)
        while self._processes(lambda process: _role(process)[0] == "relay") and time.monotonic() < deadline:
            time.sleep(0.1)
        alive = bool(self._processes(lambda process: _role(process)[0] == "relay"))
        self._kill(lambda process: True)
        self.outcome.delivered = "by itself"
        if alive or not self._delivered():
            self.outcome.delivered = "armed" if alive and armed else "late" if alive else "dead"
            self.outcome.late_with = [name for name, e in self._report().items() if e["state"] != "delivered"]
            self.outcome.actions.append(f"sync at the end ({self.outcome.delivered})")
            self._sync_whole()
        if any(read_account(self.run, name).time < when + NOTICED_S for name, when in self._deleted.items()):
            # Its delivery had ended, or was about to, and nobody looks at the store of a run that is delivered.
            self.outcome.actions.append("verify what was deleted behind its delivery")
            self._sync_whole("--verify")
        for _ in range(self.plan.syncs):
            self._sync_whole()
        for harm in self.plan.harms:
            self.outcome.actions.append(f"{harm.kind} {harm.tracker}")
            self._harm(harm)
            self._sync_whole("--verify")
        if self.plan.rot >= 0:
            self._rot()

    def _rot(self) -> None:
        """Flip a bit of a line: a check names that line, and no other; then the bit is flipped back."""
        self.outcome.actions.append("bit flipped")
        self._sync_whole("--verify")
        streams = sorted(self.run.streams.glob("rank-0.*.jsonl"))
        path = streams[int(self.plan.rot * 1009) % len(streams)]
        lines = path.read_bytes().splitlines(keepends=True)
        metrics = [number for number, line in enumerate(lines) if line.startswith(b'{"kind":"metrics"')]
        if not metrics:  # it was killed before its first call
            return
        hit = metrics[int(self.plan.rot * len(metrics))]
        begin = sum(map(len, lines[:hit]))
        bit = 8 * begin + int(self.plan.rot * 7919) % (8 * len(lines[hit]))
        _flip(path, bit)
        log = self.directory / "sync.log"
        size = log.stat().st_size
        code = self._sync("--verify").wait(SYNC_S)
        _flip(path, bit)
        text = log.read_bytes()[size:].decode()
        if code != 1 or f"1 damaged line is left out ({path.name} at byte {begin:,})" not in text:
            raise RuntimeError(f"bit {bit} of {path.name} was flipped, and `trackers sync --verify` ended with {code}")
        self._sync_whole("--verify")

    def _upload_and_clean(self) -> None:
        """What people do with W&B's offline files once a job has ended."""
        self._fault({})
        self._kill(lambda process: True)
        self._sync_whole()
        self._upload()
        self._wandb_command("clean", "--force", "--min-hours", "0")
        left = [path.parent.name for path in self.directory.glob("wandb/offline-run-*/*.wandb")]
        if left:
            raise RuntimeError(f"W&B's clean left {left}")
        self.outcome.actions.append("wandb_clean")

    def _upload(self) -> None:
        paths = sorted(self.directory.glob("wandb/offline-run-*"))
        self._wandb_command("sync", "--yes", *map(str, paths))

    def _wandb_command(self, *words: str) -> None:
        with open(self.directory / "wandb.log", "ab") as log:
            subprocess.run(
                [sys.executable, "-m", "wandb", *words],
                cwd=self.directory,
                env={**self._env, "WANDB_MODE": "online"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                timeout=STEP_S,
                check=True,
            )

    def _keep_state(self) -> None:
        """A copy of what is known of the deliveries, to be put back later."""
        target = self.directory / f"delivery-{len(self._copies)}"
        with contextlib.suppress(OSError, shutil.Error):  # files come and go
            shutil.copytree(self.run.delivery, target)
        if target.exists():
            self._copies.append(target)

    def _harm(self, harm: Harm) -> None:
        name, state = harm.tracker, self.run.delivery
        if harm.kind == "store damaged":
            self._damage(harm)
            return
        if harm.kind == "store deleted":
            for path in self._store(name):
                path.unlink(missing_ok=True)
            return
        files = [state / f"{name}.json", *([state / f"{name}.order"] if "order" in harm.kind else [])]
        for path in files:
            path.unlink(missing_ok=True)
        if harm.kind.startswith("older") and self._copies:
            copy = self._copies[int(harm.chance * len(self._copies))]
            for path in files:
                if (copy / path.name).exists():
                    shutil.copy(copy / path.name, path)

    def _store(self, tracker: str) -> list[Path]:
        """The files of what a tracker has; none where W&B's server has it, which forgets nothing."""
        if tracker == "trackio":
            return list((self.shared.home / "trackio").glob(f"{self.name}.db*"))
        if tracker == "mlflow":
            return list(self.directory.glob("own-mlflow.db*"))
        if tracker == "tensorboard":
            return list(self.run.path.rglob("events.out.tfevents*"))
        if tracker == "json":
            logs = [path for path in self.run.path.glob("*.json") if path.name != "run.json"]
            return [*logs, *self.run.path.glob("json/*")]
        return []

    def _damage(self, harm: Harm) -> None:
        """One byte of a file of the tracker's own changed, or some of its rows deleted."""
        if harm.tracker == "trackio":
            with contextlib.closing(sqlite3.connect(self.shared.home / "trackio" / f"{self.name}.db")) as base, base:
                base.execute("DELETE FROM metrics WHERE run_id = ? AND id % 7 = 3", [self.id])
        folders = {"json": ("json", "."), "tensorboard": ("tensorboard",)}.get(harm.tracker, ())
        found = [path for folder in folders for path in sorted(self.run.path.joinpath(folder).rglob("*"))]
        logs = [path for path in found if path.suffix in (".part", ".trackers") or path.name.startswith(self.name)]
        files = [path for path in logs if path.is_file() and path.stat().st_size > 1]
        if files:
            path = files[int(harm.chance * len(files))]
            content = bytearray(path.read_bytes())
            place = int(harm.chance * 7919) % len(content)
            content[place] = content[place] ^ 1
            path.write_bytes(content)

    def _sync_whole(self, *options: str) -> None:
        code = self._sync(*options).wait(SYNC_S)
        if code or not self._delivered():
            states = {name: (entry["state"], entry["error"]) for name, entry in self._report().items()}
            raise RuntimeError(f"`trackers sync` ended with {code}: {states}")

    def _delivered(self) -> bool:
        return all(entry["state"] == "delivered" for entry in self._report().values())

    def _report(self) -> dict[str, dict[str, Any]]:
        return delivery_report(self.run, self.plan.trackers)

    def _examine(self) -> None:
        said = read_said(self.said)
        info = self.run.read_info()
        runs: dict[str, Any] = {}
        if self._url:
            with urllib.request.urlopen(f"{self._url}/_runs", timeout=60) as answer:
                runs = json.load(answer)
        statuses = self._statuses(said)
        self.outcome.calls = len(said.returned)
        self.outcome.records = records(0, len(said.returned))
        if self.outcome.records < LEAST_RECORDS:
            raise RuntimeError(f"the round has {self.outcome.records} records only")
        for path in self.directory.glob("user-*.bin"):
            if path.read_bytes().replace(b"the user's own line\n", b""):
                raise RuntimeError(f"somebody else wrote to {path}")
        if wrong := audit_files(self.run.path, said):
            raise RuntimeError("; ".join(wrong))
        deleted = {harm.tracker for harm in self.plan.harms if harm.kind == "store damaged"}
        with _audit:
            for tracker in self.plan.trackers:
                try:
                    stored = read(
                        tracker,
                        info,
                        mlflow_uri=self.mlflow_uri,
                        wandb_runs=runs,
                        deleted=tracker in deleted,
                        attempts=len(self.plan.attempts),
                    )
                    self.outcome.findings.append(audit(tracker, stored, self.plan.seed, said, statuses))
                except Exception as error:
                    lines = [f"the store can't be read: {type(error).__name__}: {error}"]
                    self.outcome.findings.append(Findings(tracker, lost=len(said.returned), lines=lines))

    def _statuses(self, said: Said) -> set[str]:
        last = self.plan.attempts[-1]
        words = said.words[len(said.words) - said.words[::-1].index("ready") :]
        ended = "failed" if last.end == "fail" else "finished"
        if last.end in LEAVES:
            ended = "preempted" if "preempting" in words else LEAVES[last.end][1]
        killed = "preempted" if "preempting" in words else "crashed"
        if "finished" in words or (last.end in LEAVES and not self._killed_training):
            return {ended}
        if "finishing" in words:
            return {ended, killed}
        return {killed}

    def _processes(self, which: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                own = process.environ().get(MARK) == self._mark or self._is_fork(process)
                if own and process.status() != psutil.STATUS_ZOMBIE and which(process):
                    found.append(process)
        return found

    def _is_fork(self, process: psutil.Process) -> bool:
        """Whether it is a helper of the round's run that the agent's relay or the agent has forked."""
        words = process.cmdline()
        return words[1:3] == ["-c", "trackers"] and words[4:5] == [str(self.run.path)]

    def _kill(self, which: Callable[[psutil.Process], bool]) -> list[psutil.Process]:
        """SIGKILL, again until none is left that was there or was started meanwhile."""
        killed: list[psutil.Process] = []
        for _ in range(20):
            victims = [process for process in self._processes(which) if process not in killed]
            if not victims:
                break
            for process in victims:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            killed += victims
        self.outcome.kills += len(killed)
        return killed

    def _wait(self, what: Callable[[], bool], name: str) -> None:
        deadline = time.monotonic() + STEP_S
        while not what():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {STEP_S:g} s for {name}")
            if self._training is not None and self._training.poll() is not None and not self._killed_training:
                if what():
                    return
                raise RuntimeError(f"training ended early: see {self.directory}/training.log")
            time.sleep(0.01)


def _flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def _role(process: psutil.Process) -> tuple[str, str]:
    """What a process of ours is: relay, delivery (and of which tracker), service (W&B's), sync, training."""
    words = process.cmdline()
    if any("wandb-core" in word for word in words[:2]):
        return "service", ""
    if len(words) > 4 and words[1] == "-c" and words[3] in ("relay", "delivery"):
        return words[3], json.loads(words[5])["tracker"] if words[3] == "delivery" else ""
    if "tests.chaos.train" in words:
        return "training", ""
    return ("sync" if "sync" in words else ""), ""
