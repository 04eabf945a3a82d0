"""How runs end, whatever the process does: what is behind a finish record, and who says the truth."""

from __future__ import annotations

import json
import os
import queue
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trackers
from tests import ROOT, stores
from tests.helpers import T0, made_run, run_info
from tests.ways_to_end import BEGIN, WAYS, Way, table
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.status import last_status, observe, revised
from trackers.journal.stream import FAR_BYTES, NEAR_BYTES, FinishSearch, StreamReader, find_finish
from trackers.records import Config, Finish, Metrics, Record, Start, Text, encode
from trackers.relay.deliveries import Child, Deliveries
from trackers.relay.delivery.cursor_file import read_account
from trackers.relay.delivery.delivery import Delivery
from trackers.relay.delivery.merge_order import Order
from trackers.relay.supervisor import Supervisor
from trackers.support import machines, processes
from trackers.support.processes import Watched, open_pidfd

OTHERS: list[Record] = [
    Metrics(time=T0, step=1, values={"loss": 1.0}),
    Text(time=T0, step=1, values={"note": '{"kind":"finish","time":1.0,"status":"failed"}\n'}),
    Config(time=T0, values={"kind": "finish", "time": 1.0, "status": "failed"}),
    Text(time=T0, step=1, values={"long": "x" * 5000}),
]
"""Records that are no finish, two of which look like one."""


@settings(max_examples=80, deadline=None)
@given(
    before=st.lists(st.sampled_from(OTHERS), max_size=8),
    after=st.lists(st.sampled_from(OTHERS), max_size=8),
    ends=st.integers(0, 2),
    cuts=st.lists(st.integers(0, 80_000), max_size=6),
    block=st.integers(400, 9000),
)
def test_finish_is_found_wherever_it_stands_and_however_it_comes(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[Record],
    after: list[Record],
    ends: int,
    cuts: list[int],
    block: int,
) -> None:
    """The last finish record of a stream is found, in one look or in many while the stream grows; nothing else is."""
    path = tmp_path_factory.mktemp("s") / "rank-0.1.jsonl"
    finishes = [Finish(time=T0 + number, status="finished", reason=f"{number}") for number in range(ends)]
    whole = b"".join(map(encode, [*before, *finishes, *after]))
    expected = finishes[-1].reason if finishes else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trackers.journal.stream.BLOCK_BYTES", block)
        search = FinishSearch(path)
        assert search.read() is None
        for cut in sorted(min(cut, len(whole)) for cut in cuts):
            path.write_bytes(whole[:cut])
            search.read()
        path.write_bytes(whole)
        found, once = search.read(), find_finish(path, FAR_BYTES)
    assert (found.reason if found else None) == expected
    assert (once.reason if once else None) == expected


def test_run_has_ended_though_others_logged_on_behind_its_finish(tmp_path: Path) -> None:
    """However much a child wrote behind the finish record, the run is finished, for readers and for a delivery."""
    run = made_run(tmp_path / "run", host=machines.host(), boot_id=machines.boot_id(), pid=1, pid_start=1.0)
    late = b"".join(encode(Metrics(time=T0 + 2, step=step, values={"late": 1.0})) for step in range(5000))
    lines = encode(Start(time=T0)) + encode(Finish(time=T0 + 1, status="finished", exit_code=0)) + late
    assert len(late) > NEAR_BYTES
    run.stream(StreamName("rank", 0, 1)).write_bytes(lines)
    assert observe(run).name == "finished"
    order = Order(run, run.delivery / "x.order")
    count = 0
    while found := order.read(1000):
        count += len(found)
    assert (count, order.ended()) == (5002, True)
    order.close()
    again = Order(run, run.delivery / "x.order", order.position)  # a delivery that was started again
    assert again.ended()
    again.close()


