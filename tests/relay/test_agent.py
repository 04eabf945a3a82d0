"""The host agent: runs after the first are its forks; nothing depends on its life, and nobody else can speak to it."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import threading
import time
import types
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import psutil
import pytest

import trackers
from tests.fakes.receivers import webhook
from tests.helpers import wait_for
from tests.stores import read_json, read_tensorboard
from trackers.journal import helper_process
from trackers.journal.detached_helper import CODE, NAME
from trackers.journal.lease import read_holder
from trackers.journal.run_directory import RunDirectory
from trackers.relay.agent import client as agent_client
from trackers.relay.agent import endpoint, relays, succession
from trackers.relay.agent import server as agent_server
from trackers.relay.agent.client import AgentRelay
from trackers.relay.agent.start import AgentPlan, Starter
from trackers.relay.agent.turns import TIMES, Turns
from trackers.relay.agent.work_slots import NEW
from trackers.relay.delivery.cursor_file import delivery_report, read_account
from trackers.support import environments, processes
from trackers.support.secret_names import Secrecy, meaning
from trackers.tracker import RunInfo

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: only there are processes forked so")
NAMES = ("json", "tensorboard")
LIMIT_S = 60.0


until = functools.partial(wait_for, seconds=LIMIT_S)


class Place:
    """Where this test's agents listen."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def sockets(self) -> list[Path]:
        return sorted(self.path.glob("*.sock"))

    def agents(self) -> list[psutil.Process]:
        """Agents that live. A fork has its agent's arguments until it writes its own."""
        found = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if words[3:5] == ["agent", str(self.path)] and process.status() != psutil.STATUS_ZOMBIE:
                    found[process.pid] = (process, process.ppid())
        return [process for process, parent in found.values() if parent not in found]

    def next_agent(self, killed: psutil.Process) -> psutil.Process:
        """The one that comes after one that was killed, once it listens. Where two runs start one each, one ends."""
        (found,) = until(lambda: len(others := [one for one in self.agents() if one.pid != killed.pid]) == 1 and others)
        until(lambda: self.sockets() and self.path.stat().st_mtime > found.create_time())
        return found

    def agent(self) -> psutil.Process:
        """The one that listens."""
        until(self.sockets)
        (found,) = self.agents()
        return found


@pytest.fixture
def agents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    """A place for agents of this test alone; they are ended after it, and have left no file then."""
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("TRACKER_AGENT", "y")
    found = Place(runtime / "trackers")
    yield found
    left = found.agents()
    for process in left:
        process.terminate()
    psutil.wait_procs(left, LIMIT_S)
    assert not found.path.exists(), list(found.path.iterdir())


def begin() -> Any:
    """A run that has logged something."""
    run = trackers.init(NAMES, project="p")
    run.log({"loss": 0.5})
    return run


def relay(run: Any) -> Any:
    """What its client knows of its relay, once that has said its pid."""
    process = run._recorder.relay._process
    until(lambda: process.poll() is not None or process.pid)
    return process


def is_delivered(run: Any, names: tuple[str, ...] = NAMES) -> bool:
    """Whether each tracker has everything, and knows how the run ended."""
    report = delivery_report(RunDirectory(Path(run.dir)), names)
    return [entry["state"] for entry in report.values()] == ["delivered"] * len(names)


def delivery(run: Any, name: str, other_than: int = 0) -> int:
    """The process that delivers to a tracker, once there is one."""
    path = RunDirectory(Path(run.dir)).delivery / f"{name}.lease"

    def found() -> int:
        holder = read_holder(path)
        return 0 if holder is None or holder.dead() or holder.pid == other_than else holder.pid

    return int(until(found))


def first_run() -> None:
    """A run from start to end."""
    begin().finish()


