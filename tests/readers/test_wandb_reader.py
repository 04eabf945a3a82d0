"""W&B read back: the real client against the stand-in's answers, and its offline files."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import trackers
from tests import forked
from tests.as_wandb.versions import CLIENT
from tests.backends.wandb.support import offline_rows, picture, server
from tests.backends.wandb.test_datastore import framed
from tests.fakes import wandb_reads
from tests.fakes.wandb_reads import HeldRun
from tests.fakes.wandb_server import Fault, WandbServer
from tests.helpers import T0, Driver, Terminal, run_info, stream, training
from trackers.backends.wandb.tracker import WandbTracker
from trackers.errors import CredentialsMissing, Damaged, NotFound, Unavailable, UsageError
from trackers.readers.reader import Reader, SourceRun
from trackers.readers.run_data import load
from trackers.readers.wandb import api, fetch
from trackers.readers.wandb.api import WandbReader
from trackers.readers.wandb.file import WandbFileReader
from trackers.readers.wandb.rows import Decoder
from trackers.records import (
    ArtifactFile,
    ArtifactRecord,
    Config,
    Environment,
    Finish,
    Media,
    MediaFile,
    Metrics,
    Record,
    Start,
    Summary,
    Text,
)
from trackers.support import machines, processes
from trackers.testing import Limits, check_reader
from trackers.tracker import Status

__all__ = ["server"]
# The client's thread complains where a test's service was stopped before what it had opened was collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
GPUS = 16


def held(
    server: WandbServer, rows: int = 100, events: int = 0, id: str = "v2h4vzbc", stride: int = 1, **fields: Any
) -> HeldRun:
    """A finished run of another program in the stand-in: two metrics of different cadence, sixteen GPUs."""
    values: dict[str, Any] = {"display_name": "base", "exit_code": 0, "complete": True, "created": T0, **fields}
    run = HeldRun(id, values.pop("entity", "someone"), values.pop("project", "digits"), **values)
    for step in range(rows):
        row = {"_step": step * stride, "_timestamp": T0 + step, "_runtime": step, "loss": step + 0.5}
        if step % 10 == 0:
            row["val/acc"] = step / 10
        run.rows.append(row)
    for number in range(events):
        gpus = {f"system.gpu.{gpu}.memoryAllocatedBytes": 1e9 * gpu + number for gpu in range(GPUS)}
        run.event_rows.append({"_timestamp": T0 + number, "_runtime": number, **gpus})
    server.runs[id] = run
    return run


def read(where: str, **options: Any) -> list[Record]:
    reader = WandbReader()
    (run,) = reader.runs(where)
    return list(reader.read(run, **options))


def points(records: list[Record], name: str) -> list[tuple[int | None, float, float]]:
    """Step, time and value of each point of a metric."""
    return [(r.step, r.time, r.values[name]) for r in records if isinstance(r, Metrics) and name in r.values]


def asked(server: WandbServer, operation: str) -> int:
    return sum(request.endswith(operation) for request in server.requests)


def test_readers_are_readers() -> None:
    """Both classes fulfil the contract."""
    assert isinstance(WandbReader(), Reader)
    assert isinstance(WandbFileReader(), Reader)


@pytest.mark.slow
def test_history_is_complete(server: WandbServer) -> None:
    """Twelve thousand rows come whole, with their steps and times, and metrics of another cadence with theirs."""
    held(server, 12_000)
    found = read("someone/digits/v2h4vzbc")
    assert points(found, "loss") == [(step, T0 + step, step + 0.5) for step in range(12_000)]
    assert [step for step, _, _ in points(found, "val/acc")] == list(range(0, 12_000, 10))


def test_system_metrics_are_complete(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All samples of sixteen GPUs, though the server would give a sample of them; at no step, between the rows."""
    monkeypatch.setattr(fetch, "EVENTS_FIRST", 100)
    held(server, 100, events=3000)
    found = read("someone/digits/v2h4vzbc")
    for gpu in range(GPUS):
        series = points(found, f"system.gpu.{gpu}.memoryAllocatedBytes")
        assert series == [(None, T0 + number, 1e9 * gpu + number) for number in range(3000)]
    times = [record.time for record in found if isinstance(record, Metrics)]
    assert times == sorted(times)


