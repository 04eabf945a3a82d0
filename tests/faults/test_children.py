"""What a script sees of its children is what it would see without this package: it has none that it didn't start."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trackers.journal.detached_helper import CODE, KILLED, NAME, DetachedHelper
from trackers.support import processes

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import asyncio, json, multiprocessing, os, signal, subprocess, sys, time
import psutil
import trackers

signals = []
signal.signal(signal.SIGCHLD, lambda *_: signals.append(1))
signal.alarm(100)  # a wait that doesn't end is killed

def look(when):
    try:
        waited = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        waited = None
    children = [child.cmdline()[-3:] for child in psutil.Process().children(recursive=True)]
    found = waited, children, multiprocessing.active_children(), len(signals)
    assert found == (None, [], [], 0), (when, found)

def play(**more):
    run = trackers.init(os.environ["TRACKER"], project="p", name="n", **more)
    look("init")
    run.log({"loss": 1.0})
    run.log_artifact(__file__, name="script", type="code")
    look("log")
    return run

def own_children():
    for way in ("wait", "waitpid", "waitid"):
        pids = set()
        for _ in range(3):
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            pids.add(pid)
        seen = set()
        while True:
            try:
                seen.add({"wait": os.wait, "waitpid": lambda: os.waitpid(-1, 0),
                          "waitid": lambda: [os.waitid(os.P_ALL, 0, os.WEXITED).si_pid]}[way]()[0])
            except ChildProcessError:
                break
        assert seen == pids, (seen, pids)
    assert subprocess.run(["sh", "-c", "exit 3"]).returncode == 3
    worker = multiprocessing.get_context("fork").Process(target=int)
    worker.start()
    worker.join()
    assert worker.exitcode == 0

    async def one():
        return await (await asyncio.create_subprocess_exec("sh", "-c", "exit 4")).wait()

    assert asyncio.run(one()) == 4
    time.sleep(0)  # handlers run
    assert signals
    signals.clear()

run = play()
own_children()
look("children")
if "kill" in sys.argv:
    relay = run._recorder.relay._process
    while not relay.pid:
        relay.poll()
    os.kill(relay.pid, signal.SIGKILL)
    while run._recorder.relay._process is relay:
        run._recorder.relay.look_after()
    look("killed")
run.finish()
look("finish")
if "alone" in sys.argv:
    sys.exit()
run = play(id=run.id, resume="must")
own_children()
run.finish()
look("resumed")
"""


def see(folder: Path, *words: str, **variables: str) -> str:
    """Run the script, whose standard output is a pipe; returns what it printed."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKER": "json", "TRACKER_DIR": str(folder / "runs"), **variables}
    script = folder / "train.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(script), *words], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.processes
@pytest.mark.heavy
@pytest.mark.parametrize(
    ("words", "variables"),
    [
        ([], {"TRACKER_AGENT": "n"}),
        (["kill", "alone"], {"TRACKER_AGENT": "n", "TRACKER_CONSOLE_CAPTURE": "descriptors"}),
        pytest.param(["kill"], {"TRACKER": "json,csv,tensorboard"}, marks=pytest.mark.slow),
    ],
    ids=["interpreter", "console", "agent"],
)
def test_script_sees_its_own_children_only(words: list[str], variables: dict[str, str], tmp_path: Path) -> None:
    """By os.wait, waitpid(-1), SIGCHLD, multiprocessing, psutil and asyncio: after init, log, artifacts, the relay's
    death, finish and a resumption."""
    see(tmp_path, *words, **variables)


@pytest.mark.processes
@pytest.mark.heavy
@pytest.mark.parametrize("store", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["sampler", "carrier"])
def test_first_rank_of_another_node_sees_its_own_children_only(store: bool, tmp_path: Path) -> None:
    """Whether it starts its node's sampler, or what sends the node's streams to a store."""
    variables = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "TRACKER_RUN_ID": "r"}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "TRACKER_SAMPLE": "y"}
    variables |= {"TRACKER_DIR": f"file://{tmp_path}/store"} if store else {}
    see(tmp_path, "alone", **variables)
    assert list(tmp_path.rglob("relay.log"))


ORPHANS = """
import os, time
import trackers
run = trackers.init("json", project="p")
run.log({"loss": 1.0})
for _ in range(2):
    pids = set()
    for _ in range(3):
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        pids.add(pid)
    waited = []
    while True:
        try:
            waited.append(os.wait()[0])
        except ChildProcessError:
            break
    assert pids <= set(waited)
    assert len(waited) <= 4
    run.log({"loss": 2.0})
run.finish(timeout=60)
assert run.status()["json"]["state"] == "delivered", run.status()
"""


@pytest.mark.processes
@pytest.mark.heavy
@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs root: makes a PID namespace")
def test_first_process_of_a_container_waits_until_it_has_no_child(tmp_path: Path) -> None:
    """It is given all orphans: its relay, too, which ends where it is all that is waited for, and is started again."""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TRACKER_AGENT": "y", "XDG_RUNTIME_DIR": str(tmp_path)}
    alone = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    done = subprocess.run(
        [*alone, sys.executable, "-c", ORPHANS], cwd=tmp_path, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_code_of_a_detached_helper() -> None:
    """It says it; one that ended without a word was killed; one that handed over is whom it named last."""
    own = os.getpid(), processes.process_start(os.getpid())

    def helper(*said: bytes, ended: bool = True) -> DetachedHelper:
        reading, writing = os.pipe()
        for part in said:
            os.write(writing, part)
        if ended:
            os.close(writing)
        else:
            left.append(writing)
        return DetachedHelper(reading)

    left: list[int] = []
    gone = NAME.pack(own[0], own[1] + 1)
    assert helper().poll() == KILLED
    assert helper(ended=False).poll() is None
    assert helper(gone).poll() == KILLED
    assert helper(gone, CODE.pack(3)).poll() == 3
    assert helper(gone, CODE.pack(3), ended=False).poll() == 3
    assert helper(gone, NAME.pack(*own)).poll() is None
    assert helper(gone, NAME.pack(*own), CODE.pack(0)).poll() == 0
    with pytest.raises(subprocess.TimeoutExpired):
        helper(ended=False).wait(0.0)
    for fd in left:
        os.close(fd)


SIGNALS = """
import os, signal, subprocess
from trackers.journal.detached_helper import unnoticed
heard = []
signal.signal(signal.SIGCHLD, lambda *_: heard.append(1))
with unnoticed():
    subprocess.run(["true"], check=True)
assert not heard
with unnoticed():
    own = subprocess.Popen(["true"])
    os.waitid(os.P_PID, own.pid, os.WEXITED | os.WNOWAIT)
    assert not heard
assert heard
own.wait()
heard.clear()
subprocess.run(["true"], check=True)
assert heard
"""


def test_signal_of_another_child_is_not_lost() -> None:
    """A child that ends while a helper is started is heard of afterwards; nothing is heard of the helper's parent."""
    subprocess.run([sys.executable, "-c", SIGNALS], cwd=ROOT, check=True)
