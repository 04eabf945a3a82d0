"""All ranks of a job find the same run, by what their launcher tells each of them alike, and none waits for another."""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import trackers
from trackers import Max, Mean, Sum
from trackers.errors import MissingPackage, Refused, UsageError
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamReader
from trackers.ranks import launch, meeting
from trackers.records import Finish, Start, encode
from trackers.relay.nodes import encryption
from trackers.support import confined
from trackers.training.disabled import NullRun
from trackers.training.rank_run import RankRun

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "job7",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "MASTER_ADDR": "node1",
    "MASTER_PORT": "29500",
    "LOCAL_WORLD_SIZE": "4",
}
SLURM = {"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8"}
MPI = {"PMIX_NAMESPACE": "prterun-node1-4711@1"}
MASTER = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}


def names(environ: dict[str, str], run_id: str = "", variable: str = "RANK", ranks: int = 8) -> list[str]:
    """What each rank takes its launch for."""
    found = []
    for rank in range(ranks):
        own = {"WORLD_SIZE": str(ranks), "OMPI_COMM_WORLD_SIZE": str(ranks), **environ, variable: str(rank)}
        assert launch.world(own) == ranks
        found.append(launch._key(run_id, own))
    return found


@pytest.mark.parametrize(
    ("environ", "variable", "change"),
    [
        (TORCHRUN, "RANK", {"TORCHELASTIC_RUN_ID": "job8"}),
        (TORCHRUN, "RANK", {"TORCHELASTIC_RESTART_COUNT": "1"}),
        (TORCHRUN, "RANK", {"MASTER_PORT": "29501"}),
        (SLURM, "SLURM_PROCID", {"SLURM_JOB_ID": "78"}),
        (SLURM, "SLURM_PROCID", {"SLURM_STEP_ID": "1"}),
        (SLURM, "SLURM_PROCID", {"SLURM_RESTART_COUNT": "1"}),
        (MPI, "OMPI_COMM_WORLD_RANK", {"PMIX_NAMESPACE": "prterun-node1-4712@1"}),
        (MASTER, "RANK", {"MASTER_PORT": "29501"}),
    ],
)
def test_launcher_names_the_launch(environ: dict[str, str], variable: str, change: dict[str, str]) -> None:
    """Every rank finds the same name, and another launch or a restart has another one."""
    (one,) = set(names(environ, variable=variable))
    (other,) = set(names({**environ, **change}, variable=variable))
    assert one
    assert one != other


def test_run_id_comes_first() -> None:
    """A run id names the launch whatever else is set, with the launcher's count of restarts."""
    everything = {**TORCHRUN, **SLURM, **MPI}
    (one,) = set(names(everything, "mine"))
    assert one.startswith("id mine")
    assert names({}, "mine") == names(SLURM, "mine")
    assert {one} != set(names({**everything, "TORCHELASTIC_RESTART_COUNT": "1"}, "mine"))


def test_started_by_another_agent_is_another_launch() -> None:
    """A port is used again; the process that started all ranks of a machine is not."""
    code = "import os; from trackers.ranks import launch; print(launch._key('', dict(os.environ)))"
    script = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])"
    environ = {**os.environ, **MASTER, "RANK": "1", "WORLD_SIZE": "2"}
    keys = {subprocess.check_output([sys.executable, "-c", script], env=environ, text=True) for _ in range(2)}
    assert len(keys) == 2
    assert all(key.startswith("master localhost:29500") for key in keys)
    assert not launch._agent({**MASTER, "MASTER_ADDR": "node1"})


def test_two_agents_on_one_machine_start_one_launch() -> None:
    """torchrun --nnodes=2, started twice on one machine: the agents differ, the launch doesn't."""
    two = {**MASTER, "MASTER_ADDR": "127.0.0.1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"}
    assert not launch._agent(two)
    assert launch._agent({**two, "WORLD_SIZE": "2"})


def test_script_of_a_slurm_batch_is_alone() -> None:
    """Without srun there is one process, however many tasks were allocated."""
    batch = {"SLURM_JOB_ID": "77", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}
    assert launch.world(batch) == 1
    assert launch.world({**batch, "SLURM_STEP_ID": "0"}) == 8