@pytest.mark.slow
@pytest.mark.processes
def test_second_run_is_a_fork_of_what_the_first_one_left(agents: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relay and deliveries are forks with environment, arguments and parents as interpreters of their own have them;
    no process that outlives the run shows its credentials (/proc/PID/environ)."""
    for name in ("DATABRICKS_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS", "TRACKIO_WRITE_TOKEN", "HF_HUB_TOKEN", "MY_SECRET"):
        monkeypatch.setenv(name, "said-to-nobody")
    run = begin()
    assert not isinstance(relay(run), AgentRelay)
    run.finish()
    agent = agents.agent()
    assert [f"{name}.sock" for name in endpoint.living()] == [path.name for path in agents.sockets()]
    run = begin()
    process = relay(run)
    assert isinstance(process, AgentRelay)
    assert psutil.Process(process.pid).ppid() == agent.pid
    for name in NAMES:
        found = psutil.Process(delivery(run, name))
        assert found.ppid() == process.pid
        words = found.cmdline()
        assert words[:5] == [sys.executable, "-c", "trackers", "delivery", str(Path(run.dir).resolve())]
        assert json.loads(words[5])["tracker"] == name
        assert {os.readlink(f"/proc/{found.pid}/fd/{fd}") for fd in (1, 2)} == {
            str(Path(run.dir).resolve() / "relay.log")
        }
    assert os.getsid(process.pid) == process.pid
    for one in (agent, *agent.children(recursive=True)):
        assert "said-to-nobody" not in one.environ().values(), one
    killed = delivery(run, "json")
    os.kill(killed, signal.SIGKILL)
    again = psutil.Process(delivery(run, "json", other_than=killed))
    assert again.ppid() == process.pid
    assert again.cmdline()[2] != "trackers", "in the place of a fork that died comes an interpreter of its own"
    run.log({"loss": 0.25})
    run.finish()
    assert is_delivered(run)
    assert process.poll() == 0
    monkeypatch.setenv("TRACKER_AGENT", "n")
    run = begin()
    assert not isinstance(relay(run), AgentRelay)
    run.finish()
    assert agents.agents() == [agent]


def interpreter(place: Path) -> Path:
    """Another interpreter, which finds the packages of this one."""
    venv.create(place, symlinks=True)
    (site,) = place.glob("lib/python*/site-packages")
    (site / "shared.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
    return place / "bin/python"


def run_delivered_by(agents: Place, python: Path, other_than: int = 0) -> tuple[Any, psutil.Process, psutil.Process]:
    """A run, its delivery to TensorBoard and the agent of that interpreter which forked it. Where that agent is too
    busy to answer, the delivery is an interpreter's: then the next run."""

    def begun() -> Any:
        run = begin()
        found = psutil.Process(delivery(run, "tensorboard"))
        parent = found.parent()
        above = parent and [parent, *parent.parents()]
        for agent in agents.agents():
            if agent in (above or ()) and agent.cmdline()[0] == str(python) and agent.pid != other_than:
                return run, found, agent
        return run.finish()

    found: tuple[Any, psutil.Process, psutil.Process] = until(begun)
    return found


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("made", [False, True], ids=["named", "made"])
def test_delivery_by_another_interpreter_is_a_fork_of_its_agent(
    agents: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: bool
) -> None:
    """The second run's delivery has that interpreter's packages loaded, and its own session, environment and niceness
    of a delivery; one that is killed is replaced, the agent's death costs nothing, and the relay's ends it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "training"))
    monkeypatch.setenv("TRACKER_NICE", "7")
    python = interpreter(environments.root() / "tensorboard-1" if made else tmp_path / "other")
    monkeypatch.setenv("TRACKER_PYTHON", f"tensorboard={python}")
    run, found, other = run_delivered_by(agents, python)
    process = relay(run)
    assert ("PYTHONPATH" in other.environ()) is not made
    assert os.getsid(found.pid) == found.pid
    assert json.loads(found.cmdline()[5])["tracker"] == "tensorboard"
    assert found.exe() == os.path.realpath(python)
    assert os.sched_getscheduler(found.pid) == os.SCHED_BATCH
    assert psutil.Process(delivery(run, "json")).ppid() == process.pid

    os.kill(found.pid, signal.SIGKILL)
    again = psutil.Process(delivery(run, "tensorboard", other_than=found.pid))
    assert again.ppid() == process.pid, "in the place of a fork that died comes an interpreter of its own"
    run.log({"loss": 0.25})
    run.finish()
    assert is_delivered(run)

    run, _, other = run_delivered_by(agents, python)
    os.kill(other.pid, signal.SIGKILL)
    run.log({"loss": 0.25})
    run.finish()
    assert is_delivered(run)
    info = RunDirectory(Path(run.dir)).read_info()
    assert [point.value for point in read_tensorboard(info).metrics["loss"]] == [0.5, 0.25]

    run, found, _ = run_delivered_by(agents, python, other_than=other.pid)
    process = relay(run)
    os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs([found], LIMIT_S)
    assert not found.is_running()
    run.finish()
    assert is_delivered(run)


def role_of_parent(run: Any) -> str:
    """What forked a run's relay: "agent", "relays" (of the agent's); "" where it is an interpreter of its own."""
    process = relay(run)
    process.poll()
    with contextlib.suppress(psutil.Error):
        parent = psutil.Process(process.pid).parent() if process.pid else None
        words = parent.cmdline() if parent is not None else []
        return words[3] if len(words) > 3 and words[1] == "-c" else ""
    return ""


@pytest.mark.processes
def test_runs_that_begin_together_wait_for_one_agent_and_are_its_forks(agents: Place) -> None:
    """No relay but the agent's forks is left, which training hears of as of any; no trace of the waiting is left."""
    runs = [trackers.init("json", project="p", id=f"r{number}", reinit="create_new") for number in range(3)]
    for run in runs:
        until(lambda run=run: role_of_parent(run))
        run.log({"loss": 0.25})
    assert len(agents.agents()) == 1
    process = relay(runs[0])
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.poll() is not None)
    for run in runs:
        run.finish(timeout=LIMIT_S)
        assert is_delivered(run, ("json",))
    assert [relay(run).returncode for run in runs[1:]] == [0, 0]
    assert not list(agents.path.glob("*.places"))