@pytest.mark.slow
def test_sampled_system_metrics_are_said_to_be(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the server gives fewer samples than it has, the run says how many of how many."""
    monkeypatch.setattr(wandb_reads, "EVENTS_CAP", 40)
    held(server, 10, events=120)
    reader = WandbReader()
    (run,) = reader.runs("someone/digits")
    assert len(points(list(reader.read(run)), "system.gpu.0.memoryAllocatedBytes")) == 40
    assert run.note == "system metrics: sampled 40 of 120"


def test_commands_say_that_samples_are_sampled(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever shows such a run says so, also the second time, from what is kept; a picture has it below."""
    from typer.testing import CliRunner

    from trackers.cli.app import app

    monkeypatch.setattr(wandb_reads, "EVENTS_CAP", 40)
    held(server, 10, events=120)
    said = "system metrics: sampled 40 of 120"
    source = "wandb:someone/digits/base"
    for arguments in (
        ["keys", source], ["keys", source], ["gpu-report", source], ["compare", source], ["report", source],
        ["plot", source, "-o", str(tmp_path / "a.svg")],
    ):  # fmt: skip
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.output
        assert said in done.output, arguments
    assert said in (tmp_path / "a.svg").read_text()


@pytest.mark.slow
def test_progress_is_shown_on_a_terminal(
    server: WandbServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """While history is fetched a bar counts its rows; elsewhere nothing is printed."""
    held(server, 3000)
    read("someone/digits/v2h4vzbc")
    assert capsys.readouterr().err == ""
    held(server, 3000, id="other", display_name="other")
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TRACKERS_PROGRESS_S", "0")
    monkeypatch.setenv("TERM", "xterm")
    read("someone/digits/other")
    assert "fetching other" in terminal.getvalue()
    assert "3000/3000" in terminal.getvalue()


@pytest.mark.slow
def test_run_is_loaded_as_columns(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """``trackers.load`` gives the complete history; read again, it costs the listing alone. WANDB_MODE is no matter."""
    monkeypatch.setenv("WANDB_MODE", "offline")
    held(server, 3000, events=20)
    loaded = trackers.load("wandb:someone/digits/base")
    assert loaded.metrics().num_rows == 3000
    assert loaded.metrics("val/acc", long=True).num_rows == 300
    assert loaded.system("system.gpu.*").num_rows == 20
    server.requests.clear()
    assert trackers.load("wandb:someone/digits/base").metrics().num_rows == 3000
    assert {request.split()[-1] for request in server.requests} - {"Viewer", "viewer", "GetDefaultEntity"} == {"Runs"}


def test_run_is_described(server: WandbServer) -> None:
    """Configuration, results, environment, attributes and the end are what the server says."""
    run = held(server, tags=["a", "b"], notes="first", group="ablation", exit_code=1)
    run.config = {"lr": {"value": 0.1}, "model": {"value": {"depth": 4}}, "_wandb": {"value": {"m": []}}}
    run.summary_sent = {"loss": 99.5, "final/best": 0.25, "acc": {"max": 0.9}, "_step": 99, "odd": "NaN"}
    run.files["wandb-metadata.json"] = json.dumps({"gpu": "NVIDIA B200", "gpu_count": 4}).encode()
    reader = WandbReader()
    (source,) = reader.runs("someone/digits")
    assert (source.id, source.name, source.group, source.tags, source.notes) == (
        "v2h4vzbc", "base", "ablation", ["a", "b"], "first",
    )  # fmt: skip
    assert source.source == "wandb:someone/digits/v2h4vzbc"
    assert source.created == int(T0)
    found = list(reader.read(source))
    assert isinstance(found[0], Start)
    assert [r.values for r in found if isinstance(r, Config)] == [{"lr": 0.1, "model": {"depth": 4}}]
    assert [r.values for r in found if isinstance(r, Environment)] == [{"gpu": "NVIDIA B200", "gpu_count": 4}]
    (summary,) = (r.values for r in found if isinstance(r, Summary))
    assert math.isnan(summary.pop("odd"))
    assert summary == {"final/best": 0.25, "acc.max": 0.9}
    assert isinstance(found[-1], Finish)
    assert found[-1].status == "failed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("state", "fields"),
    [
        ("finished", {}),
        ("failed", {"exit_code": 3}),
        ("running", {"exit_code": None}),
        ("crashed", {"exit_code": None, "heartbeat": 0.0}),
        ("preempted", {"exit_code": 1, "preempting": True}),
    ],
)
def test_state_becomes_our_status(server: WandbServer, state: str, fields: dict[str, Any]) -> None:
    """Each of W&B's states has its word here; only what has ended ends the records."""
    held(server, **fields)
    reader = WandbReader()
    (run,) = reader.runs("someone/digits")
    assert run.status == state
    ends = [record for record in reader.read(run) if isinstance(record, Finish)]
    assert [end.status for end in ends] == ([] if state == "running" else [state])


@pytest.mark.slow
def test_values_that_json_cannot_hold_are_kept(server: WandbServer) -> None:
    """NaN and infinities, as W&B's strings or literally; texts, nested values and lists by their kind."""
    run = held(server, 0)
    run.rows = [
        {"_step": 0, "_timestamp": T0, "a": "NaN", "b": "-Infinity", "c": float("inf"), "text": "hello", "l": [1, 2]},
        {"_step": 5, "_timestamp": T0 + 1, "n": {"x": 1, "y": {"z": 2.5}}, "none": None, "yes": True},
    ]
    found = read("someone/digits/base")
    (first, second) = (record for record in found if isinstance(record, Metrics))
    assert math.isnan(first.values["a"])
    assert (first.values["b"], first.values["c"]) == (-math.inf, math.inf)
    assert (second.step, second.values) == (5, {"n.x": 1, "n.y.z": 2.5, "yes": True})
    assert [r.values for r in found if isinstance(r, Text)] == [{"text": "hello", "l": "[1, 2]"}]


def test_all_pages_of_runs_are_listed(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project of more runs than a page holds is listed whole, the newest first, without their histories."""
    monkeypatch.setattr(api, "PAGE_RUNS", 50)
    for number in range(120):
        held(server, 0, id=f"run{number:05d}", display_name=f"run-{number}", created=T0 + number)
    found = WandbReader().runs("someone/digits")
    assert [run.name for run in found] == [f"run-{number}" for number in reversed(range(120))]
    assert asked(server, "Runs") == 3
    assert asked(server, "HistoryPage") == 0


def test_run_is_named_in_several_ways(server: WandbServer) -> None:
    """By id, by name, by a glob, by its address in the browser, with the login's own entity."""
    held(server)
    held(server, id="other000", display_name="other", created=T0 + 1)
    reader = WandbReader()
    for where in ("someone/digits/v2h4vzbc", "someone/digits/base", "someone/digits/ba*",
                  f"{server.url}/someone/digits/runs/v2h4vzbc"):  # fmt: skip
        assert [run.id for run in reader.runs(where)] == ["v2h4vzbc"]
    assert len(reader.runs("digits")) == 2
    assert len(reader.runs("someone/digits/*")) == 2


def test_two_runs_of_one_name_are_listed(server: WandbServer) -> None:
    """A name that several runs have names none: the message has their ids."""
    held(server)
    held(server, id="again000")
    with pytest.raises(NotFound, match=r"2 runs of someone/digits.*'base': .*v2h4vzbc.*name one by its id"):
        WandbReader().runs("someone/digits/base")


def test_what_is_missing_is_said(server: WandbServer) -> None:
    """A project or run that isn't there, and a source that can't be one, are told apart."""
    held(server)
    held(server, id="other", project="letters")
    for ask in (lambda: WandbReader().runs("someone/nope"), lambda: WandbReader().newest("someone", "nope")):
        with pytest.raises(NotFound, match=r"no project someone/nope on .*; someone has digits, letters"):
            ask()
    with pytest.raises(NotFound, match=r"no project nobody/digits on .*; your login sees no project of 'nobody'"):
        WandbReader().runs("nobody/digits")
    with pytest.raises(NotFound, match=r"no run 'nope' in someone/digits .* there are base \(v2h4vzbc\)"):
        WandbReader().runs("someone/digits/nope")
    with pytest.raises(UsageError, match="give wandb:entity/project"):
        WandbReader().runs("a/b/c/d")


def test_missing_login_is_said(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a key the message names the command; so it does where the key is refused."""
    wandb.teardown()  # the client keeps the login of its process, which tests before this one have had
    with contextlib.suppress(ImportError):
        monkeypatch.setattr("wandb.sdk.lib.wbauth.authenticate._session_auth", None)
    monkeypatch.delenv("WANDB_API_KEY")
    monkeypatch.setenv("WANDB_HTTP_TIMEOUT", "60")  # the client's helper process starts meanwhile, beside other tests
    with pytest.raises(CredentialsMissing, match="wandb login"):
        WandbReader().runs("someone/digits")
    monkeypatch.setenv("WANDB_API_KEY", "k" * 40)
    server.fault = Fault("status", "[Vv]iewer", status=401)
    with pytest.raises(CredentialsMissing, match=r"refused.*wandb login --relogin"):
        WandbReader().runs("someone/digits")


@pytest.mark.parametrize("port", [45039, 50304, 14290, 5020])
def test_port_of_a_server_is_no_status(port: int) -> None:
    """A refused login is one, whatever digits stand in the server's address."""
    refused = wandb.errors.AuthenticationError(f"Failed to verify credentials with http://127.0.0.1:{port}: fault 401")
    assert isinstance(fetch.translate(refused), CredentialsMissing)
    away = wandb.errors.CommError(f"returned error 503 from http://127.0.0.1:{port}")
    assert isinstance(fetch.translate(away), Unavailable)


@pytest.mark.slow
def test_busy_server_is_waited_for(server: WandbServer) -> None:
    """429 with Retry-After and 502 in between take time and lose nothing."""
    held(server, 3000, events=10)
    for fault in (
        Fault("status", "HistoryPage", status=429, retry_after_s=1, count=1),
        Fault("status", "Runs$", status=502, count=1),
    ):
        server.fault = fault
        found = read("someone/digits/v2h4vzbc")
        assert server.fault is None
        assert len(points(found, "loss")) == 3000


@pytest.mark.skipif(CLIENT < (0, 28), reason="needs wandb 0.28: older clients read without a helper process")
def test_clients_process_that_ended_is_named_and_started_again(server: WandbServer) -> None:
    """wandb-core killed (no memory, an administrator): that is said, not that the login was refused; the next reading
    has a new one. The client would ask the dead one for ever."""
    from wandb.sdk import wandb_setup

    held(server, 100)
    read("someone/digits/v2h4vzbc")
    process = wandb_setup.singleton().ensure_service()._proc._process  # type: ignore[union-attr]
    process.kill()
    process.wait()
    server.runs["v2h4vzbc"].rows.append({"_step": 100, "_timestamp": T0 + 100, "loss": 0.0})
    with pytest.raises(Unavailable, match=r"helper process .* has ended; run it again"):
        read("someone/digits/v2h4vzbc")
    assert len(points(read("someone/digits/v2h4vzbc"), "loss")) == 101


@pytest.mark.slow
def test_history_is_fetched_once(server: WandbServer) -> None:
    """A second reading asks for no history; a run that went on is asked for what is new alone."""
    run = held(server, 3000, events=5, exit_code=None)
    first = read("someone/digits/v2h4vzbc")
    server.requests.clear()
    assert read("someone/digits/v2h4vzbc") == first
    assert asked(server, "HistoryPage") == asked(server, "RunFullHistory") == 0
    run.rows += [{"_step": step, "_timestamp": T0 + step, "loss": step + 0.5} for step in range(3000, 3500)]
    server.requests.clear()
    assert len(points(read("someone/digits/v2h4vzbc"), "loss")) == 3500
    assert asked(server, "HistoryPage") == 1


@pytest.mark.slow
def test_fetching_shows_a_bar_on_a_terminal(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """People see how far it is; what is kept already shows nothing."""
    monkeypatch.setenv("TRACKERS_PROGRESS_S", "0")
    monkeypatch.setenv("TERM", "xterm")
    held(server, 3000)
    for shown in (True, False):
        terminal = Terminal()
        monkeypatch.setattr("sys.stderr", terminal)
        read("someone/digits/base")
        assert ("fetching base (v2h4vzbc)" in terminal.getvalue()) is shown


def test_cache_needs_no_pyarrow(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where only wandb is installed, what was fetched is kept as packed lines, and read back the same."""
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else real(name))
    held(server, 1500, events=3)
    first = read("someone/digits/base")
    server.requests.clear()
    assert read("someone/digits/base") == first
    assert len(points(first, "loss")) == 1500
    assert asked(server, "HistoryPage") == 0


@pytest.mark.slow
def test_rewound_run_is_fetched_anew(server: WandbServer) -> None:
    """A history that became shorter, or another at the same steps, isn't mixed with what was kept."""
    run = held(server, 2000)
    read("someone/digits/v2h4vzbc")
    run.rows = [{**row, "loss": -1.0} for row in run.rows[:1500]]
    assert {value for _, _, value in points(read("someone/digits/v2h4vzbc"), "loss")} == {-1.0}


def test_interrupted_fetch_goes_on(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was fetched before the server went away is kept; the next reading begins behind it."""
    monkeypatch.setattr(fetch, "KEPT_ROWS", 1000)
    monkeypatch.setattr(fetch, "PATIENCE_S", 0.0)
    held(server, 6000)
    reader = WandbReader()
    (run,) = reader.runs("someone/digits")
    real = fetch._rows_of

    def dies(scan: Any) -> Iterator[dict[str, Any]]:
        for number, row in enumerate(real(scan)):
            if number == 3500:
                raise Unavailable("wandb: gone")
            yield row

    monkeypatch.setattr(fetch, "_rows_of", dies)
    with pytest.raises(Unavailable):
        list(reader.read(run))
    monkeypatch.setattr(fetch, "_rows_of", real)
    server.requests.clear()
    assert len(points(list(reader.read(run)), "loss")) == 6000
    assert asked(server, "HistoryPage") == 3


@pytest.mark.slow
def test_rows_far_apart_cost_few_requests(server: WandbServer) -> None:
    """Steps that are tokens, a million apart, don't cost a request for each thousand of them."""
    held(server, 300, stride=1_000_000)
    found = read("someone/digits/v2h4vzbc")
    assert [step for step, _, _ in points(found, "loss")] == [step * 1_000_000 for step in range(300)]
    assert asked(server, "HistoryPage") < 5


@pytest.mark.parametrize("claimed", [0, 2000])
def test_history_of_empty_pages_has_an_end(server: WandbServer, monkeypatch: pytest.MonkeyPatch, claimed: int) -> None:
    """A server that claims steps, and perhaps rows, without end and sends none is left in one line."""
    monkeypatch.setattr(fetch, "MOST_EMPTY_PAGES", 30)
    run = held(server, 2, stride=1_000_000)
    monkeypatch.setattr(run, "count", lambda file: claimed)
    with pytest.raises(Damaged, match=f"claims 1,000,001 steps for {claimed:,} rows: that has no end"):
        read("someone/digits/v2h4vzbc")
    assert asked(server, "HistoryPage") < 100


@pytest.mark.slow
def test_exported_history_is_read(server: WandbServer) -> None:
    """What the server has put into Parquet files, and what came after, is one history."""
    run = held(server, 3000)
    run.export(2000)
    found = read("someone/digits/v2h4vzbc")
    assert [value for _, _, value in points(found, "loss")] == [step + 0.5 for step in range(3000)]


def test_dead_server_is_said(server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that can't be reached is Unavailable, after some patience."""
    monkeypatch.setattr(fetch, "CLIENT_TIMEOUT_S", 1)
    monkeypatch.setattr(api, "START_PATIENCE_S", 0.0)
    server.fault = Fault("refuse")
    with pytest.raises(Unavailable, match="can't be reached"):
        WandbReader().runs("someone/digits")


def delivered(tmp_path: Path, records: list[Record], **fields: Any) -> Driver:
    made = Driver(WandbTracker, run_info(tmp_path / "run", **fields))
    end = next((record for record in records if isinstance(record, Finish)), None)
    status = Status(end.status, end.exit_code, end.time) if end else Status("finished", 0, T0 + 100)  # type: ignore[arg-type]
    made.deliver(records, status=status)
    return made


LIMITS = Limits(big_integers="float", repeated="once")


@pytest.mark.slow
def test_our_delivery_is_read_back(server: WandbServer, tmp_path: Path) -> None:
    """What our tracker sent to the server is read as it was logged: steps, times, NaN, names that W&B reserves."""
    records = stream([
        *training(20, 3, finish=False),
        Metrics(step=21, time=T0 + 3, values={"_step": 7.0, "nan": float("nan"), "global_step": 3.0}),
        Metrics(step=22, time=T0 + 3.5, values={"_step": 7.0, "logged/_step": 8.0, "logged/x": 9.0}),
        Metrics(step=5, time=T0 + 4, values={"late": 1.0}),
        Text(step=21, time=T0 + 5, values={"note": "hello"}),
        Summary(time=T0 + 6, values={"final/best": 0.5}),
        Finish(time=T0 + 7, status="finished", exit_code=0),
    ])  # fmt: skip
    made = delivered(tmp_path, records)
    run = check_reader(WandbReader, "someone/digits/abcd1234", made.info, records, limits=LIMITS)
    assert run.project == "digits"


@pytest.mark.processes  # W&B's client asks git
def test_our_offline_files_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same from the files of W&B's offline mode, without a server."""
    monkeypatch.delenv("WANDB_DIR", raising=False)
    records = training(50, 4)
    made = delivered(tmp_path, records, options={"WANDB_MODE": "offline"})
    assert len(offline_rows(tmp_path)) == 50
    where = str(tmp_path / "run/wandb")
    run = check_reader(WandbFileReader, where, made.info, records, limits=LIMITS, missing=str(tmp_path / "nothing"))
    assert run.status == "finished"


OWN_SCRIPT = """
import trackers
trackers.install_as_wandb()
import wandb
run = wandb.init(project="p", config={"model": {"depth": 2}}, mode="offline")
run.config["model"] = {"width": 4}
open("weights.txt", "w").write("hello")
artifact = wandb.Artifact("weights", "model")
artifact.add_file("weights.txt")
run.log_artifact(artifact)
table = wandb.Table(columns=["a"], log_mode="INCREMENTAL")
run.define_metric("acc", summary="min,max")
run.define_metric("one", summary="max")
for step in range(3):
    table.add_data(step)
    run.log({"t": table, "acc": step, "one": -step, "given": step})
run.summary["t"] = {"x": 1, "y": 2}
run.summary["t"] = {"x": 3}
run.summary["gone"] = 1
del run.summary["gone"]
run.summary["given"] = 7
run.finish()
"""


@pytest.mark.processes
def test_our_runs_file_says_each_result_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results by their names here, none that the script took back; the configuration as it was set last; artifacts are
    listed and fetched, and a table in parts is one."""
    (tmp_path / "train.py").write_text(OWN_SCRIPT)
    variables = {"TRACKER": "wandb", "TRACKER_INLINE": "y", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = forked.run([sys.executable, "train.py"], cwd=tmp_path, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr[-2000:]
    monkeypatch.chdir(tmp_path)
    (path,) = [found for found in tmp_path.rglob("*.wandb") if "latest" not in str(found)]
    data = load(f"wandb-file:{path}")
    assert data.summary == {"acc.min": 0, "acc.max": 2, "one": 0, "t/x": 3, "given": 7}
    assert data.config == {"model": {"width": 4}}
    assert [(found.name, [(file.path, file.size) for file in found.files]) for found in data.artifacts()] == [
        ("weights", [("weights.txt", 5)])
    ]
    (fetched,) = data.artifacts(tmp_path / "fetched")
    assert (tmp_path / "fetched" / fetched.files[0].file).read_text() == "hello"
    assert load(f"wandb-file:{path}").table("t").table.column("a").to_pylist() == [0, 1, 2]


NAMES = st.sampled_from(["loss", "val_loss", "a@1", "timing(s)/gen", "a//b", "_step", "größe", "x.y"])
NUMBERS = st.one_of(
    st.floats(), st.integers(-(2**70), 2**70), st.booleans(), st.sampled_from([1.7e308, 5e-324, 2**53 + 1, 0.1])
)
ROWS = st.lists(st.tuples(st.integers(0, 6), st.dictionaries(NAMES, NUMBERS, min_size=1, max_size=4)), max_size=12)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_random_runs_round_trip(
    mode: str, server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is logged, at whatever steps, comes back from the server and from the files."""
    count = 0

    @settings(max_examples=4, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(ROWS)
    def round_trip(rows: list[tuple[int, dict[str, Any]]]) -> None:
        nonlocal count
        # W&B's client keeps whole numbers from 2**63 to 2**64 as doubles, by itself and ours.
        assume(not any(2**63 <= value < 2**64 for _, row in rows for value in row.values()))
        count += 1
        place = tmp_path / str(count)
        end = Finish(time=T0 + 100, status="finished", exit_code=0)
        # A second value of a name at a step has a row of its own, behind the others.
        seen: set[tuple[int, str]] = set()
        rows = [
            (
                step,
                {name: value for name, value in row.items() if (step, name) not in seen and not seen.add((step, name))},
            )
            for step, row in rows
        ]  # type: ignore[func-returns-value]
        rows = [(step, row) for step, row in rows if row]
        # What comes to one step, one after the other, is one row of W&B's, with one time.
        groups = [list(group) for _, group in itertools.groupby(rows, key=lambda row: row[0])]
        metrics = [Metrics(step=step, time=T0 + n / 4, values=row)
                   for n, group in enumerate(groups) for step, row in group]  # fmt: skip
        records = [Start(time=T0), *metrics, end]
        made = delivered(place, stream(records), id=f"round{count:03d}", options={"WANDB_MODE": mode})
        if mode == "online":
            check_reader(WandbReader, f"someone/digits/{made.info.id}", made.info, records, limits=LIMITS,
                         missing="someone/digits/none")  # fmt: skip
        else:
            check_reader(WandbFileReader, str(place / "run/wandb"), made.info, records, limits=LIMITS,
                         missing=str(tmp_path / "none"))  # fmt: skip

    round_trip()


@pytest.mark.slow
def test_media_come_with_their_files(server: WandbServer, tmp_path: Path) -> None:
    """Images, tables and histograms are read back; files are fetched where a place for them is given."""
    directory = tmp_path / "run"
    directory.mkdir()
    table = MediaFile(format="json", data={"columns": ["a", "b"], "rows": [[1, "x"], [2.5, None]]})
    histogram = MediaFile(format="json", data={"counts": [1, 2], "edges": [0.0, 1.0, 2.0]})
    records = stream([
        Start(time=T0),
        Media(step=1, time=T0, name="img", type="image", items=[picture(directory), picture(directory)]),
        Media(step=1, time=T0, name="tab", type="table", items=[table]),
        Media(step=1, time=T0, name="hist", type="histogram", items=[histogram]),
    ])  # fmt: skip
    delivered(tmp_path, records)
    found = {r.name: r for r in read("someone/digits/abcd1234", files=tmp_path / "got") if isinstance(r, Media)}
    assert found["hist"].items[0].data == histogram.data
    assert found["tab"].items[0].data == table.data
    images = found["img"].items
    assert [(item.format, item.caption, item.width) for item in images] == [("png", "four by four", 4)] * 2
    assert all((tmp_path / "got" / item.file).read_bytes().startswith(b"\x89PNG") for item in images)
    without = [r.name for r in read("someone/digits/abcd1234") if isinstance(r, Media)]
    assert without == ["hist"]


def test_artifacts_come_with_their_files(server: WandbServer, tmp_path: Path) -> None:
    """Files, references, aliases, description and metadata of what the run logged; W&B's own artifacts aren't ours."""
    directory = tmp_path / "run"
    (directory / "media").mkdir(parents=True)
    (directory / "media/ab").write_bytes(b"weights")
    files = [ArtifactFile(path="sub/model.pt", file="media/ab", size=7), ArtifactFile(path="r", uri="s3://b/x", size=5)]
    table = MediaFile(format="json", data={"columns": ["a"], "rows": [[1]]})
    records = stream([
        Start(time=T0),
        Media(step=1, time=T0, name="tab", type="table", items=[table]),
        ArtifactRecord(time=T0, name="best model", type="model", files=files, aliases=["best"], description="it",
                 metadata={"k": 1}),
    ])  # fmt: skip
    delivered(tmp_path, records)
    (found,) = (r for r in read("someone/digits/abcd1234", files=tmp_path / "got") if isinstance(r, ArtifactRecord))
    assert (found.name, found.type, found.aliases) == ("best model", "model", ["best"])
    assert (found.description, found.metadata) == ("it", {"k": 1})
    assert [(file.path, file.uri, file.size) for file in found.files] == [("r", "s3://b/x", 5), ("sub/model.pt", "", 7)]
    assert (tmp_path / "got" / found.files[1].file).read_bytes() == b"weights"
    assert not [r for r in read("someone/digits/abcd1234") if isinstance(r, ArtifactRecord)]


def test_other_programs_offline_run_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that wandb itself wrote offline: its rows, image, results, tags and end."""
    import numpy
    import wandb

    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    run = wandb.init(project="digits", id="abcd1234", name="mine", tags=["a"], group="g", config={"lr": 1},
                     settings=quiet)  # fmt: skip
    run.log({"loss": 1.5, "a.b": 1, "n": {"x": 2}, "img": wandb.Image(numpy.zeros((4, 4, 3), "uint8"))}, step=3)
    run.log({"loss": float("nan")}, step=7)
    run.summary["best"] = 0.5
    run.finish(exit_code=3)
    wandb.teardown()  # its service writes on for a moment
    reader = WandbFileReader()
    (source,) = reader.runs(str(tmp_path))
    assert (source.name, source.project, source.group, source.tags) == ("mine", "digits", "g", ["a"])
    assert (source.status, source.source) == ("failed", f"wandb-file:{source.native['paths'][0]}")
    found = list(reader.read(source))
    rows = [r for r in found if isinstance(r, Metrics) and r.step is not None]
    assert rows[0].values == {"loss": 1.5, "a.b": 1, "n.x": 2}
    assert [row.step for row in rows] == [3, 7]
    for _ in range(2):  # read, and from the cache
        data = trackers.load(str(tmp_path / "wandb"))
        (image,) = data.media()
        assert Path(data.run.directory, image.items[0].file).is_file()
    assert [r.values for r in found if isinstance(r, Summary)] == [{"best": 0.5}]
    assert found[-1] == Finish(time=found[-1].time, status="failed", exit_code=3)
    path = Path(source.native["paths"][0])
    path.write_bytes(path.read_bytes()[:-200])  # its writer was killed
    assert list(reader.read(reader.runs(str(path))[0]))[: len(rows)] == found[: len(rows)]


def test_system_metrics_of_a_file_are_read(tmp_path: Path) -> None:
    """What W&B's agent sampled stands in a file below names without "system."; it is at no step, at its own time."""
    from wandb.proto import wandb_internal_pb2 as protocol

    samples = []
    for number in range(3):
        record = protocol.Record()
        record.stats.timestamp.FromNanoseconds(int((T0 + number) * 1e9))
        record.stats.item.add(key="gpu.12.powerWatts", value_json=str(100.5 + number))
        samples.append(record.SerializeToString())
    path = tmp_path / "run-abcd1234.wandb"
    path.write_bytes(framed(samples))
    (run,) = WandbFileReader().runs(str(path))
    series = points(list(WandbFileReader().read(run)), "system.gpu.12.powerWatts")
    assert series == [(None, pytest.approx(T0 + number), 100.5 + number) for number in range(3)]
    assert (run.id, run.status) == ("abcd1234", "crashed")


def unended(path: Path, began: float, host: str = "", own: bool = False) -> Path:
    """A file whose writer recorded no end: a row, a line of output and, last, a sample of the machine."""
    from wandb.proto import wandb_internal_pb2 as protocol

    run, axis, row, line, sample = (protocol.Record() for _ in range(5))
    run.run.run_id, run.run.project, run.run.host = "abcd1234", "digits", host
    run.run.start_time.FromNanoseconds(int(began * 1e9))
    axis.metric.glob_name, axis.metric.step_metric = "*", "global_step"
    row.history.item.add(key="loss", value_json="1.0")
    row.history.item.add(key="_timestamp", value_json=str(began + 1))
    line.output_raw.line = "x\n"
    line.output_raw.timestamp.FromNanoseconds(int((began + 2) * 1e9))
    sample.stats.timestamp.FromNanoseconds(int((began + 15) * 1e9))
    sample.stats.item.add(key="cpu", value_json="1.0")
    records = [run, *([axis] if own else []), row, line, sample]
    path.write_bytes(framed([record.SerializeToString() for record in records]))
    return path


def status_of(path: Path) -> tuple[str, list[Finish]]:
    """A file's status in a listing, and the ends that reading it gives."""
    reader = WandbFileReader()
    (run,) = reader.runs(str(path))
    return run.status, [record for record in reader.read(run) if isinstance(record, Finish)]


@pytest.mark.parametrize(("sampled", "running_h", "crashed_h"), [(True, 0.5, 2.0), (False, 23.0, 25.0)])
@pytest.mark.parametrize("copied", [False, True])
def test_file_that_nobody_writes_has_crashed(
    copied: bool, sampled: bool, running_h: float, crashed_h: float, tmp_path: Path
) -> None:
    """A file of another machine counts as written until its last record is old, whatever a copy's own time is."""
    for hours, status in ((running_h, "running"), (crashed_h, "crashed"), (0.0, "running")):
        began = time.time() - hours * 3600
        path = unended(tmp_path / "run-abcd1234.wandb", began, host="elsewhere")
        if not sampled:  # system metrics were switched off
            path.write_bytes(path.read_bytes()[:-10])
        if not copied:
            os.utime(path, (0, began))
        found, ends = status_of(path)
        assert (found, [end.status for end in ends]) == (status, ["crashed"] if status == "crashed" else [])
        assert trackers.load(str(path)).status == status  # from the cache, too
        assert [end.time for end in ends] == [pytest.approx(began + (15 if sampled else 2)) for _ in ends]


@pytest.mark.skipif(processes.open_files() is None, reason="needs to see all processes of the machine")
def test_file_that_no_process_here_has_open_has_crashed(tmp_path: Path) -> None:
    """Of a file that W&B's client wrote on this machine the system knows it at once; ours are closed now and then."""
    path = unended(tmp_path / "run-abcd1234.wandb", time.time(), host=machines.host())
    with path.open("ab"):
        assert status_of(path)[0] == "running"
    assert status_of(path)[0] == "crashed"
    assert status_of(unended(path, time.time(), host=machines.host(), own=True))[0] == "running"


def test_run_in_several_files_is_one(tmp_path: Path) -> None:
    """A run that was resumed offline is read from all its files in turn; the newest says how it stands."""
    from wandb.proto import wandb_internal_pb2 as protocol

    for place, (day, code) in enumerate((("20251121", 1), ("20251122", 0))):
        run, row, end = protocol.Record(), protocol.Record(), protocol.Record()
        run.run.run_id, run.run.display_name, run.run.project = "abcd1234", "mine", "digits"
        run.run.start_time.FromNanoseconds(int((T0 + place) * 1e9))
        row.history.step.num = place
        row.history.item.add(key="loss", value_json=str(place))
        picture = {"_type": "image-file", "path": f"media/images/{place}.png", "format": "png"}
        row.history.item.add(key="sample", value_json=json.dumps(picture))
        end.exit.exit_code = code
        directory = tmp_path / "wandb" / f"offline-run-{day}_000000-abcd1234"
        (directory / "files/media/images").mkdir(parents=True)
        (directory / f"files/media/images/{place}.png").write_bytes(day.encode())
        content = framed([record.SerializeToString() for record in (run, row, end)])
        (directory / "run-abcd1234.wandb").write_bytes(content)
    reader = WandbFileReader()
    (source,) = reader.runs(str(tmp_path))
    assert (source.status, source.created) == ("finished", pytest.approx(T0))
    assert [run.id for run in reader.runs(source.source.partition(":")[2])] == ["abcd1234"]
    found = list(reader.read(source))
    assert [(step, value) for step, _, value in points(found, "loss")] == [(0, 0), (1, 1)]
    assert [record.status for record in found if isinstance(record, Finish)] == ["finished"]
    for _ in range(2):  # the second time from what was kept of the first
        data = load(str(tmp_path))
        files = [Path(data.run.directory, item.file) for record in data.media() for item in record.items]
        assert [file.read_bytes() for file in files] == [b"20251121", b"20251122"]
    list(reader.read(source, files=tmp_path / "copied"))
    assert sorted(path.name for path in (tmp_path / "copied").rglob("*.png")) == ["0.png", "1.png"]
    assert [Path(source.directory, item.file).exists() for record in reader.read(source)
            if isinstance(record, Media) for item in record.items] == [True, True]  # fmt: skip


def test_damaged_offline_file_is_read_around_the_damage(tmp_path: Path) -> None:
    """One changed bit costs one record, which the note says; the run's end is found behind it."""
    from wandb.proto import wandb_internal_pb2 as protocol

    run, end = protocol.Record(), protocol.Record()
    run.run.run_id, run.run.project = "abcd1234", "digits"
    run.run.start_time.FromNanoseconds(int(T0 * 1e9))
    end.exit.exit_code = 0
    rows = [protocol.Record() for _ in range(9)]
    for step, row in enumerate(rows):
        row.history.step.num = step
        row.history.item.add(key="loss", value_json=str(step))
    contents = [record.SerializeToString() for record in (run, *rows, end)]
    path = tmp_path / "run-abcd1234.wandb"
    for damaged in (b"\xff" * len(contents[4]), contents[4]):  # no record for all its right checksum; a wrong one
        content = bytearray(framed([*contents[:4], damaged, *contents[5:]]))
        begin = len(framed(contents[:4]))
        if damaged == contents[4]:
            content[begin + 9] ^= 4
        path.write_bytes(content)
        (source,) = WandbFileReader().runs(str(path))
        assert source.status == "finished"
        found = points(list(WandbFileReader().read(source)), "loss")
        assert [step for step, _, _ in found] == [0, 1, 2, 4, 5, 6, 7, 8]
        assert f"{path} is damaged at byte" in source.note
        assert "bytes are left out, the other records are read" in source.note
        assert f"{begin:,}" in source.note or damaged != contents[4]


def test_note_says_where_a_file_of_a_dead_writer_is_cut(tmp_path: Path) -> None:
    """A record whose end is missing is noted once nobody writes the file; until then it is only incomplete."""
    for hours, status in ((0.0, "running"), (25.0, "crashed")):
        path = unended(tmp_path / "run-abcd1234.wandb", time.time() - hours * 3600, host="elsewhere")
        path.write_bytes(path.read_bytes()[:-3])
        (run,) = WandbFileReader().runs(str(path))
        list(WandbFileReader().read(run))
        assert run.status == status
        assert ("ends inside a record" in run.note) == (status == "crashed"), run.note


def test_missing_offline_file_is_said(tmp_path: Path) -> None:
    """A directory without such files, and a file that isn't one, say so."""
    with pytest.raises(NotFound, match=r"no \.wandb file there"):
        WandbFileReader().runs(str(tmp_path))
    (tmp_path / "run-x.wandb").write_bytes(b"hello, world")
    with pytest.raises(NotFound, match=r"isn't a \.wandb file"):
        WandbFileReader().runs(str(tmp_path / "run-x.wandb"))


@pytest.mark.slow
def test_source_run_is_stored_as_json(server: WandbServer) -> None:
    """What a run needs to be found again are JSON values: other processes read by them."""
    held(server)
    import msgspec

    (run,) = WandbReader().runs("someone/digits")
    again = msgspec.json.decode(msgspec.json.encode(run), type=SourceRun)
    assert len(points(list(WandbReader().read(again)), "loss")) == 100
    assert WandbReader().version(again) == WandbReader().version(run)
    assert Counter(type(record) for record in WandbReader().read(again))[ArtifactRecord] == 0


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["zeros", "cut", "other rows", "gone", "index", "step"])
def test_damaged_cache_is_fetched_again(damage: str, server: WandbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that isn't what was written counts as absent: what is read is what the server has."""
    held(server, 3000, events=3)
    first = read("someone/digits/v2h4vzbc")
    base = Path(os.environ["XDG_CACHE_HOME"] if "XDG_CACHE_HOME" in os.environ else Path.home() / ".cache")
    (entry,) = (base / "trackers" / "wandb").iterdir()
    part, *others = sorted(entry.glob("*.parquet"))
    content = part.read_bytes()
    if damage == "zeros":
        part.write_bytes(bytes(len(content)))
    elif damage == "cut":
        part.write_bytes(content[:-100])
    elif damage == "other rows":
        part.write_bytes(others[0].read_bytes())
    elif damage == "gone":
        part.unlink()
    elif damage == "step":
        index = json.loads((entry / "index.json").read_bytes())
        index["parts"][-1]["last"] = 10**30
        (entry / "index.json").write_text(json.dumps(index))
    else:
        (entry / "index.json").write_bytes(b"\xff" + (entry / "index.json").read_bytes())
    server.requests.clear()
    assert read("someone/digits/v2h4vzbc") == first
    assert asked(server, "HistoryPage") > 0


def test_media_of_a_row_come_in_one_order() -> None:
    """W&B gives the values of a row in any order: what is read twice is the same."""
    spread = {"_type": "histogram", "values": [1, 2], "bins": [0.0, 1.0, 2.0]}
    row = {"_step": 3, "_timestamp": T0, "b": spread, "a": spread, "c": spread}
    for values in (row, dict(reversed(row.items()))):
        assert [record.name for record in Decoder(ours=False).row(values) if isinstance(record, Media)] == list("abc")


def test_second_value_of_an_earlier_step_makes_no_result_of_the_last_one() -> None:
    """Our tracker sends it after later steps, as the last of the rows; the summary has what was logged last."""
    decoder = Decoder(ours=True)
    for number, (step, at, loss) in enumerate([(0, 1.0, 0.5), (1, 2.0, 0.25), (0, 1.5, 0.75)]):
        list(decoder.row({"_step": number, "_timestamp": T0 + at, "global_step": step, "loss": loss}))
    assert not list(decoder.results({"loss": 0.25, "global_step": 1}))
    assert [getattr(record, "values", {}) for record in decoder.results({"loss": 0.125})] == [{"loss": 0.125}]