def test_each_init_of_a_process_is_a_launch_of_its_own() -> None:
    """A script that makes two runs doesn't mix their ranks."""
    environ = {"RANK": "0", "WORLD_SIZE": "2", **MASTER}
    first, second = launch.find("", environ), launch.find("", environ)
    assert first is not None
    assert second is not None
    assert first.name != second.name
    assert first.run_id() != second.run_id()
    assert len(first.run_id()) == 8


def test_ranks_that_nothing_connects_say_what_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a launcher's word a value across ranks is left out with one line; asked for, it is an error of init."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="set TRACKER_RUN_ID to the same id on every rank"):
        trackers.init("json", mode="offline", reduce="relay")
    run = trackers.init("json", mode="offline", options={"TRACKER_RELAY": False})
    for step in range(3):
        run.log({"loss": Mean(1.0), "lr": 0.1}, step=step)
    run.finish()
    assert capsys.readouterr().err.count("set TRACKER_RUN_ID to the same id on every rank") == 1
    assert "loss" not in Path(run.dir, "streams/rank-0.1.jsonl").read_text()


def test_collective_without_torch_imported_costs_the_reduction_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nobody has imported torch, one line says what is missing; plain values of the same call are recorded."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("torch", "torch.distributed"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    run = trackers.init("json", mode="offline", reduce="torch", options={"TRACKER_RELAY": False})
    run.log({"loss": Mean(1.0), "lr": 0.1}, step=1)
    run.finish()
    said = capsys.readouterr().err
    assert "torch.distributed isn't initialised" in said
    assert "KeyError" not in said
    assert '"values":{"lr":0.1},"step":1' in Path(run.dir, "streams/rank-0.1.jsonl").read_text()


def test_way_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another word than relay or torch, or torch without PyTorch, is seen before the first step."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="relay"):
        trackers.init("json", mode="offline", reduce="nccl")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match="pip install torch"):
        trackers.init("json", mode="offline", reduce="torch")


def test_rank_that_logs_plain_values_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other ranks cost no file and no directory until they add to a value of all ranks; then they have a stream."""
    for name, value in {**MASTER, "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    with trackers.init("json", config={"lr": 0.1}) as run:
        assert isinstance(run, RankRun)
        assert isinstance(run, NullRun)
        assert not run.disabled
        for step in range(5):
            run.log({"loss": 0.5, "note": "text", "none": None}, step=step)
        run.log({"loss": 0.5})
        assert run.step == 5
        assert run.config.lr == 0.1
        assert run.status() == {}
        assert run.flush()
        assert not Path("runs").exists()
        run.log({"t": {"loss": Mean(1.0)}, "lr": object()}, step=7)
    run.log({"loss": Mean(1.0)}, step=8)
    (path,) = Path("runs").rglob("rank-1.1.jsonl")
    kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
    assert kinds == ["start", "columns", "row", "finish"]
    assert '"t/loss"' in path.read_text()


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize("place", ["{}", "{}/NAME", "{} to nothing", "{}/NAME to nothing"])
@pytest.mark.processes
def test_link_in_the_place_of_a_launchs_folder_is_not_followed(
    place: str, rank: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its name can be guessed: nobody who may write beside the projects gets anything written elsewhere."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "runs.jsonl").write_text("mine\n")
    for name, value in {
        **MASTER,
        "RANK": rank,
        "WORLD_SIZE": "2",
        "TRACKER_RELAY": "n",
        "TRACKER_SHARE": "umask",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(launch, "_count", itertools.count())
    found = launch.find("x")
    assert found is not None
    monkeypatch.setattr(launch, "_count", itertools.count())
    target = victim / "new" if "nothing" in place else victim
    link = Path("runs", place.split()[0].format(launch.FOLDER).replace("NAME", found.name))
    link.parent.mkdir(parents=True)
    link.symlink_to(target)
    with contextlib.ExitStack() as stack:
        if rank == "0":
            stack.enter_context(pytest.raises(UsageError, match=r"can't be written \((is a link|File exists|No such)"))
        with trackers.init("json", id="x", project="p") as run:
            run.log({"loss": Mean(1.0)}, step=0)
    assert [path.name for path in victim.iterdir()] == ["runs.jsonl"]
    assert (victim / "runs.jsonl").read_text() == "mine\n"
    assert victim.stat().st_mode & 0o777 == 0o700
    assert link.is_symlink()
    assert ("values across ranks can't be kept in" in capfd.readouterr().err) == (rank == "1")


@pytest.mark.parametrize("swapped", [".ranks", ".ranks/x"])
def test_folder_of_a_launch_that_becomes_a_link_is_not_used(swapped: str, tmp_path: Path) -> None:
    """Whatever is opened in a launch's folder is opened from the directory around it, each time."""
    victim, folder = tmp_path / "victim", tmp_path / "runs/.ranks/x"
    confined.make_own(folder)
    (folder / "nccl").mkdir()
    (folder / "nccl/rank-0.log").write_text("ours")
    folder.parent.rename(victim) if swapped == ".ranks" else folder.rename(victim)
    (tmp_path / "runs" / swapped).symlink_to(victim)
    victim.chmod(0o700)
    run = RunDirectory(tmp_path / "runs/p/one")
    run.make("umask")
    before = sorted(victim.rglob("*"))
    for use in (
        lambda: confined.make_own(folder),
        lambda: confined.make_folder(folder / "console"),
        lambda: confined.set_mode(folder, 0o777),
        lambda: confined.read(folder / "nccl/rank-0.log"),
        lambda: confined.touch(folder / "new"),
        lambda: confined.write_whole(folder / "listen.json", b""),
        lambda: confined.remove(folder / "nccl/rank-0.log"),
        lambda: launch.register(folder, run, 1, 1.0),
    ):
        with pytest.raises(OSError, match="is a link"):
            use()
    assert sorted(victim.rglob("*")) == before
    assert victim.stat().st_mode & 0o777 == 0o700


