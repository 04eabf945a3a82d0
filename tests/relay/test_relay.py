"""The relay beside training: real processes, real signals."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

import trackers
from tests.helpers import keep_silent, made_run, wait_for
from trackers.journal import helper_process
from trackers.journal.lease import Lease, read_holder
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import last_status, observe
from trackers.journal.stream import StreamWriter
from trackers.records import Start, encode
from trackers.relay.delivery.cursor_file import delivery_report
from trackers.relay.delivery.delivery import read_account

TRAIN = """
import sys, time, trackers
run = trackers.init("json", project="p", id="r", config={"lr": 1})
for step in range(int(sys.argv[1])):
    run.log({"loss": 1.0 / (step + 1)}, step=step)
print("logged", flush=True)
"""


def start(code: str, *arguments: str, **more: Any) -> subprocess.Popen[str]:
    Path("train.py").write_text(code)
    return subprocess.Popen([sys.executable, "train.py", *arguments], stdout=subprocess.PIPE, text=True, **more)


def run_directory() -> RunDirectory:
    return RunDirectory("runs/p/r")


def json_log() -> dict[str, Any]:
    (path,) = Path("runs/p/r").glob("*_*_*.json")
    log: dict[str, Any] = json.loads(path.read_text())
    return log


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_killed_training_is_delivered_and_crashed() -> None:
    """After SIGKILL every logged record arrives, and the status is crashed, never running."""
    process = start(TRAIN + "time.sleep(600)\n", "500")
    assert read_line(process) == "logged"
    process.kill()
    process.communicate()
    wait_for(lambda: read_account(run_directory(), "json").closed)
    assert last_status(run_directory()).name == "crashed"
    log = json_log()
    assert [entry["iter"] for entry in log["training_iterations"]] == list(range(500))
    assert log["summary"]["status"] == "crashed"


def test_killed_training_has_its_spans_table() -> None:
    """The relay logs what training would have at its end: every tracker has the spans and the sum of tokens."""
    code = "run.span('call', attributes={'gen_ai.usage.input_tokens': 7}).__enter__().__exit__(None, None, None)\n"
    process = start(TRAIN.replace("print(", code + "print(") + "time.sleep(600)\n", "5")
    assert read_line(process) == "logged"
    process.kill()
    process.communicate()
    wait_for(lambda: read_account(run_directory(), "json").closed)
    data = trackers.load(run_directory().path)
    assert ([table.name for table in data.tables()], data.summary) == (["spans"], {"gen_ai.usage.input_tokens": 7})
    assert json_log()["summary"]["gen_ai.usage.input_tokens"] == 7


@pytest.mark.slow
def test_mark_preempting_makes_a_kill_a_preemption() -> None:
    """A run that said so is preempted when it is killed."""
    process = start(TRAIN + "run.mark_preempting()\nprint('marked', flush=True)\ntime.sleep(600)\n", "5")
    read_line(process)
    assert read_line(process) == "marked"
    process.terminate()
    process.communicate()
    wait_for(lambda: read_account(run_directory(), "json").closed)
    assert last_status(run_directory()).name == "preempted"


@pytest.mark.slow
def test_interrupt_of_the_whole_group_still_delivers() -> None:
    """Ctrl-C reaches training only: the relay lives on and delivers."""
    process = start(TRAIN + "time.sleep(600)\n", "300", start_new_session=True, stderr=subprocess.PIPE)
    assert read_line(process) == "logged"
    os.killpg(process.pid, signal.SIGINT)
    process.communicate()
    wait_for(lambda: read_account(run_directory(), "json").closed)
    assert last_status(run_directory()).name == "failed"
    assert len(json_log()["training_iterations"]) == 300


@pytest.mark.slow
def test_killed_relay_is_started_again_by_training() -> None:
    """SIGKILL of the relay and its delivery: training starts a new one, and everything arrives once."""
    code = TRAIN + (
        "import os\nwhile not os.path.exists('stop'):\n    run.log({'loss': 1.0}); time.sleep(0.02)\nrun.finish()\n"
    )
    process = start(code, "200")
    assert read_line(process) == "logged"
    lease = Path("runs/p/r/relay.lease")
    holder = wait_for(lambda: read_holder(lease))
    child = wait_for(lambda: read_holder(Path("runs/p/r/delivery/json.lease")))
    os.kill(holder.pid, signal.SIGKILL)
    os.kill(child.pid, signal.SIGKILL)
    wait_for(lambda: (new := read_holder(lease)) and new.pid != holder.pid)
    Path("stop").touch()
    process.communicate()
    assert process.returncode == 0
    log = json_log()
    assert [e["iter"] for e in log["training_iterations"]] == list(range(len(log["training_iterations"])))
    assert len(log["training_iterations"]) > 200
    assert log["summary"]["status"] == "finished"


@pytest.mark.slow
def test_all_killed_at_once_sync_delivers_the_rest() -> None:
    """All killed together: one ``trackers sync`` makes it whole, and a second changes nothing."""
    process = start(TRAIN + "time.sleep(600)\n", "400")
    assert read_line(process) == "logged"
    holder = wait_for(lambda: read_holder(Path("runs/p/r/relay.lease")))
    tree = [psutil.Process(process.pid), psutil.Process(holder.pid), *psutil.Process(holder.pid).children()]
    for victim in tree:
        with contextlib.suppress(psutil.NoSuchProcess):  # a delivery may leave by itself once its parent is dead
            victim.kill()
    process.communicate()
    sync = [sys.executable, "-m", "trackers", "sync", "runs/p/r"]
    done = subprocess.run(sync, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "delivered" in done.stdout
    log = json_log()
    assert [entry["iter"] for entry in log["training_iterations"]] == list(range(400))
    assert log["summary"]["status"] == "crashed"
    files = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
    assert subprocess.run(sync, capture_output=True, check=False).returncode == 0
    after = {path: path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()}
    assert after == files


@pytest.mark.slow
def test_output_pipe_closes_with_training() -> None:
    """``python train.py | cat`` ends when training ends, though the relay may live on."""
    code = "import trackers, os\nrun = trackers.init('json', project='p', id='r')\nrun.log({'a': 1.0})\nos._exit(0)\n"
    process = start(code, stderr=subprocess.STDOUT)
    out, _ = process.communicate(timeout=20)
    assert "run" in out
    wait_for(lambda: read_account(run_directory(), "json").closed)


@pytest.mark.slow
def test_modules_beside_the_script_do_not_matter() -> None:
    """A ``json.py`` and a ``wandb.py`` in the working directory change nothing in the relay."""
    for name in ("json", "wandb", "msgspec", "trackers_x", "logging"):
        Path(f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    Path("sub").mkdir()
    code = TRAIN + "run.finish()\n"
    Path("sub/train.py").write_text(code)
    done = subprocess.run([sys.executable, "sub/train.py", "10"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json_log()["summary"]["status"] == "finished"


@pytest.mark.slow
def test_forked_workers_that_outlive_training_delay_nothing() -> None:
    """A data-loader worker that holds every descriptor doesn't keep the relay from seeing the end."""
    code = TRAIN + (
        "import os\npid = os.fork()\nif pid == 0:\n    time.sleep(60)\n    os._exit(0)\n"
        "print(pid, flush=True)\nos._exit(3)\n"
    )
    process = start(code, "20")
    assert read_line(process) == "logged"
    worker = int(read_line(process))
    try:
        wait_for(lambda: read_account(run_directory(), "json").closed)
        assert psutil.pid_exists(worker)
        status = last_status(run_directory())
        assert (status.name, status.exit_code) == ("failed", 3)
    finally:
        os.kill(worker, signal.SIGKILL)
        process.communicate()