@pytest.mark.processes
def test_agent_killed_while_runs_begin_together_costs_nothing(agents: Place) -> None:
    """Those that wait have another one started, or begin alone."""
    runs = [trackers.init("json", project="p", id=f"r{number}", reinit="create_new") for number in range(3)]
    (first,) = until(agents.agents)
    first.kill()
    for run in runs:
        run.log({"loss": 0.25})
    for run in runs:
        run.finish(timeout=LIMIT_S)
        assert is_delivered(run, ("json",))


@pytest.mark.slow
@pytest.mark.processes
def test_runs_with_pictures_one_after_the_other_reach_wandb(
    agents: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W&B's client keeps media in a directory that it makes as it is imported, and deletes at its process's end: each
    fork has its own, and nothing of it is left."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    refused = []
    for number in range(3):
        run = trackers.init("wandb", project="p", name=f"n{number}")
        run.log({"picture": trackers.Image(np.full((4, 4, 3), number, np.uint8)), "loss": 0.5})
        run.finish(timeout=LIMIT_S)
        (report,) = delivery_report(RunDirectory(Path(run.dir)), ["wandb"]).values()
        refused.append((report["state"], report["rejected"]))
        assert len(list(Path(run.dir, "wandb").rglob("media/images/picture_*.png"))) == 1
        agents.agent()
        if number:
            assert isinstance(relay(run), AgentRelay)
    assert refused == [("delivered", 0)] * 3
    (agent,) = agents.agents()
    agent.terminate()
    agent.wait(LIMIT_S)
    until(lambda: not list(temporary.glob("*wandb*")))


@pytest.mark.slow
@pytest.mark.processes
def test_agent_killed_amid_a_run_costs_nothing(agents: Place) -> None:
    """The run's relay goes on; the next run starts its own, and a new agent for those after it."""
    first_run()
    agent = agents.agent()
    run = begin()
    process = relay(run)
    assert isinstance(process, AgentRelay)
    until(lambda: process.pid)
    agent.kill()
    run.log({"loss": 0.25})
    assert process.poll() is None
    run.finish()
    assert is_delivered(run)
    assert process.poll() == 0
    run = begin()
    assert not isinstance(relay(run), AgentRelay)
    run.finish()
    assert is_delivered(run)
    assert until(lambda: [one for one in agents.agents() if one.pid != agent.pid])
    until(agents.sockets)
    assert len(list(agents.path.iterdir())) == 2


def begin_light() -> Any:
    """A run of a tracker that needs no package."""
    run = trackers.init("json", project="p")
    run.log({"loss": 0.5})
    return run


@pytest.mark.slow
@pytest.mark.processes
def test_runs_without_a_vendors_package_are_forks_of_what_has_loaded_none(agents: Place) -> None:
    """An agent that has loaded packages is large, its forks slow to begin and to end. The small one may die, too."""
    first_run()
    agent = agents.agent()
    run = begin_light()
    process = relay(run)
    assert isinstance(process, AgentRelay)
    parent = psutil.Process(process.pid).parent()
    assert parent is not None
    assert parent.cmdline()[3] == "relays"
    assert parent.ppid() == agent.pid
    assert os.sched_getscheduler(parent.pid) == os.SCHED_OTHER
    assert "/google/_upb/" in Path(f"/proc/{agent.pid}/maps").read_text()
    assert "/google/_upb/" not in Path(f"/proc/{parent.pid}/maps").read_text()
    assert psutil.Process(delivery(run, "json")).ppid() == process.pid
    run.finish()
    assert is_delivered(run, ("json",))
    assert process.poll() == 0

    parent.kill()
    until(lambda: not alive(parent))
    run = begin_light()
    process = relay(run)
    assert psutil.Process(process.pid).ppid() == agent.pid, "without that parent the agent forks it"
    run.finish()
    assert process.poll() == 0


@pytest.mark.slow
@pytest.mark.processes
def test_parent_of_relays_ends_with_the_last_of_them_once_the_agent_is_gone(agents: Place) -> None:
    """And tells how it ended, which the agent can't any more."""
    first_run()
    agent = agents.agent()
    run = begin_light()
    process = relay(run)
    parent = psutil.Process(process.pid).parent()
    assert parent is not None
    assert parent.cmdline()[3] == "relays"
    agent.kill()
    run.log({"loss": 0.25})
    run.finish()
    assert process.returncode == 0
    assert process._code == 0
    until(lambda: not alive(parent))
    assert is_delivered(run, ("json",))
    first_run()
    agents.next_agent(agent)


@pytest.mark.processes
def test_parent_of_relays_that_hangs_is_asked_for_no_more(agents: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run waits for it in vain; relays of those after it are the agent's forks. It leaves no zombie."""
    monkeypatch.setattr(agent_client, "ANSWER_S", 3.0)
    first_run()
    agent = agents.agent()
    (parent,) = agent.children()
    assert parent.cmdline()[3] == "relays"
    parent.suspend()
    run = begin_light()
    assert not relay(run).pid
    run.finish()
    assert is_delivered(run, ("json",))
    run = begin_light()
    process = relay(run)
    assert psutil.Process(process.pid).ppid() == agent.pid
    run.finish()
    assert is_delivered(run, ("json",))
    assert process.poll() == 0
    parent.kill()
    until(lambda: not agent.children())


def test_parent_of_relays_loads_what_their_deliveries_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for all; which trackers runs have it learns from their requests."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line, other = socket.socketpair()
    ours.setblocking(False)
    loaded: list[str] = []
    monkeypatch.setattr(relays.registry, "load", loaded.append)
    monkeypatch.setattr(relays.forked_helper, "fork_listener", lambda *_, **__: (mock.Mock(poll=lambda: None), ours))
    parent = relays.LightParent(lambda arguments: 0)
    parent.begin(())
    forks = mock.Mock()
    with ours, theirs, line, other:
        for name in ("csv", "json"):
            assert parent.hand_over(line, {"passed": [1]}, [name], [])
            assert parent.silent_s > 0
            assert relays._fork_next(theirs, forks, ())
            parent.poll()
            assert parent.silent_s == 0
        assert loaded == ["csv", "json"]
        for call in forks.fork.call_args_list:
            assert call.args[1:] == ({"passed": [1]}, [], ())
            call.args[0].close()
        parent.close()
        assert not relays._fork_next(theirs, forks, ())


def alive(process: psutil.Process) -> bool:
    """Whether it hasn't ended; one that nobody asked for has."""
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def working(runs: list[Any]) -> list[psutil.Process]:
    """Deliveries of these runs."""
    found = []
    for run in runs:
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(relay(run).pid).children():
                with contextlib.suppress(psutil.Error):
                    if process.cmdline()[3:4] == ["delivery"] and process.status() != psutil.STATUS_ZOMBIE:
                        found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.processes
def test_deliveries_of_many_runs_take_turns(agents: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """One place for four of them: never two at once, each has its turn while the runs go on; a delivery and the agent
    that are killed amid this cost nothing, and every value is in every store once."""
    monkeypatch.setenv("TRACKER_AGENT_DELIVERIES", "1")
    first_run()
    agent = agents.agent()
    runs = [trackers.init(NAMES, project="p", reinit="create_new") for _ in range(2)]
    for run in runs:
        run.log({"loss": 0.5})
    assert all(isinstance(relay(run), AgentRelay) for run in runs)
    journals = [RunDirectory(Path(run.dir)) for run in runs]
    most = 0

    def all_have(count: int) -> bool:
        nonlocal most
        most = max(most, len(working(runs)))
        return all(read_account(run, name).delivered >= count for run in journals for name in NAMES)

    until(lambda: all_have(2))  # the run's start is a record, too
    for run in runs:
        run.log({"loss": 0.25})
    for process in until(lambda: working(runs)):
        process.kill()
    runs[0].finish()
    most = max(most, len(working(runs)))
    assert most == 1
    agent.kill()
    runs[1].finish()
    for run, journal in zip(runs, journals, strict=True):
        assert is_delivered(run)
        for read in (read_json, read_tensorboard):
            assert [point.value for point in read(journal.read_info(), {}).metrics["loss"]] == [0.5, 0.25]
    agents.next_agent(agent)


@pytest.mark.slow
@pytest.mark.processes
def test_runs_of_an_agent_share_one_sampler(agents: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the agent's fork, outlives it, and ends with the last of its runs."""
    first_run()
    agent = agents.agent()
    monkeypatch.setenv("TRACKER_SAMPLE", "y")
    runs = [trackers.init(NAMES, project="p", reinit="create_new") for _ in range(2)]
    streams = [Path(run.dir, "streams", "sampler-0.1.jsonl") for run in runs]
    until(lambda: all(stream.exists() and stream.stat().st_size for stream in streams))
    roles = [process.cmdline()[3] for process in agent.children(recursive=True)]
    assert roles.count("sampler") == 1
    assert "sample" not in roles
    (sampler,) = [process for process in agent.children() if process.cmdline()[3] == "sampler"]
    agent.kill()
    for run, stream in zip(runs, streams, strict=True):
        run.finish()
        assert b"system.memory_percent" in stream.read_bytes()  # what needs two readings may lack in so short a run
        assert is_delivered(run)
    sampler.wait(LIMIT_S)
    agents.next_agent(agent)


@pytest.mark.slow
@pytest.mark.processes
def test_agent_ends_when_packages_change_and_when_nobody_asks(
    agents: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has loaded may be of another version then; a package that starts threads is left out beforehand."""
    packages = tmp_path / "packages"
    (packages / "one-1.dist-info").mkdir(parents=True)
    (packages / "sitecustomize.py").write_text(
        "import sys, threading, time\n"
        "class Finder:\n"
        "    def find_spec(self, name, *more):\n"
        "        if name == 'tensorboard' and 'agent' in sys.argv:\n"
        "            threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(packages))
    first_run()
    agent = agents.agent()
    assert '"left_out":["tensorboard"]' in agent.cmdline()[-1]
    assert not agent.children(), "it has asked how the forks of what it was before ended"
    run = begin()
    assert isinstance(relay(run), AgentRelay)
    run.finish()
    assert is_delivered(run)
    (packages / "one-1.dist-info").rename(packages / "one-2.dist-info")
    monkeypatch.setenv("TRACKER_AGENT_IDLE", "1")
    run = begin()
    assert not isinstance(relay(run), AgentRelay)
    run.finish()
    agent.wait(LIMIT_S)
    until(lambda: not agents.agents() and not agents.path.exists())


def test_directory_that_others_can_write_to_is_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner, its mode and a link in its place are looked at; nothing is asked there."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = endpoint.directory()
    assert path == tmp_path / "trackers"
    os.close(endpoint.open_directory(path, make=True))
    assert path.stat().st_mode & 0o777 == 0o700
    path.chmod(0o750)
    with pytest.raises(PermissionError, match="isn't this user's alone"):
        endpoint.open_directory(path)
    assert agent_client.fork_relay("k", {}, {}) is None
    path.rmdir()
    (tmp_path / "other").mkdir(mode=0o700)
    path.symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match=r"symbolic link|Not a directory"):
        endpoint.open_directory(path, make=True)
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert endpoint.directory() == tmp_path / f"trackers-{os.geteuid()}"


@pytest.mark.skipif(os.name == "posix" and os.geteuid() != 0, reason="needs root")
def test_another_users_socket_and_directory_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who listens must be the same user, whatever the directory says."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    path = endpoint.directory()
    folder = endpoint.open_directory(path, make=True)
    lines: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(endpoint.address(folder, "k"))
        os.seteuid(65534)
        try:
            door.listen()
        finally:
            os.seteuid(0)

        def greet() -> None:
            lines.append(door.accept()[0])
            with contextlib.suppress(OSError):
                lines[0].sendall(agent_client.READY)

        greeting = threading.Thread(target=greet)
        greeting.start()
        assert agent_client.fork_relay("k", {}, {}) is None
        greeting.join()
        with lines[0], contextlib.suppress(ConnectionError):
            assert lines[0].recv(1) == b""  # it was told nothing
    os.close(folder)
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(NotADirectoryError):
        endpoint.open_directory(tmp_path / "link")
    path.chmod(0o750)
    with pytest.raises(PermissionError):
        endpoint.open_directory(path)
    path.chmod(0o700)
    os.chown(path, 65534, 65534)
    with pytest.raises(PermissionError):
        endpoint.open_directory(path)


def test_another_user_who_asks_is_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent closes a connection of somebody else, who could only have it by the socket's directory."""
    agent: Any = types.SimpleNamespace(_installed=[], _files=agent_server._modified([]), _accepted={}, _outdated=False)
    for uid, answer in ((os.geteuid(), agent_client.READY), (65534, b"")):
        monkeypatch.setattr(endpoint, "peer", lambda line, uid=uid: uid)
        with socket.socket(socket.AF_UNIX) as door, socket.socket(socket.AF_UNIX) as asking:
            door.bind(str(tmp_path / str(uid)))
            door.listen()
            door.setblocking(False)
            asking.connect(str(tmp_path / str(uid)))
            agent_server.Agent._accept(agent, door)
            assert asking.recv(1) == answer
    for asking in agent._accepted.values():
        asking.close()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"[" * 200_000, b'{"places": []}', b'{"idle_s": 1}'])
def test_request_that_is_none_ends_its_connection_alone(text: bytes) -> None:
    """Nested however deep, it doesn't end the agent, which other runs use."""
    agent: Any = types.SimpleNamespace(turns=types.SimpleNamespace(add=print))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        asking = agent_server.Asking(ours)
        sending = threading.Thread(target=theirs.sendall, args=(agent_client.LENGTH.pack(len(text)) + text,))
        sending.start()
        until(asking.is_whole)
        agent_server.Agent._answer(agent, ours, bytes(asking.text[agent_client.LENGTH.size :]), asking.descriptors)
        sending.join()
        assert ours.fileno() == -1


def test_request_in_parts_is_waited_for_by_nobody() -> None:
    """Connections that say nothing, half a head, half a request, or a byte now and then, keep the agent from nothing:
    it reads what is there, and closes each a second after it came, with the descriptors that came along."""
    whole, answered = agent_client.LENGTH.pack(13) + b'{"places": 3}', []
    agent: Any = types.SimpleNamespace(_accepted={})
    agent._answer = lambda line, text, descriptors: answered.append((bytes(text), len(descriptors)))
    pairs = [socket.socketpair() for _ in range(80)]
    reader, writer = os.pipe()
    for number, (ours, theirs) in enumerate(pairs):
        agent._accepted[ours.fileno()] = agent_server.Asking(ours)
        begun = whole[: (0, 2, 4, 9)[number % 4]]
        if begun:
            socket.send_fds(theirs, [begun], [writer])
    os.close(writer)

    def read(later_s: float = 0.0) -> None:
        agent_server.Agent._read_requests(agent, set(agent._accepted), time.monotonic() + later_s)

    with contextlib.ExitStack() as opened:
        for _, theirs in pairs:
            opened.enter_context(theirs)
        began = time.monotonic()
        read()
        assert len(agent._accepted) == 80
        for at in range(9, len(whole)):  # byte by byte
            pairs[3][1].sendall(whole[at : at + 1])
            read()
        assert answered == [(b'{"places": 3}', 1)]
        assert time.monotonic() - began < 40, "nobody is waited for, a second each"
        read(agent_server.PATIENCE_S + LIMIT_S)
        assert not agent._accepted
        assert os.read(reader, 1) == b"", "no descriptor is left"
        assert [theirs.recv(1) for _, theirs in pairs[4:]] == [b""] * 76
    pairs[3][0].close()
    os.close(reader)


def test_key_is_of_what_a_fork_would_inherit(tmp_path: Path) -> None:
    """What packages read as they are imported makes another agent; a run's own settings and credentials don't."""
    base = {"HOME": "/home/a", "PATH": "/bin", "WANDB_API_KEY": "k", "MLFLOW_TRACKING_URI": "sqlite:///a", "LR": "1"}
    own = endpoint.key(base, ())
    assert (
        endpoint.key({**base, "WANDB_API_KEY": "l", "MLFLOW_TRACKING_URI": "b", "LR": "2", "HF_TOKEN": "t"}, ()) == own
    )
    others = [{"HOME": "/home/b"}, {"TRACKIO_DIR": "/x"}, {"PYTHONPATH": "/y"}, {"LD_PRELOAD": "z"}, {"TMPDIR": "/t"}]
    assert len({own, *(endpoint.key({**base, **other}, ()) for other in others)}) == len(others) + 1
    assert endpoint.environment(base) == {"HOME": "/home/a", "PATH": "/bin"}
    for python in ("one", "two"):
        (tmp_path / python).touch()
    assert len({own, *(endpoint.key(base, (), str(tmp_path / python)) for python in ("one", "two"))}) == 3
    path = {**base, "PYTHONPATH": str(tmp_path)}
    assert endpoint.key(path, (str(tmp_path),)) != endpoint.key(path, (str(tmp_path / "elsewhere"),))


def test_agent_has_named_variables_only() -> None:
    """Whatever a run's environment has, none of its credentials stays in a process that outlives the run; where a
    variable that packages read as they are imported has one, the run does without an agent."""
    kept = {"HOME": "/home/a", "HF_HOME": "/data/hf", "OMP_NUM_THREADS": "4"}
    of_the_run = dict.fromkeys(
        ("DATABRICKS_TOKEN", "OTEL_EXPORTER_OTLP_HEADERS", "TRACKIO_WRITE_TOKEN", "HF_HUB_TOKEN", "WANDB_API_KEY",
         "WANDB_X_EXTRA_HTTP_HEADERS", "MLFLOW_TRACKING_TOKEN", "_MLFLOW_AUTH", "AWS_SECRET_ACCESS_KEY", "SSL_PASSWORD",
         "PYTHON_REGISTRY", "LC_TELEPHONE_PIN", "LD_SECRET", "XDG_VAULT", "GRADIO_ANALYTICS_KEY", "HTTPS_PROXY"),
        "said to nobody",
    )  # fmt: skip
    assert endpoint.environment({**kept, **of_the_run}) == kept
    assert not any(meaning(name) > Secrecy.WEAK for name in endpoint.NAMES - {"HF_HUB_DISABLE_IMPLICIT_TOKEN"})
    with pytest.raises(PermissionError, match="has a credential"):
        endpoint.key({**kept, "HF_ENDPOINT": "https://me:opensaysme@mirror.example.org"}, ())


LOOKS = """
import os, sys
from trackers.backends import registry
from trackers.relay.agent import endpoint
found = [registry.load(name) for name in ("wandb", "trackio", "tensorboard")]
asked = set()
get = type(os.environ).__getitem__
def look(self, name):
    asked.add(os.fsdecode(name))
    return get(self, name)
type(os.environ).__getitem__ = look
for one in found:
    one.preload()
print(*sorted(asked.difference(endpoint.environment(dict.fromkeys(asked, "")))))
"""
IRRELEVANT = {
    "ANDROID_DATA", "CLAUDE_CONFIG_DIR", "OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OAUTH_SCOPES",
    "OPENID_PROVIDER_URL", "SHELL", "PSUTIL_DEBUG", "SOURCE_DATE_EPOCH", "TRACKIO_WRITE_TOKEN",
    "_PYTHON_HOST_PLATFORM",  # by Python 3.14, where Python itself is built for another machine
}  # fmt: skip
"""Variables that packages read as they are imported, but for what no delivery does."""


@pytest.mark.slow
def test_variables_that_packages_read_as_they_are_imported_are_in_the_key() -> None:
    """A fork of a process with other values of them wouldn't be what a new interpreter is."""
    base = {**endpoint.environment(dict(os.environ)), "PYTHONPATH": str(Path(trackers.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", LOOKS], env=base, capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) - IRRELEVANT == set()


def test_agent_that_ends_before_it_forks_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has said that it has time: the run starts its own relay all the same, and doesn't wait for the next look."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = endpoint.open_directory(endpoint.directory(), make=True)
    with socket.socket(socket.AF_UNIX) as door, open(os.devnull, "ab") as log:
        door.bind(endpoint.address(folder, "k"))
        door.listen()

        def serve() -> None:
            line, _ = door.accept()
            with line:
                line.sendall(agent_client.READY)
                line.recv(agent_client.LENGTH.size)

        agent = threading.Thread(target=serve)
        agent.start()
        assert agent_client.fork_relay("k", {}, {1: log.fileno()}) is None
        agent.join()
    os.close(folder)


def test_end_of_an_agent_is_not_the_end_of_its_relay() -> None:
    """Its word counts where it comes; without it, the relay is known by pid and start."""
    own = os.getpid(), processes.process_start(os.getpid())

    def client(*said: bytes, ended: bool) -> AgentRelay:
        ours, theirs = socket.socketpair()
        for part in said:
            theirs.sendall(part)
        lines.append(theirs)
        if ended:
            theirs.close()
        return AgentRelay(ours)

    lines: list[socket.socket] = []
    assert client(NAME.pack(*own), ended=True).poll() is None
    assert client(NAME.pack(*own), ended=False).poll() is None
    assert (
        client(NAME.pack(*own), CODE.pack(helper_process.SUPERSEDED), ended=False).poll() == helper_process.SUPERSEDED
    )
    assert client(NAME.pack(own[0], own[1] + 1), ended=True).poll() == 0
    assert client(NAME.pack(0, 0.0), ended=False).poll() == 1
    assert client(ended=True).poll() == 1
    waiting = client(ended=False)
    assert waiting.poll() is None
    assert waiting._line is not None
    number = waiting._line.number
    with open(os.devnull, "rb") as file:
        os.dup2(file.fileno(), number)  # training closed all descriptors and opened a file
    assert waiting.poll() == 1
    os.close(number)
    for line in lines:
        line.close()


@pytest.mark.slow
@pytest.mark.processes
def test_only_one_agent_of_a_key_lives(agents: Place) -> None:
    """Of several that are started at once one stays."""
    environment = endpoint.environment(helper_process.environment())
    words = ["agent", str(agents.path), "k", '{"idle_s":1}']
    started = [
        psutil.Popen(helper_process.command(words), env=environment, cwd="/", start_new_session=True) for _ in range(3)
    ]
    codes = [process.wait(LIMIT_S) for process in started]
    assert codes == [0, 0, 0]
    assert not agents.path.exists()


@pytest.mark.slow
@pytest.mark.processes
def test_alerts_of_an_agents_run_are_sent(agents: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork that sends has the secret address of its own run, and the same command line as others: without it."""
    first_run()
    agents.agent()
    with webhook("hang") as place:
        run = trackers.init(
            NAMES, project="p", options={"TRACKER_ALERTS": "loss > 1", "TRACKER_ALERT_TO": f"{place.url}/s3cr3t"}
        )
        assert isinstance(relay(run), AgentRelay)
        run.log({"loss": 2.0}, step=0)
        until(lambda: place.got)
        senders = [one for one in psutil.Process(relay(run).pid).children() if "alerts" in one.cmdline()]
        assert [one.cmdline()[3:5] for one in senders] == [["alerts", str(Path(run.dir).resolve())]]
        assert "s3cr3t" not in " ".join(senders[0].cmdline())
        place.ended.set()
        run.finish()
        assert is_delivered(run)
        assert [(path, body["title"]) for path, _, body in place.got][:1] == [("/s3cr3t", "loss > 1")]


@pytest.mark.processes
def test_agent_that_hangs_holds_up_no_run_and_is_killed_by_its_successor(
    agents: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deliveries that died while it hangs are started again without it; one that answers is left alone."""
    first_run()
    agent = agents.agent()
    folder = endpoint.open_directory(endpoint.directory())
    name = agents.sockets()[0].stem
    run = begin()
    process = relay(run)
    assert isinstance(process, AgentRelay)
    killed = {tracker: delivery(run, tracker) for tracker in NAMES}
    assert not succession.end_hung(folder, str(agents.path), name)
    agent.suspend()
    for pid in killed.values():
        os.kill(pid, signal.SIGKILL)
    run.log({"loss": 0.25})
    run.finish(timeout=LIMIT_S)
    assert is_delivered(run)
    monkeypatch.setattr(succession, "ANSWER_S", 0.1)
    assert not succession.end_hung(folder, "/elsewhere", name), "no agent of that place"
    assert agent.is_running()
    assert succession.end_hung(folder, str(agents.path), name)
    agent.wait(LIMIT_S)
    os.close(folder)
    first_run()
    agents.next_agent(agent)


def test_agent_whose_place_was_taken_away_leaves_its_successors_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock holds nothing once the file is another's, and a socket is removed by the one that made it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = endpoint.open_directory(endpoint.directory(), make=True)
    first = endpoint.lock(folder, "k")
    assert endpoint.holds_lock(folder, "k", first)
    os.unlink("k.lock", dir_fd=folder)
    second = endpoint.lock(folder, "k")
    assert [endpoint.holds_lock(folder, "k", fd) for fd in (first, second)] == [False, True]
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(endpoint.address(folder, "k"))
        path = endpoint.directory() / "k.sock"
        endpoint.remove_socket(folder, "k", path.stat().st_ino + 1)
        assert path.exists()
        endpoint.remove_socket(folder, "k", path.stat().st_ino)
        assert not path.exists()
    for fd in (first, second, folder):
        os.close(fd)


def test_relay_that_finds_no_place_or_an_agent_that_hangs_has_one_started_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One relay of a crowd does; the agent that comes doesn't give way while many wait for it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    plans: list[AgentPlan] = []

    def popen(words: list[str], **more: Any) -> Any:
        plans.append(msgspec.json.decode(words[-1], type=AgentPlan))
        return types.SimpleNamespace(poll=lambda: None)

    monkeypatch.setattr(subprocess, "Popen", popen)
    info = RunInfo(id="r", name="n", project="p", options={"TRACKER_NICE": 7})
    runs = [Turns("k", 1, times=TIMES._replace(look_s=0.0)) for _ in range(3)]
    starters = [Starter("k", info, ["json"], each) for each in runs]

    def tend() -> None:
        for each, starter in zip(runs, starters, strict=True):
            each.poll()
            each.request("json", 1, NEW)
            starter.poll()

    tend()
    tend()
    assert [(plan.nice, plan.succeeds) for plan in plans] == [(0, False)]
    runs[0].hung = True
    runs[1].slot_locks.close()
    starters[0].poll()
    assert [(plan.nice, plan.succeeds) for plan in plans[1:]] == [(0, True)]
    starters[0].start()
    assert [(plan.nice, plan.succeeds) for plan in plans[2:]] == [(7, True)]
    for each in runs:
        each.close()
