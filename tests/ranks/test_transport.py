"""Values across ranks in real processes: nobody waits, the late and the dead are named, nothing doubles or is lost."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import trackers
from benchmarks import ranks as benchmark
from tests import forked, stores
from tests.ranks.support import LOOP, expected, job, reduced, the_run, until
from trackers.journal.run_directory import RunDirectory
from trackers.ranks import collective_transport
from trackers.ranks.collective_transport import PendingGather
from trackers.ranks.contribution import ReductionRow
from trackers.relay.aggregation.aggregator import Reducer


def whole(run: Path, steps: int, ranks: int, attempt: int = 1) -> None:
    """Each step is there once, in order, with the value of all ranks and no word of a straggler."""
    assert reduced(run, attempt) == [(step, expected(step, range(ranks))) for step in range(steps)]


def helpers(word: str) -> list[psutil.Process]:
    """Helper processes of this test's runs by their role."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            if word in line and any(str(Path.cwd()) in part for part in line):
                found.append(process)
    return found


MEASURED = """
import os
import trackers

run = trackers.init("json", project="p", name="job")
loop = run.loop(interval=1)
for step in range(5):
    loop.step(samples=2, tokens=8)
    run.log({"loss": trackers.Mean(1.0)}, step=step + 1)
print(run._recorder.is_main, loop.steps)
run.finish()
"""


def test_instruments_work_on_each_rank() -> None:
    """Other ranks' instruments are driven as the main one's are, and nothing is said of any."""
    with job(MEASURED, [], 2) as ranks:
        ranks.start(0, 1)
        ranks.wait()
    assert [ranks.said[rank].split()[:2] for rank in (0, 1) if "loop:" not in ranks.said[rank]] == [
        ["True", "5"],
        ["False", "5"],
    ]


@pytest.mark.slow
def test_rank_that_comes_first_waits_for_nobody() -> None:
    """Ranks that begin and even end before the main one has come lose nothing; all find the same run."""
    with job(LOOP, ["20"], 3) as ranks:
        ranks.start(1, 2)
        ranks.wait(1, 2)
        assert not list(Path("runs").glob("*/*/run.json"))
        ranks.start(0)
        ranks.wait(0)
    run = the_run()
    whole(run, 20, 3)
    assert all(run.name in said.split() for said in ranks.said.values())
    assert {path.name for path in (run / "ranks").iterdir()} == {f"rank-{rank}.1.jsonl" for rank in range(3)}
    assert not Path("runs/.ranks").exists()
    assert "warning" not in ranks.said[0].lower()
    account = json.loads((run / "delivery/json.json").read_text())
    assert set(account["skipped"]) <= {"start", "finish", "environment", "summary"}
    assert account["closed"] == "finished"


@pytest.mark.slow
def test_trackers_get_the_values_as_any_other() -> None:
    """In a tracker a value across ranks stands at its step beside the main rank's own, and so in what is read back."""
    script = LOOP.replace('trackers.init("json", ', 'trackers.init("csv,tensorboard,wandb", ')
    with job(script, ["10"], 2) as ranks:
        ranks.start(0, 1)
        ranks.wait()
    info = RunDirectory(the_run()).read_info()
    wanted = {step: expected(step, range(2)) for step in range(10)}
    for read in (stores.read_tensorboard, stores.read_wandb_file):
        found = read(info).metrics
        for name in ("loss", "who"):
            assert {point.step: point.value for point in found[name]} == {s: v[name] for s, v in wanted.items()}
        assert len(found["lr"]) == 10
    with open(next(the_run().rglob("metrics.csv"))) as file:
        rows = [row for row in csv.DictReader(file) if row["loss"]]
    assert [(int(row["step"]), float(row["loss"])) for row in rows] == [(s, v["loss"]) for s, v in wanted.items()]