def seen_as(owner: int, fd: int) -> os.stat_result:
    """What ``os.fstat`` says, with another owner."""
    found = list(os.stat(fd))
    return os.stat_result([*found[:4], owner, *found[5:]])


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="needs root: folders of another account")
def test_folder_of_a_launch_that_another_account_made_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its name can be guessed: who made it, or swaps it, could read all that ranks write, and name the job's secret."""
    folder = tmp_path / "runs/.ranks/x"
    folder.mkdir(parents=True, mode=0o777)
    order, pem = msgspec.json.encode(meeting.Listen(secret="x" * 64)), encryption._make()
    (folder / "listen.json").write_bytes(order)
    (folder / "nodes.pem").write_bytes(pem)
    monkeypatch.setattr(os, "geteuid", lambda: 12345)  # for whom root's is fine, and another account's isn't
    os.chown(folder, 65534, 65534)
    for name in ("listen.json", "nodes.pem"):
        os.chown(folder / name, 65534, 65534)
    run = RunDirectory(tmp_path / "runs/p/one")
    run.make("umask")
    for use in (
        lambda: confined.make_own(folder),
        lambda: confined.write_new(folder / "new", b"mine"),
        lambda: confined.write_whole(folder / "listen.json", b"mine"),
        lambda: confined.read(folder / "listen.json", own=True),
        lambda: launch.register(folder, run, 1, 1.0),
    ):
        with pytest.raises(PermissionError, match="is another account's"):
            use()
    assert meeting.read_order(folder) is None
    with pytest.raises(Refused):
        encryption.identity(folder)
    known = {"listen.json": order, "nodes.pem": pem}
    assert not any(path.read_bytes() != known.get(path.name, b"") for path in folder.iterdir())
    os.chown(folder, 0, 0)
    os.chown(folder / "listen.json", 0, 0)
    monkeypatch.setattr(os, "fstat", functools.partial(seen_as, 65534))  # as a file server may say of each file
    assert meeting.read_order(folder) is not None
    confined.make_own(folder)
    confined.write_whole(folder / "listen.json", b"mine")
    assert {path.name for path in folder.iterdir()} - {"new"} == {"listen.json", "nodes.pem"}


def test_folder_that_served_several_launches_keeps_them_apart(tmp_path: Path) -> None:
    """Where what names a launch comes again, a rank belongs to the attempt whose predecessor had ended before it."""
    folder = tmp_path / ".ranks/x"
    first, second = RunDirectory(tmp_path / "p/one"), RunDirectory(tmp_path / "p/two")
    for run, start, end in ((first, 100.0, 200.0), (second, 300.0, 400.0)):
        run.make()
        lines = encode(Start(time=start)) + encode(Finish(time=end, status="crashed"))
        run.stream(StreamName("rank", 0, 1)).write_bytes(lines)
        launch.register(folder, run, 1, start)
    assert launch.span(folder, first, 1) == (float("-inf"), 200.0)
    assert launch.span(folder, second, 1) == (200.0, float("inf"))