PAST_FINISH = """
import os, sys, threading, time, trackers
run = trackers.init("json", project="p", id="r")
run.log({"loss": 1.0})
def work(name):
    while True:
        run.log({name: 1.0}, step=1)
        time.sleep(1e-3)
children = []
for number in range(3):
    children.append(os.fork())
    if not children[-1]:
        until = time.monotonic() + 60
        while not os.path.exists("over") and time.monotonic() < until:
            run.log({f"child{number}": 1.0}, step=1)
            time.sleep(1e-3)
        run.log({"late": 1.0}, step=1)
        run.finish()
        os._exit(0)
for number in range(4):
    threading.Thread(target=work, args=(f"thread{number}",), daemon=True).start()
while os.path.getsize("runs/p/r/streams/rank-0.1.jsonl") < 20_000:
    time.sleep(0.01)
run.finish(timeout=200)
size = os.path.getsize("runs/p/r/streams/rank-0.1.jsonl")
open("over", "w").close()
for child in children:
    os.waitpid(child, 0)
print(size, os.path.getsize("runs/p/r/streams/rank-0.1.jsonl"))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs Linux: fork")
def test_children_and_threads_that_log_past_finish_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three forked children and four threads log on: the run is finished at once, and each child says so once."""
    Path("train.py").write_text(PAST_FINISH)
    monkeypatch.setenv("TRACKER_SAMPLE", "n")
    done = subprocess.run([sys.executable, "train.py"], capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "not delivered within" not in done.stderr
    size, after = map(int, done.stdout.split())
    assert after == size  # nothing is written any more once finish has returned
    run = RunDirectory("runs/p/r")
    assert last_status(run).name == "finished"
    assert read_account(run, "json").closed == "finished"
    told = [line for line in done.stderr.splitlines() if "isn't recorded any more" in line]
    assert len(told) == 3, done.stderr
    until = time.monotonic() + 30
    while (run.path / "relay.lease").exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert last_status(run).name == "finished"


FORKING = """
import json, os, sys
import trackers
import trackers.backends.json.precheck, trackers.configuration.options, trackers.configuration.run_names
import trackers.training.init
from trackers.configuration import kconfig
kconfig.declared()
while True:
    place, code = json.loads(os.read(0, 1 << 20) or "[0, 0]")
    if not place:
        os._exit(0)
    gate, opened = os.pipe()
    child = os.fork()
    if not child:
        break
    os.write(1, b"%d\\n" % child)
    os.write(opened, os.read(0, 1))
    _, ended = os.waitpid(child, 0)
    os.write(1, b"%d\\n" % os.waitstatus_to_exitcode(ended))
    os.close(gate)
    os.close(opened)
os.read(gate, 1)
os.chdir(place)
sys.argv, sys.path[0] = ["script.py"], place
os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
os.dup2(os.open("output", os.O_WRONLY | os.O_CREAT), 1)
os.dup2(1, 2)
os.closerange(3, 20)
exec(compile(code, "script.py", "exec"))
"""
"""A program that imports the package once, and forks for each script. The fork runs it in the program's outermost
frame, and all that Python does when a program ends is Python's own: only the start is spared."""


class Forking:
    """A process of ``FORKING``: plays one script after the other."""

    def __init__(self) -> None:
        Path("forking.py").write_text(FORKING)
        self._process = subprocess.Popen(
            [sys.executable, "forking.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )

    def play(self, place: Path, script: str) -> tuple[int, int]:
        """As :func:`play`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(place.absolute()), script]).encode())
        pidfd = open_pidfd(int(self._process.stdout.readline()))
        self._process.stdin.write(b"!")
        return int(self._process.stdout.readline()), pidfd

    def end(self) -> None:
        self._process.communicate(timeout=60)
        assert self._process.returncode == 0


def play(way: Way, name: str, forking: queue.SimpleQueue[Forking]) -> tuple[int, int]:
    """End a process in a way; its exit code, and a descriptor of it that was opened while it lived."""
    begin = "" if way.own else "run = begin()\n"
    script = BEGIN.format(before=way.before, name=name) + begin + way.code + "\n"
    place = Path(name)
    place.mkdir()
    if way.forked:
        one = forking.get()
        played = one.play(place, script)
        forking.put(one)
        return played
    (place / "script.py").write_text(script)
    command = {
        "script": ["script.py"],
        "-c": ["-c", script],
        "-m": ["-m", "script"],
        "<": ["-"],
        "-i": ["-i", "script.py"],
        "pdb": ["-m", "pdb", "script.py"],
        "runpy": ["-c", "import runpy; runpy.run_path('script.py', run_name='__main__')"],
    }[way.how]
    with open(place / "output", "w") as output:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=place, stdin=subprocess.PIPE, stdout=output, stderr=output, text=True
        )
        pidfd = open_pidfd(process.pid)
        process.communicate(script if way.how == "<" else way.typed, timeout=120)
    return process.returncode, pidfd


def judge(run: RunDirectory, pidfd: int) -> tuple[str, int | None]:
    """What a relay makes of a process that has ended."""
    info = run.read_info()
    supervisor = Supervisor(run, [], watch=(info.pid, info.pid_start, pidfd), say=lambda text, name: None)
    supervisor.begin()
    while supervisor.step():
        time.sleep(0.001)
    supervisor.end()
    status = last_status(run)
    return status.name, status.exit_code


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: exit codes of other processes")
def test_every_way_to_end_has_its_true_status(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way of the table: the status that is true, though nobody called ``finish``; also where the operating system
    tells no exit code, but for what only it can know.
    """
    monkeypatch.setenv("TRACKER_RELAY", "n")
    monkeypatch.setenv("TRACKER_SAMPLE", "n")
    monkeypatch.setattr("trackers.relay.environment.gather_environment", lambda info: {})
    names = [f"way{number:03}" for number in range(len(WAYS))]
    forking: queue.SimpleQueue[Forking] = queue.SimpleQueue()
    for _ in range(2):
        forking.put(Forking())
    with ThreadPoolExecutor(3) as pool:
        ended = list(pool.map(lambda way, name: play(way, name, forking), WAYS, names))
    for _ in range(2):
        forking.get().end()
    wrong = []
    for way, name, (returned, pidfd) in zip(WAYS, names, ended, strict=True):
        expected = way.exit_code if way.returned is None else way.returned
        output = Path(name, "output").read_text()[-600:]
        if returned != expected:
            wrong.append(f"{way.what}: the process's exit code is {returned}, not {expected}\n{output}")
        run = RunDirectory(Path(name) / "runs/p" / name)
        copy = RunDirectory(Path(name) / "copy")
        shutil.copytree(run.path, copy.path)
        told = judge(run, -1 if way.worker else pidfd)
        if told != (way.status, way.exit_code):
            wrong.append(f"{way.what}: {told}, not {way.status}, {way.exit_code}\n{output}")
        with pytest.MonkeyPatch.context() as silent:
            silent.setattr(Watched, "exit_code", lambda self: None)
            alone = judge(copy, -1)[0]
        if alone != (way.alone or way.status):
            wrong.append(f"{way.what}: without the operating system {alone}, not {way.alone or way.status}\n{output}")
        if way.worker:
            os.close(pidfd)
    assert not wrong, "\n\n".join([f"{len(wrong)} of {len(WAYS)}", *wrong])


def test_page_shows_every_way_to_end() -> None:
    """The table of docs/endings.md is the one that is tested."""
    page = (ROOT / "docs/endings.md").read_text(encoding="utf-8")
    shown = page[page.index("| how the process ends |") :].partition("\n\n")[0].splitlines()[2:]
    assert shown == table()


DAEMON = """
import os, signal, sys, time, trackers
way, name, relay = sys.argv[1:]
run = trackers.init("json", project="p", id=name)
run.log({"loss": 0.0}, step=0)
if os.fork():
    sys.exit(0) if way == "classic" else os._exit(0)
if way != "plain":
    os.setsid()
    if os.fork():
        os._exit(0)
step, until = 0, time.monotonic() + 100
while step < 20 or (relay == "y" and way != "classic" and not os.path.exists(f"runs/p/{name}/heir.1")):
    step += 1
    run.log({"loss": float(step), "text": "x"}, step=step)
    time.sleep(0.01)
    assert time.monotonic() < until
{"plain": run.finish, "exit": lambda: sys.exit(4), "kill": lambda: os.kill(os.getpid(), signal.SIGKILL)}.get(way, int)()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: exit codes of other processes")
def test_daemon_that_goes_on_with_the_run_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its parent leaves by ``os._exit``: the run is the daemon's, and ends as it does. Where it leaves by
    ``sys.exit``, the run ends with it, and the daemon says that nothing is recorded any more.
    """
    Path("train.py").write_text(DAEMON)
    monkeypatch.setenv("TRACKER_SAMPLE", "n")
    cases = [("plain", "y"), ("end", "y"), ("exit", "y"), ("kill", "y"), ("classic", "y"), ("end", "n"), ("exit", "n")]
    processes = []
    for way, relay in cases:
        with open(f"{way}-{relay}.txt", "w") as said:
            environment = {**os.environ, "TRACKER_RELAY": relay}
            command = [sys.executable, "train.py", way, f"{way}-{relay}", relay]
            processes.append(subprocess.Popen(command, env=environment, stdout=said, stderr=said))
    assert [process.wait(120) for process in processes] == [0] * len(cases)
    expected = {"plain": "finished", "end": "finished", "exit": "failed", "kill": "crashed", "classic": "finished"}
    until = time.monotonic() + 120
    for way, relay in cases:
        run = RunDirectory(Path("runs/p") / f"{way}-{relay}")
        ended = FinishSearch(run.stream(StreamName("node" if relay == "y" else "rank", 0, 1)))
        while ended.read() is None or (relay == "y" and not read_account(run, "json").closed):
            assert time.monotonic() < until, (way, relay, Path(f"{way}-{relay}.txt").read_text())
            time.sleep(0.02)
        status = observe(run)
        assert (way, relay, status.name) == (way, relay, expected[way])
        assert relay == "n" or read_account(run, "json").closed == expected[way]
        if way == "classic":
            while "isn't recorded any more" not in Path(f"{way}-{relay}.txt").read_text():
                assert time.monotonic() < until
                time.sleep(0.02)
        else:
            assert run.stream(StreamName("rank", 0, 1)).read_bytes().count(b'"loss"') >= 21
    assert "killed by SIGKILL" in observe(RunDirectory("runs/p/kill-y")).reason


STORES: dict[str, Callable[..., Any]] = {
    "json": stores.read_json,
    "csv": stores.read_csv,
    "tensorboard": stores.read_tensorboard,
    "trackio": stores.read_trackio,
    "mlflow": stores.read_mlflow,
    "wandb": stores.read_wandb_file,
}


@pytest.mark.parametrize("name", STORES)
def test_tracker_that_was_told_otherwise_is_told_the_true_end(name: str, tmp_path: Path) -> None:
    """Told that the run finished, since nobody knew better before its process exited, every store then says failed."""
    run = RunDirectory(tmp_path / "runs/p/r")
    run.make()
    here = {"host": machines.host(), "boot_id": machines.boot_id()}
    options = {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"} if name == "mlflow" else {}
    info = run_info(run.path, id="r", trackers=[name], mode="offline", options=options, **here)
    run.write_info(info)
    rank, node = run.stream(StreamName("rank", 0, 1)), run.stream(StreamName("node", 0, 1))
    said = encode(Finish(time=T0 + 1, status="finished", exit_code=0, leaving=True))
    rank.write_bytes(encode(Start(time=T0)) + encode(OTHERS[0]) + said)
    node.write_bytes(encode(Start(time=T0)) + said)
    for status in ("finished", "failed"):
        delivery = Delivery(run, name, say=print)
        until = time.monotonic() + 100
        while delivery.step() is not None:
            assert time.monotonic() < until
            time.sleep(0.01)
        delivery.close()
        account = read_account(run, name)
        assert account.closed == status
        word = {"mlflow": status.upper()}.get(name, status)
        stored = STORES[name](run.read_info(), account.state)
        assert (stored.status, len(stored.metrics["loss"])) == (word, 1)
        with node.open("ab") as lines:
            lines.write(encode(revised(Finish(time=T0 + 1, status="finished", exit_code=0, leaving=True), 3)))


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: exit codes of other processes")
def test_delivery_that_is_about_to_end_is_started_again_when_the_end_is_put_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery that ends just after the exit code was learned hasn't told its tracker: another one does."""
    run = RunDirectory(tmp_path / "run")
    run.make()
    training = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read(); sys.exit(3)"], stdin=subprocess.PIPE
    )
    own = training.pid, processes.process_start(training.pid)
    options = {"TRACKER_SAMPLE": False}
    run.write_info(run_info(run.path, host=machines.host(), pid=own[0], pid_start=own[1], options=options))
    said = Finish(time=T0 + 1, status="finished", exit_code=0, leaving=True)
    run.stream(StreamName("rank", 0, 1)).write_bytes(encode(Start(time=T0)) + encode(said))
    starts = []

    def start(self: Deliveries, child: Child, deaths: int) -> subprocess.Popen[bytes]:
        starts.append(child.name)
        code = "pass" if len(starts) > 1 else "import sys; sys.stdin.read()"
        child.redo = False
        return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)

    monkeypatch.setattr(Deliveries, "start", start)
    supervisor = Supervisor(run, ["json"], watch=own, say=lambda text, name: None)
    supervisor.begin()
    until = time.monotonic() + 60
    while not starts or not supervisor._ended_at:
        assert supervisor.step()
        assert time.monotonic() < until
    training.communicate()
    while last_status(run).name != "failed":
        assert supervisor.step()
        assert time.monotonic() < until
    first = supervisor.deliveries.children[0].helper.process
    assert first is not None
    first.communicate()
    while supervisor.step():
        assert time.monotonic() < until
    supervisor.end()
    assert starts == ["json", "json"]


@pytest.mark.parametrize(
    ("told", "status", "code", "warned"),
    [
        (True, "failed", 1, False), (False, "finished", 0, False), (np.int64(3), "failed", 3, False),
        (np.bool_(True), "failed", 1, False), ("3", "failed", 3, False), (3.0, "failed", 3, False),
        (np.array(2), "failed", 2, False), (-9, "failed", -9, False), (0xC0000005, "failed", 0xC0000005, False),
        ("x", "failed", 1, True), (3.7, "failed", 1, True), (object(), "failed", 1, True),
        (float("nan"), "failed", 1, True), (10**30, "failed", 1, True), (np.array([1, 2]), "failed", 1, True),
    ],
)  # fmt: skip
def test_exit_code_of_any_kind_ends_the_run(
    told: Any, status: str, code: int, warned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ``finish`` and ``fail`` are given becomes an exit code that can be read back, and the status follows it."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    for name, end in (("finish", lambda run: run.finish(told)), ("fail", lambda run: run.fail(told, "boom"))):
        run = trackers.init("json", mode="offline", project="p", id=name)
        end(run)
        last = StreamReader(Path(run.dir, "streams", "rank-0.1.jsonl")).read(100)[-1]
        assert isinstance(last, Finish)
        assert (last.status, last.exit_code) == (status if name == "finish" else "failed", code)
        assert any("no whole number" in line for line in run._recorder._problems) is warned


DESTRUCTORS = """
import builtins, trackers
module = trackers

class Logger:
    def __init__(self, run):
        self.run = run
        self.itself = self  # collected as late as can be

    def __del__(self):
        self.run.log({"loss": 1.0, "bad": float("nan"), "text": "x"})
        self.run.log({"loss": 1.0}, step=3)
        self.run.log("no mapping")
        self.run.summary["best"] = 1.0
        self.run.summary.update({"best": dict(self.run.summary).get("loss")})
        self.run.config["lr"] = 0.1
        self.run.config.update({"depth": 4})
        self.run.define_metric("loss", summary="min")
        self.run.alert("title", "text")
        self.run.save("missing")
        self.run.log_code()
        self.run.url, self.run.name, repr(self.run), self.run.status()
        self.run.finish()
        module.log({"loss": 1.0})
        module.summary["best"] = 1.0
        module.config.update({"depth": 4})
        module.finish(exit_code=0)

ended = trackers.init("json", project="p", mode="offline")
ended.finish()
run = trackers.init("json", project="p", mode="offline")
run.log({"loss": 0.5})
early, late = Logger(run), Logger(ended)
builtins.late = [late, Logger(run), Logger(trackers.init("none", reinit="create_new"))]
"""


def test_destructors_may_log_while_the_interpreter_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a destructor does with a run is too late to be recorded; it raises nothing, and one line says it, also of a
    run that has ended, of none, and of the module."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    done = subprocess.run([sys.executable, "-c", DESTRUCTORS], capture_output=True, text=True, check=True, timeout=120)
    (said,) = [line for line in done.stderr.splitlines() if " → offline, for json" not in line]
    assert said.startswith("trackers: log ")
    assert said.endswith("Python is ending (a __del__ called): it isn't recorded")


LATE = """
import os
import sys

import torch

import trackers

run = trackers.init(project="p", trackers="json")
open_span = run.span("open")
open_span.__enter__()
model, path = torch.nn.Linear(2, 2), os.path.abspath(__file__)
calls = {
    "span": lambda: run.span("late", inputs={"a": 1}).__enter__().__exit__(None, None, None),
    "end of a span": lambda: open_span.__exit__(None, None, None),
    "decorator": lambda: run.span("late")(lambda: 1)(),
    "timer": lambda: run.timer("late").start(),
    "loop": lambda: run.loop(10),
    "artifact": lambda: run.log_artifact(path),
    "use": lambda: run.use_artifact("x:latest"),
    "log": lambda: (run.log({"a": 1}), run.log({"a": "text"}), run.log({"a": float("nan")})),
    "summary": lambda: (run.summary.update({"a": 1}), run.summary.get("a")),
    "config": lambda: run.config.update({"a": 1}),
    "description": lambda: (setattr(run, "name", "n"), setattr(run, "tags", ["t"]), run.alert("t", "x")),
    "files": lambda: (run.save(path), run.log_code(), run.log_model(path, "m")),
    "watch": lambda: (run.watch(model), run.define_metric("a", summary="min"), run.status(), run.url, repr(run)),
    "end": lambda: (run.flush(), run.finish()),
}


class Late:
    def __init__(self, call):
        self.call = call

    def __del__(self):
        try:
            self.call()
        except BaseException as error:
            os.write(1, repr(error).encode())
        os.write(1, b".")


sys.modules["late"] = [Late(call) for call in calls.values()]
print(len(calls), end="", flush=True)
"""


def test_problem_while_the_interpreter_ends_is_as_masked_as_any() -> None:
    """An error that it quotes may hold a secret, and escapes of the terminal."""
    script = (
        "import sys, trackers\n"
        "run = trackers.init('json', project='p', mode='offline')\n"
        "sys.is_finalizing = lambda: True\n"
        "run._recorder.problem('log: no answer to DB_PASSWORD=Summer.Rain2026 \\x1b[2J')\n"
        "run._recorder.problem('log: another')\n"
    )
    environment = {**os.environ, "TRACKER_RELAY": "n"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    (said,) = [line for line in done.stderr.splitlines() if "→ offline, for json" not in line]
    assert said.startswith("trackers: log: no answer to DB_PASSWORD=")
    assert "Summer" not in said
    assert "\x1b" not in said


def test_calls_while_the_interpreter_ends_are_one_line(tmp_path: Path) -> None:
    """Whatever of a run a destructor calls after the last line raises nothing; that it's lost is said once."""
    script = tmp_path / "late.py"
    script.write_text(LATE)
    environment = {**os.environ, "TRACKER_RELAY": "n"}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "14" + "." * 14
    (said,) = [line for line in done.stderr.splitlines() if "→ json" not in line]
    assert said.endswith("Python is ending (a __del__ called): it isn't recorded")