@pytest.mark.slow
def test_killed_and_stopped_ranks_are_named_and_slow_nobody() -> None:
    """One rank is killed and one stopped mid-run: both are named once, steps are recorded without them and marked,
    and the others end though the stopped one still stands."""
    Path("hold").write_text("30")
    with job(LOOP, ["60"], 4, TRACKER_REDUCE_WAIT="1") as ranks:
        ranks.start(0, 1, 2, 3)
        until(lambda: min(ranks.at(rank) for rank in range(4)) == 30, "the ranks at step 30")
        ranks.kill(3)
        ranks.signal(2, signal.SIGSTOP)
        Path("hold").unlink()
        ranks.wait(1)
        ranks.wait(0)
        said = ranks.said[0]
        stopped, killed = ranks.ranks[2].pid, ranks.ranks[3].pid
        assert psutil.Process(stopped).status() == psutil.STATUS_STOPPED
    assert said.count(f"rank 3 (process {killed} on") == 1
    assert f"rank 2 (process {stopped} on" in said
    assert "is stopped" in said
    found = dict(reduced(the_run()))
    assert list(found) == list(range(60))
    assert [found[step] for step in range(31)] == [expected(step, range(4)) for step in range(31)]
    for step in range(31, 60):
        own = {name: value for name, value in found[step].items() if not name.startswith("stragglers/")}
        assert own == expected(step, (0, 1))
        assert found[step]["stragglers/missing"] == 2
    assert {"stragglers/rank_2", "stragglers/rank_3"} <= {name for values in found.values() for name in values}


def test_inline_run_reduces_in_the_training_process() -> None:
    """Without any helper process the main rank reduces by itself, and its trackers have all of it at the end."""
    script = LOOP.replace('"json", ', '"csv", inline=True, ')
    with job(script, ["10"], 2) as ranks:
        ranks.start(0)
        until(lambda: ranks.at(0) == 9, "the main rank's last step")
        ranks.start(1)
        ranks.wait()
    whole(the_run(), 10, 2)
    with open(next(the_run().rglob("metrics.csv"))) as file:
        assert len([row for row in csv.DictReader(file) if row["loss"]]) == 10
    assert not (the_run() / "relay.log").exists()


@pytest.mark.slow
def test_killed_relay_is_followed_by_another() -> None:
    """The relay and its reducer are killed in the middle: the next ones go on with the step that was next."""
    Path("hold").write_text("20")
    with job(LOOP, ["40"], 2) as ranks:
        ranks.start(0, 1)
        until(lambda: len(reduced(the_run())) >= 15 if ranks.at(0) >= 0 else False, "15 steps")
        for process in helpers("relay") + helpers("reduce"):
            process.kill()
        Path("hold").unlink()
        ranks.wait()
    whole(the_run(), 40, 2)


@pytest.mark.slow
def test_sync_reduces_what_a_killed_job_left() -> None:
    """Everything is killed at once; sync reduces and delivers the rest, once, however often it is called."""
    Path("hold").write_text("30")
    with job(LOOP, ["60"], 3, TRACKER_RELAY="n") as ranks:
        ranks.start(0, 1, 2)
        until(lambda: min(ranks.at(rank) for rank in range(3)) == 30, "the ranks at step 30")
        for rank in range(3):
            ranks.kill(rank)
    for _ in range(2):
        done = forked.run([sys.executable, "-m", "trackers", "sync", str(the_run())], preload=forked.HELPERS)
        assert done.returncode == 0, done.stderr
        whole(the_run(), 31, 3)
    account = json.loads((the_run() / "delivery/json.json").read_text())
    assert account["closed"] == "crashed"
    assert account["offsets"]["reducer-0.1"] == (the_run() / "streams/reducer-0.1.jsonl").stat().st_size


@pytest.mark.slow
def test_world_size_may_change_when_a_run_goes_on() -> None:
    """A run continued by fewer ranks, back from step 9, waits for those that there are now, and nobody else."""
    with job(LOOP, ["20", "{'id': 'mine'}"], 3) as ranks:
        ranks.start(0, 1, 2)
        ranks.wait()
    again = "{'id': 'mine', 'resume': 'must', 'step': 9}"
    with job(LOOP, ["10", again], 2) as ranks:
        ranks.start(1, 0)
        ranks.wait()
    run = Path("runs/p/mine")
    whole(run, 20, 3)
    assert reduced(run, 2) == [(step, expected(step, range(2))) for step in range(10, 20)]
    assert "rank" not in ranks.said[0].replace("ranks", "")
    entries = json.loads((run / "run.json").read_text())["attempts"]
    assert [entry["ranks"] for entry in entries] == [3, 2]