@pytest.mark.slow
def test_store_of_torch_names_the_launch(tmp_path: Path) -> None:
    """Where torch.distributed is initialised and nothing else is known, whoever comes first names the launch."""
    code = (
        "import os, sys; import torch.distributed as dist; from trackers.ranks import launch; rank = int(sys.argv[1]); "
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=rank, world_size=2); "
        "found = launch.find(''); print(found.name, found.ranks); "
        "dist.barrier(); dist.destroy_process_group()"  # who leaves at once breaks off the other's connecting
    )
    ranks = [
        subprocess.Popen([sys.executable, "-c", code, str(rank)], stdout=subprocess.PIPE, text=True) for rank in (0, 1)
    ]
    said = [rank.communicate(timeout=100)[0].split() for rank in ranks]
    assert said[0] == said[1]
    assert said[0][1] == "2"


@pytest.mark.slow
def test_resumed_run_goes_on_after_its_last_value_across_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose steps were all values across ranks goes on with the step after them, reduced already or not."""
    for name, value in {**MASTER, "RANK": "0", "WORLD_SIZE": "1"}.items():
        monkeypatch.setenv(name, value)
    options = {"TRACKER_RELAY": False}
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = trackers.init("json", project="p", id="mine", mode="offline", options=options)
    run.log({"loss": Mean(1.0)}, step=41)
    run.finish()
    again = trackers.init("json", project="p", id="mine", mode="offline", options=options, resume="must")
    again.log({"loss": Mean(1.0)})
    assert again.step == 42
    again.finish()
    for sync in ("sync", "sync"):
        done = subprocess.run(
            [sys.executable, "-m", "trackers", sync, "mine"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert not Path("runs/.ranks").exists()
    last = trackers.init("json", project="p", id="mine", mode="offline", options=options, resume="must")
    last.log({"loss": 1.0})
    assert last.step == 43
    last.finish()


def test_short_way_writes_what_the_long_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call like an earlier one is taken in few steps: other kinds, NaN, large integers, nested names."""
    calls: list[dict[str, object]] = [
        {"a": Mean(1.0, 2), "b": Max(3.0)},
        {"a": Mean(4.0, 5), "b": Max(6.0)},
        {"a": Sum(7.0), "b": Max(8.0)},
        {"a": Mean(float("nan"), 1), "b": Max(float("inf"))},
        {"b": Max(9.0), "a": Mean(10.0)},
        {"a": Mean(True, 2), "b": Max(11)},
        {"n": {"a": Sum(1.0)}},
        {"n": {"a": Sum(2.0)}},
        {"a": Mean(12.0, 13), "b": 14.0},
        {"a": Mean(2**70, 13)},
    ]
    for name, value in {**MASTER, "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(name, value)
    for rank in ("1", "0"):
        monkeypatch.setenv("RANK", rank)
        run = trackers.init("json", mode="offline", options={"TRACKER_RELAY": False})
        for step, values in enumerate(calls):
            run.log(values, step=step)
        run.finish()
        (path,) = Path("runs/.ranks").rglob(f"rank-{rank}.1.jsonl")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        columns = {record["number"]: record for record in records if record["kind"] == "columns"}
        rows = [record for record in records if record["kind"] == "row"]
        assert len(StreamReader(path).read(100)) == len(records)
        assert [
            (row["step"], columns[row["columns"]]["names"], columns[row["columns"]]["kinds"], row["values"])
            for row in rows
        ] == [
            (0, ["a", "b"], ["mean", "max"], [1, 2, 3]),
            (1, ["a", "b"], ["mean", "max"], [4, 5, 6]),
            (2, ["a", "b"], ["sum", "max"], [7, 8]),
            (3, ["a", "b"], ["mean", "max"], ["NaN", 1, "Infinity"]),
            (4, ["b", "a"], ["max", "mean"], [9, 10, 1]),
            (5, ["a", "b"], ["mean", "max"], [1, 2, 11]),
            (6, ["n/a"], ["sum"], [1]),
            (7, ["n/a"], ["sum"], [2]),
            (8, ["a"], ["mean"], [12, 13]),
            (9, ["a"], ["mean"], [2.0**70, 13]),
        ]