@pytest.mark.slow
def test_finish_returns_at_its_timeout_with_the_command() -> None:
    """A tracker that can't be reached costs finish its timeout, no more, and the line says how to deliver the rest."""
    code = (
        "import trackers, time\nrun = trackers.init('mlflow', project='p', id='r')\nrun.log({'a': 1.0})\n"
        "t = time.monotonic()\nrun.finish(timeout=1.5)\nprint(time.monotonic() - t)\n"
    )
    env = {**os.environ, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    process = start(code, stderr=subprocess.PIPE, env=env)
    out, err = process.communicate(timeout=60)
    assert 1.4 < float(out) < 10
    assert re.search(r"mlflow: not delivered within 2 s \(.+\); the relay goes on", err)
    assert "trackers sync" in err
    holder = read_holder(Path("runs/p/r/relay.lease"))
    assert holder is not None
    os.kill(holder.pid, signal.SIGTERM)
    wait_for(lambda: not psutil.pid_exists(holder.pid), 60)  # LEAVE_S, and the time to end its deliveries


@pytest.mark.slow
def test_helpers_give_way_until_training_has_ended(tmp_path: Path) -> None:
    """Relay and deliveries run at low priority beside training, and at its own once finish waits for them."""
    Path("blocked").symlink_to("/proc/1/nothing")  # a delivery tries again until it can make its directory
    code = (
        "import trackers\nrun = trackers.init('json', project='p', id='r', options={'JSON_DIR': 'blocked'})\n"
        "run.log({'a': 1.0})\nprint('logged', flush=True)\ninput()\n"
        "run.finish(timeout=0)\nprint('left', flush=True)\ninput()\n"
    )
    process = start(code, stdin=subprocess.PIPE)
    assert read_line(process) == "logged"
    run = run_directory()
    relay = wait_for(lambda: read_holder(run.path / "relay.lease")).pid
    delivery = wait_for(lambda: read_holder(run.delivery / "json.lease")).pid
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert (os.sched_getscheduler(relay), os.getpriority(os.PRIO_PROCESS, relay)) == (os.SCHED_BATCH, own)
    assert os.sched_getscheduler(delivery) == os.SCHED_BATCH
    assert os.getpriority(os.PRIO_PROCESS, delivery) == min(19, own + 10)
    groups = Path(f"/proc/{relay}/autogroup"), Path(f"/proc/{delivery}/autogroup")
    assert {path.read_text().rpartition(" ")[2].strip() for path in groups if path.exists()} <= {"10"}
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert read_line(process) == "left"
    wait_for(lambda: os.sched_getscheduler(delivery) == os.SCHED_OTHER)
    assert os.sched_getscheduler(relay) == os.SCHED_OTHER
    if os.geteuid() == 0:  # a process's own niceness only goes back for those who may
        wait_for(lambda: os.getpriority(os.PRIO_PROCESS, delivery) == own)
    assert {path.read_text().rpartition(" ")[2].strip() for path in groups if path.exists()} <= {"0"}
    Path("blocked").unlink()
    process.communicate("\n", timeout=60)
    wait_for(lambda: not psutil.pid_exists(relay))
    assert [path.name for path in Path("blocked").iterdir()]


@pytest.mark.parametrize("how", ["argument", "option", "at exit"])
def test_finish_in_the_background_leaves_the_rest_to_the_relay(how: str) -> None:
    """It returns while a tracker is behind, and says so; the relay delivers, and doesn't stay as a zombie."""
    Path("blocked").symlink_to("/proc/1/nothing")  # a delivery tries again until it can make its directory
    end = {"argument": "run.finish(wait=False)", "option": "run.finish()", "at exit": "pass"}[how]
    code = (
        "import trackers\nrun = trackers.init('json', project='p', id='r', options={'JSON_DIR': 'blocked'})\n"
        f"run.log({{'train_loss': 1.0}})\n{end}\nprint('ended', flush=True)\nif {how != 'at exit'}:\n    input()\n"
        "    trackers.init('json', project='p', id='next', options={'JSON_DIR': 'other'})\n"
        "    print('begun', flush=True)\n    input()\n"
    )
    env = os.environ if how == "argument" else {**os.environ, "TRACKER_FINISH": "background"}
    process = start(code, stdin=subprocess.PIPE, stderr=subprocess.PIPE, env={**env})
    assert read_line(process) == "ended"
    run = run_directory()
    relay = wait_for(lambda: read_holder(run.path / "relay.lease")).pid
    assert not read_account(run, "json").closed
    if how == "at exit":
        assert "json: delivered in the background; how far it is: trackers ls" in process.communicate(timeout=60)[1]
    Path("blocked").unlink()
    wait_for(lambda: read_account(run, "json").closed)
    assert '"loss":1.0' in next(Path("blocked").glob("*.json")).read_text()
    if how != "at exit":
        wait_for(lambda: not psutil.pid_exists(relay))
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert read_line(process) == "begun"
        process.communicate("\n", timeout=60)


def test_relay_hides_ranks_and_gpus_and_keeps_credentials(tmp_path: Path) -> None:
    """Helpers get credentials and proxies, no rank, no GPU, one maths thread."""
    from trackers.journal.helper_process import environment

    given = {"RANK": "3", "WORLD_SIZE": "8", "WANDB_API_KEY": "k", "HTTPS_PROXY": "p", "CUDA_VISIBLE_DEVICES": "2"}
    env = environment(given)
    assert "RANK" not in env
    assert "WORLD_SIZE" not in env
    assert (env["WANDB_API_KEY"], env["HTTPS_PROXY"]) == ("k", "p")
    assert env["CUDA_VISIBLE_DEVICES"] == ""
    assert env["TRACKER_JOB_CUDA_VISIBLE_DEVICES"] == "2"
    assert env["OMP_NUM_THREADS"] == "1"


def test_lease_is_held_by_one_and_taken_over_from_the_dead(tmp_path: Path) -> None:
    """Two can't hold it; a holder on this machine that died is replaced at once."""
    path = tmp_path / "x.lease"
    first, second = Lease(path), Lease(path)
    assert first.acquire()
    assert not second.acquire()
    assert first.beat()
    first.release()
    assert second.acquire()
    second.release()
    code = (
        "import sys\nfrom pathlib import Path\nfrom trackers.journal.lease import Lease\n"
        "assert Lease(Path(sys.argv[1])).acquire()\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    assert path.exists()
    assert first.acquire()
    assert not list(tmp_path.glob("*.taken"))
    first.release()


def test_lease_lost_to_another_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder whose lease was taken over learns it at its next sign of life."""
    path = tmp_path / "x.lease"
    lease = Lease(path)
    assert lease.acquire()
    path.write_bytes(b'{"token":"somebody-else"}')
    monkeypatch.setattr("trackers.journal.lease.BEAT_S", 0.0)
    assert not lease.beat()


def test_run_elsewhere_is_running_while_its_heart_beats(tmp_path: Path) -> None:
    """Of a run of another machine a stream or heartbeat that moves means running, whatever the clocks say; one that
    this machine has seen to stand still, crashed."""
    run = made_run(tmp_path / "run", host="elsewhere", boot_id="b", pid=1, pid_start=1.0)
    stream = run.stream(StreamName("rank", 0, 1))
    StreamWriter(stream).write(encode(Start(time=1.0)))
    os.utime(stream, (1, 1))
    assert observe(run).name == "running"
    keep_silent(run, 90)
    StreamWriter(stream).write(encode(Start(time=1.0)))
    keep_silent(run, 90)
    assert observe(run).name == "running"
    keep_silent(run, 90)
    status = observe(run)
    assert status.name == "crashed"
    assert "elsewhere" in status.reason


@pytest.mark.slow
def test_flush_waits_until_the_trackers_have_it() -> None:
    """flush returns True when every tracker has what was logged so far, while the run goes on."""
    code = (
        "import trackers\nrun = trackers.init('json', project='p', id='r')\nrun.log({'a': 1.0})\n"
        "print(run.flush(30), run.status()['json']['waiting_bytes'] == 0)\nrun.finish()\n"
    )
    out, _ = start(code).communicate(timeout=60)
    assert out.split() == ["True", "True"]


@pytest.mark.slow
def test_delivery_may_use_another_python(tmp_path: Path) -> None:
    """TRACKER_PYTHON runs one tracker's delivery with the interpreter it names, the others with this one."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho used >> {tmp_path}/used\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    env = {**os.environ, "TRACKER_PYTHON": f"json={python}"}
    code = "import trackers\nwith trackers.init('json,csv', project='p', id='r') as run:\n    run.log({'a': 1.0})\n"
    process = start(code, env=env)
    process.communicate(timeout=60)
    assert (tmp_path / "used").read_text().split() == ["used"]
    assert read_account(run_directory(), "json").closed == read_account(run_directory(), "csv").closed == "finished"


@pytest.mark.skipif(sys.platform == "win32", reason="needs Linux: a pseudo-terminal")
def test_finish_shows_progress_on_a_terminal() -> None:
    """While trackers catch up, a terminal shows one line that is rewritten, and it is gone at the end."""
    import pty

    Path("train.py").write_text(
        "import trackers\nrun = trackers.init('mlflow', project='p', id='r')\n"
        "run.log({'a': 1.0})\nrun.finish(timeout=2)\n"
    )
    shown = b""
    own, other = pty.openpty()
    env = {**os.environ, "MLFLOW_TRACKING_URI": "http://127.0.0.1:9"}
    process = subprocess.Popen([sys.executable, "train.py"], stderr=other, env=env)
    os.close(other)
    try:
        while block := os.read(own, 4096):
            shown += block
    except OSError:
        pass  # how Linux says that nobody has the terminal open any more
    process.wait()
    os.close(own)
    assert b"waiting for mlflow, " in shown
    assert b" s at most" in shown
    assert b"\r\x1b[2K" in shown
    assert shown.rstrip().endswith(b"runs/p/r")
    holder = read_holder(Path("runs/p/r/relay.lease"))
    assert holder is not None
    os.kill(holder.pid, signal.SIGTERM)
    wait_for(lambda: not psutil.pid_exists(holder.pid), 60)  # LEAVE_S, and the time to end its deliveries


@pytest.mark.slow
def test_console_of_a_killed_training_waits_for_nothing() -> None:
    """The console ended with training: nothing waits for it, and nobody is told to deliver it."""
    code = TRAIN.replace('"json"', '"json,console"') + "import os, signal; os.kill(os.getpid(), signal.SIGKILL)\n"
    start(code, "30", stderr=subprocess.DEVNULL).communicate()
    wait_for(lambda: read_account(run_directory(), "json").closed)
    found = delivery_report(run_directory(), ["json", "console"])
    assert (found["json"]["state"], found["console"]["state"]) == ("delivered", "ended")
    assert found["console"]["waiting_bytes"] == 0


def test_collector_stands_back_only_meanwhile() -> None:
    """While records are delivered the garbage collector is asked seldom, and afterwards as before, whatever happens."""
    before = gc.get_threshold()

    @helper_process.seldom_collected()
    def work() -> None:
        assert gc.get_threshold()[0] > 10 * before[0]
        raise KeyError

    with pytest.raises(KeyError):
        work()
    assert gc.get_threshold() == before