@pytest.mark.slow
def test_last_rank_may_be_the_main_one() -> None:
    """TRACKER_RANK=last: the last rank's run is the run, with the values of all ranks."""
    with job(LOOP, ["10"], 3, TRACKER_RANK="last") as ranks:
        ranks.start(0, 1, 2)
        ranks.wait()
    whole(the_run(), 10, 3)
    assert the_run().name in ranks.said[2]
    entry = json.loads((the_run() / "run.json").read_text())["attempts"][0]
    assert (entry["rank"], entry["ranks"]) == (2, 3)


def test_torchrun_restart_finds_its_own_attempt(tmp_path: Path) -> None:
    """torchrun starts all ranks again after one failed: the second attempt's ranks meet in the second attempt."""
    script = tmp_path / "train.py"
    script.write_text(
        "import os\nimport time\nimport trackers\nfrom trackers import Sum\n"
        "again = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\n"
        "run = trackers.init('json', project='p', id='mine', resume='allow', reduce='relay')\n"
        "for step in range(10 * again, 10 * again + 10):\n"
        "    run.log({'n': Sum(1)}, step=step)\n"
        "if os.environ['RANK'] == '0':\n"
        "    open('logged', 'w').close()\n"
        "elif not again:\n"
        "    while not os.path.exists('logged'):\n"
        "        time.sleep(0.01)\n"
        "    os.kill(os.getpid(), 9)\n"
        "run.finish()\n"
    )
    torchrun = Path(sys.executable).with_name("torchrun")
    options = ["--standalone", "--nproc-per-node=2", "--max-restarts=1", "--monitor-interval=0.1"]
    done = subprocess.run([torchrun, *options, str(script)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    run = Path("runs/p/mine")
    for attempt in (1, 2):
        steps = {step: values["n"] for step, values in reduced(run, attempt)}
        assert steps == dict.fromkeys(range(10 * attempt - 10, 10 * attempt), 2.0)


BOTH = """
import math, os, sys, time
import torch, torch.distributed as dist
from trackers import All, Max, Mean, Min, MinMax, Std, Sum
import trackers

def value(rank, step, place):
    return math.sin(1 + rank * 7.3 + step * 1.7 + place) * 10.0 ** (rank % 5)

def rank_main(rank, ranks, store):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="localhost", MASTER_PORT="29777")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    for way in ("relay", "torch"):
        run = trackers.init("json", project="p", id=f"{way}-{ranks}", reduce=way, options={"TRACKER_RELAY": False})
        for step in range(6):
            x = [value(rank, step, place) for place in range(8)]
            run.log({"mean": Mean(x[0], rank + 1), "sum": Sum(torch.tensor(x[1], dtype=torch.float64)),
                     "min": Min(x[2]), "max": Max(x[3]), "both": MinMax(x[4], x[4] + 1),
                     "std": Std(x[5]), "all": All(x[6]),
                     "nan": Max(math.nan if rank == 1 else 1.0)}, step=step)
        run.finish()
    dist.destroy_process_group()

torch.set_num_threads(1)
for ranks in (2, 4, 8):
    children = []
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            try:
                rank_main(rank, ranks, f"{os.getcwd()}/store-{ranks}")
                sys.stderr.flush()
                os._exit(0)
            except BaseException as error:
                print(error, file=sys.stderr, flush=True)
                os._exit(1)
        children.append(pid)
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    if any(codes):
        sys.exit(f"{ranks} ranks: {codes}")
"""


def metrics(path: Path) -> dict[int, dict[str, str]]:
    """Values by step, each as it was written, so that the last bit counts."""
    found: dict[int, dict[str, str]] = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "metrics":
            into = found.setdefault(record["step"], {})
            assert not into.keys() & record["values"].keys()
            into.update({name: repr(value) for name, value in record["values"].items()})
    return found


def test_both_ways_give_the_same_numbers() -> None:
    """Files and relay, or torch.distributed's collective: 2, 4 and 8 processes get the same bits either way."""
    done = forked.run([sys.executable, "-c", BOTH], preload=forked.TORCH, timeout=170)
    assert done.returncode == 0, done.stderr[-3000:]
    for ranks in (2, 4, 8):
        work = Reducer(RunDirectory(f"runs/p/relay-{ranks}"), 1, wait_s=1000, ended=True, say=pytest.fail)
        until(lambda work=work: not work.step() and work.done, "the reduction")
        work.close()
        relay = metrics(Path(f"runs/p/relay-{ranks}/streams/reducer-0.1.jsonl"))
        torch = metrics(Path(f"runs/p/torch-{ranks}/streams/rank-0.1.jsonl"))
        assert relay == torch
        assert list(relay) == list(range(6))
        assert len(relay[0]) == 8 + ranks
        assert relay[0]["nan"] == "'NaN'"


DISAGREE = """
import os, sys
import torch.distributed as dist
from trackers import Sum
import trackers
rank = int(sys.argv[1])
os.environ.update(RANK=str(rank), WORLD_SIZE="3", MASTER_ADDR="localhost", MASTER_PORT="29778")
run = trackers.init("json", project="p", id="mine", reduce="torch", options={"TRACKER_RELAY": False})
run.log({"early": Sum(1)}, step=0)
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=3)
for step in range(1, 6):
    one = 10**400 if rank == 1 and step == 4 else 1
    run.log({"n": Sum(one), ("odd" if rank == 2 and step == 2 else "even"): Sum(1)}, step=step)
run.finish()
dist.destroy_process_group()
"""


def by_torch(script: str, ranks: int) -> list[str]:
    """Run a script on so many ranks, whose number is its argument; what each said on standard error."""
    files = [Path(f"said-{rank}.txt") for rank in range(ranks)]
    with contextlib.ExitStack() as stack:
        running = []
        for rank, file in enumerate(files):
            out = stack.enter_context(file.open("wb"))
            words = [sys.executable, "-c", script, str(rank)]
            running.append(forked.Program(words, preload=forked.TORCH, stdout=out, stderr=out))
            stack.callback(running[-1].kill)
        codes = [program.wait(120) for program in running]
    said = [file.read_text() for file in files]
    assert codes == [0] * ranks, said
    return said


def test_collective_survives_ranks_that_disagree() -> None:
    """Other names on one rank, or a value that it can't send, end nothing: they are named, and the value is that of
    the others. So is a call before the group was made."""
    said = by_torch(DISAGREE, 3)
    found = metrics(Path("runs/p/mine/streams/rank-0.1.jsonl"))
    assert {step: values["n"] for step, values in found.items()} == {
        1: "3.0", 2: "2.0", 3: "3.0", 4: "2.0", 5: "3.0"
    }  # fmt: skip
    assert "what this rank has is left out" in said[1]
    assert "ranks disagree on names: rank 2" in said[0]
    assert all("torch.distributed isn't initialised" in text for text in said)


class Work:
    """A collective as its launcher gets it: over when a test says so."""

    done = False

    def is_completed(self) -> bool:
        return self.done

    def wait(self) -> None:
        assert self.done, "the process waited for the other ranks"


def test_rank_that_records_nothing_reads_no_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was gathered stays on the GPU of a rank that isn't the main one: reading it would wait for the GPU."""
    monkeypatch.setattr(collective_transport, "capturing", lambda: False)
    work = Work()
    gather = PendingGather(work, SimpleNamespace(is_cuda=True), None, 4, is_main=False, failed=pytest.fail)
    assert not gather.ready()
    work.done = True
    assert gather.ready()
    assert gather.value() == []


class OnGpu:
    """Numbers on a GPU on paper, and the torch that copies them."""

    is_cuda, device, shape, dtype = True, "cuda:0", (4,), "double"

    def __init__(self) -> None:
        self.copied = False
        event = SimpleNamespace(record=lambda stream: None, query=lambda: self.copied)
        cuda = SimpleNamespace(
            Stream=lambda device: None, stream=lambda side: contextlib.nullcontext(), Event=lambda: event
        )
        host = SimpleNamespace(copy_=lambda numbers, non_blocking: None, dtype="double", numel=lambda: 4)
        host.reshape = lambda *shape: host
        host.view = lambda *shape: SimpleNamespace(tolist=lambda: [[1.0, 2.0], [1.0, 3.0]])
        self.torch = SimpleNamespace(cuda=cuda, empty=lambda shape, dtype, pin_memory: host)

    def record_stream(self, side: None) -> None:
        """Kept until the side stream has copied it."""


def test_collective_of_processors_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """gloo with values on a GPU: the copy to the host begins once all ranks have come, and nothing waits for them."""
    gathered, work = OnGpu(), Work()
    monkeypatch.setattr(collective_transport, "capturing", lambda: False)
    monkeypatch.setitem(sys.modules, "torch", gathered.torch)
    gather = PendingGather(work, gathered, None, 2, is_main=True, failed=pytest.fail, hosted=True)
    assert not gather.ready()
    work.done = True
    assert not gather.ready()
    gathered.copied = True
    assert gather.ready()
    assert gather.value() == [[1.0, 2.0], [1.0, 3.0]]


@pytest.mark.parametrize("hosted", [True, False])
def test_processors_carry_out_gloos_collectives(hosted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of gloo's is known for one."""
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        if not hosted:
            monkeypatch.setattr(dist, "get_backend", lambda: "cpu:gloo,cuda:nccl")
        made: list[tuple[Any, bool]] = []
        monkeypatch.setattr(
            collective_transport, "PendingGather", lambda work, *more, hosted, **named: made.append((work, hosted))
        )
        way = collective_transport.Collective(0, pytest.fail)
        way.begin(0, 0.0, ReductionRow({"n": trackers.Sum(1)}, way.move, way.batch))
        ((work, is_hosted),) = made
        work.wait()  # a group can't be destroyed with work on its way
        assert is_hosted is hosted
    finally:
        dist.destroy_process_group()


def test_zeros_of_a_rank_that_fails_lie_where_its_values_do(tmp_path: Path) -> None:
    """A group of several backends chooses by the device: a rank that failed takes part in the others' collective."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("cpu:gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        said: list[str] = []
        way = collective_transport.Collective(0, said.append)
        there = SimpleNamespace(is_cuda=True, device=torch.device("meta"))
        for parts, device in ([1.0, there], "meta"), ([1.0, "text"], "cpu"):
            added = SimpleNamespace(parts=parts, layout=SimpleNamespace(names=("n",), kinds=("sum",)))
            assert way._own_vector(torch, dist, added, 8).device.type == device
        assert len(said) == 2
    finally:
        dist.destroy_process_group()


def test_collective_on_its_way_lets_a_graph_be_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a CUDA graph is captured nobody asks a collective whether it is through: that would end the capture."""
    work = Work()
    gather = PendingGather(work, SimpleNamespace(is_cuda=True), None, 4, is_main=False, failed=pytest.fail)
    work.done = True
    monkeypatch.setattr(collective_transport, "capturing", lambda: True)
    monkeypatch.setattr(work, "is_completed", pytest.fail)
    assert not gather.ready()


ALONE = """
import os, sys
import torch, torch.distributed as dist
import trackers
from trackers.inspection import TensorInspectConfig
rank = int(sys.argv[1])
os.environ.update(RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="29779")
dist.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
options = {"TRACKER_RELAY": False, "TRACKER_MEASURE_INTERVAL": 2, "TRACKER_LOG_MEMORY": True}
run = trackers.init("json", project="p", id="mine", reduce="torch", options=options)
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
inner = {"enabled": True, "tensors": ["activation"], "stats": ["max"], "end_step": 3}
layers = {"layer_name_regex_pattern": ".*"}
features = {"all": {"enabled": True, "layers": layers, "transformer_engine": {"LogTensorStats": inner}}}
if rank == 0:
    run.inspect(TensorInspectConfig(enabled=True, features=features, log_dir="inspected"), model)
for step in range(1, 13):
    if step == 7:
        loop = run.loop(12, start_step=6)
    if step <= 3 and rank == 0:
        model(torch.full((1, 2), float(step))).sum().backward()
        run.inspection.step()
    if rank == 0:
        with run.timer("save"):
            pass
    run.log({"loss": 1.0}, step=step)
    if step > 6 and not (rank == 1 and step == 8):
        loop.step()
    dist.all_reduce(torch.ones(3))
run.finish()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_measuring_launches_no_collective_of_its_own() -> None:
    """With reduce="torch" an instrument that one rank alone has, or that logs at other steps there, meets no collective
    of training: times, memory and tensors' statistics are then the main rank's own."""
    said = by_torch(ALONE, 2)
    found = metrics(Path("runs/p/mine/streams/rank-0.1.jsonl"))
    assert sum("save-time" in values for values in found.values()) >= 4
    assert {"iteration-time", "memory/process-gigabytes"} <= set(found[12])
    assert [found[step]["model.0_activation_max"] for step in range(3)] == ["1.0", "2.0", "3.0"]
    assert "values across ranks" not in "".join(said)


class Arriving:
    """A number on an accelerator."""

    def __init__(self, value: float) -> None:
        self.number = value
        self.done = False

    def ready(self) -> bool:
        return self.done

    def value(self) -> float:
        assert self.done, "a value was read before it had arrived"
        return self.number


def test_part_on_an_accelerator_is_never_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """On another rank, too, a row waits for its values, rows behind it keep their order, and finish drains them."""
    from trackers import Mean, Sum
    from trackers.ranks import transport
    from trackers.values import device_copy

    class Moving(device_copy.Transfer):
        def __init__(self, source: Any) -> None:
            self.ready, self.value = source.ready, source.value  # type: ignore[method-assign]

    monkeypatch.setattr(transport, "hold", lambda value: Moving(value) if isinstance(value, Arriving) else None)
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "TRACKER_RUN_ID": "mine"}.items():
        monkeypatch.setenv(name, value)
    run = trackers.init("json", project="p")
    loss = Arriving(3.0)
    run.log({"loss": Mean(loss, 2)}, step=0)
    run.log({"n": Sum(1)}, step=1)
    assert not list(Path("runs").rglob("rank-1.1.jsonl"))
    loss.done = True
    run.log({"plain": 1.0}, step=2)
    run.finish()
    (path,) = Path("runs").rglob("rank-1.1.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["step"], row["values"]) for row in rows if row["kind"] == "row"] == [(0, [3.0, 2]), (1, [1])]


def test_forked_worker_adds_nothing_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A data loader's worker isn't a rank: what it logs would count twice."""
    from trackers import Sum

    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "TRACKER_RUN_ID": "mine"}.items():
        monkeypatch.setenv(name, value)
    run = trackers.init("json", project="p")
    run.log({"n": Sum(1)}, step=0)
    pid = os.fork()
    if pid == 0:
        run.log({"n": Sum(1)}, step=0)
        run.finish()
        os._exit(0)
    os.waitpid(pid, 0)
    run.finish()
    (path,) = Path("runs").rglob("rank-1.1.jsonl")
    assert path.read_text().count('"kind":"row"') == 1
    assert path.read_text().count('"kind":"finish"') == 1
    assert "a forked process has none of its own" in capfd.readouterr().err


@pytest.mark.soak
def test_benchmark_measures_and_audits() -> None:
    """The benchmark's ranks log, and every value of all ranks comes out right; how fast is for it to tell."""
    figures = {figure.name: figure for figure in benchmark.measure(True, ranks=2, seconds=3.0)}
    assert figures["values lost, doubled or wrong"].value == 0
    assert figures["steps logged by the slowest rank"].value > 10
