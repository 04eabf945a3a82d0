"""Whose word counts: a run directory, whoever wrote it, is data to who delivers it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import trackers
from tests.analysis.support import write_run
from tests.fakes.servers import QuietHandler, listening
from tests.retention.support import program
from trackers.backends.tensorboard.tracker import LINKS
from trackers.configuration import trusted
from trackers.configuration.declaration import INSTRUCTIONS
from trackers.configuration.kconfig import Tree
from trackers.errors import NotFound
from trackers.journal import signature, trust
from trackers.journal.run_directory import RunDirectory
from trackers.relay.delivery.cursor_file import read_account
from trackers.relay.delivery.merge_order import HEAD
from trackers.relay.sync import sync

ROWS = [(step, step / 10, {"loss": 1 / step}) for step in range(1, 6)]
STRANGER = 65534


def forge(run: Path, **changes: Any) -> RunDirectory:
    """A run whose ``run.json`` somebody has changed; ``options`` are added to those it has."""
    identity = run / "run.json"
    content = json.loads(identity.read_bytes())
    content["options"] = {**content.get("options", {}), **changes.pop("options", {})}
    identity.write_text(json.dumps({**content, **changes}))
    return RunDirectory(run)


def tree(folder: Path) -> dict[str, bytes | str]:
    """Everything below a folder: what files hold, where links point."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = os.readlink(path)
        else:
            found[str(path)] = path.read_bytes() if path.is_file() else "folder"
    return found


@contextlib.contextmanager
def listener() -> Iterator[tuple[str, list[str]]]:
    """An address on loopback, and what was sent to it."""
    heard: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        over = threading.Event()

        def listen() -> None:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    caller, _ = server.accept()
                    with caller:
                        caller.settimeout(1)
                        heard.append(caller.recv(4096).decode("latin-1"))

        thread = threading.Thread(target=listen)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", heard
        finally:
            over.set()
            thread.join()


def test_every_option_is_data_or_instruction() -> None:
    """Each text option is known to be harmless, or comes from the reader: a new one must be put on one side."""
    harmless = {
        "BASELINE_RUN_ID", "JSON_NAN", "MLFLOW_EXPERIMENT", "MLFLOW_TAGS", "TRACKER",
        "TRACKER_ALERTS", "TRACKER_CODE_UNTRACKED", "TRACKER_CONSOLE_CAPTURE", "TRACKER_CONSOLE_STYLE",
        "TRACKER_CONTAINER", "TRACKER_DATA", "TRACKER_FINISH",
        "TRACKER_GPU_DETAIL", "TRACKER_GPU_METRICS", "TRACKER_GPU_SCOPE", "TRACKER_GROUP", "TRACKER_JOB_TYPE",
        "TRACKER_LOGGING_LEVEL",
        "TRACKER_MEMORY_STATISTICS", "TRACKER_MODE",
        "TRACKER_MODULES_TO_FILTER", "TRACKER_NOTES", "TRACKER_PEAK_TFLOPS", "TRACKER_PROJECT", "TRACKER_RANK",
        "TRACKER_REDUCE", "TRACKER_RESUME", "TRACKER_RUNTIME_UNIT", "TRACKER_RUN_ID", "TRACKER_RUN_NAME",
        "TRACKER_TAGS", "TRACKER_TIMING_OPTION", "WANDB_ENTITY", "WANDB_PROJECT",
        "WANDB_SWEEP_ID",
    }  # fmt: skip
    texts = {symbol for symbol, declaration in Tree().declarations.items() if declaration.kind == "string"}
    assert texts == harmless | INSTRUCTIONS, "is the new option a name (add it here), or in relay/trust.py?"
    assert not harmless & INSTRUCTIONS


@pytest.mark.slow
def test_own_options_count_as_they_were_written(tmp_path: Path) -> None:
    """A run of one's own is delivered where it says, by another process, without a word."""
    directory = tmp_path / "results"
    path = write_run("one", ROWS, options={"JSON_DIR": str(directory)}, cwd=str(tmp_path))
    done = program("sync", str(path))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(directory.glob("one_*.json"))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("whose", ["unpacked", "a stranger's"])
def test_other_options_come_from_the_reader(whose: str, tmp_path: Path) -> None:
    """No program runs, nothing is written where a run says that the reader didn't write; one line says what is left."""
    victim, reader = tmp_path / "victim", tmp_path / "reader"
    evil = tmp_path / "evil.sh"
    evil.write_text(f'#!/bin/sh\ntouch {tmp_path}/ran\nexec {sys.executable} "$@"\n')
    evil.chmod(0o755)
    options = {"TRACKER_PYTHON": f"json={evil}", "JSON_DIR": str(victim), "BENCHMARK_DIR": str(victim)}
    path = write_run("one", ROWS, cwd=str(victim), trackers=["json", "benchmark"])
    if whose == "unpacked":
        forge(path, options=options)
    else:
        path = write_run("two", ROWS, cwd=str(victim), trackers=["json", "benchmark"], options=options)
        for each in (path, *path.rglob("*")):
            os.chown(each, STRANGER, STRANGER)
    reader.mkdir()
    done = program("sync", str(path.absolute()), JSON_DIR=str(reader))
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "ran").exists()
    assert not victim.exists()
    assert len(list(reader.glob("*.json"))) == 1
    assert list(path.glob("benchmark_results/benchmark_*.json"))
    (line,) = done.stderr.splitlines()
    assert "BENCHMARK_DIR, JSON_DIR, TRACKER_PYTHON come from your configuration" in line
    assert "--trust" in line
    (path / "delivery/json.json").unlink()
    trusted = program("sync", str(path.absolute()), "--trust", "--to", "json")
    assert trusted.returncode == 0, trusted.stderr
    assert (tmp_path / "ran").exists()
    assert list(victim.glob("*.json"))


@pytest.mark.processes
def test_credentials_stay_with_the_readers_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither options nor files in a run's directory say where the reader's keys go."""
    with listener() as (address, heard):
        path = write_run("one", ROWS, trackers=["mlflow", "wandb"], cwd=str(tmp_path))
        forge(path, options={"MLFLOW_TRACKING_URI": address})
        (path / "wandb").mkdir()
        (path / "wandb/settings").write_text(f"[default]\nbase_url = {address}\n")
        info, said = trust.delivered(RunDirectory(path))
        assert info.option("MLFLOW_TRACKING_URI") is None
        assert "MLFLOW_TRACKING_URI comes from your configuration" in said
        Path(os.environ["WANDB_CONFIG_DIR"]).mkdir(parents=True, exist_ok=True)
        Path(os.environ["WANDB_CONFIG_DIR"], "settings").write_text("[default]\nbase_url = http://127.0.0.1:9\n")
        for name, value in {"WANDB_API_KEY": "a" * 40, "WANDB_MODE": "online"}.items():
            monkeypatch.setenv(name, value)
        run = RunDirectory(path)
        assert not sync([run], ["wandb"], lambda work: None, stopping=lambda: bool(read_account(run, "wandb").failures))
    assert heard == []


@contextlib.contextmanager
def recorder(host: str = "127.0.0.1", to: str = "") -> Iterator[tuple[str, list[str]]]:
    """An HTTP server at that name of loopback that knows nothing, or sends everybody elsewhere; the Authorization
    header of each request that it got."""
    heard: list[str] = []

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            heard.append(self.headers.get("Authorization", ""))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"}'
            self.send_response(307 if to else 404)
            if to:
                self.send_header("Location", to + self.path)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PUT = do_GET

    with listening(Handler, host) as address:
        yield address, heard


def test_mlflow_delivery_of_anothers_run_asks_the_readers_server_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The address in run.json hears nothing; the reader's own server gets the reader's token."""
    from trackers.relay.delivery.delivery import Delivery, Stop

    with recorder() as (evil, stolen), recorder() as (own, heard):
        path = write_run("one", ROWS, trackers=["mlflow"])
        options = {"MLFLOW_TRACKING_URI": evil, "MLFLOW_ARTIFACT_ROOT": evil, "MLFLOW_S3_ENDPOINT_URL": evil}
        run = forge(path, options=options)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", own)
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "readers-own-token")
        delivery = Delivery(run, "mlflow", say=lambda text: None)
        with contextlib.suppress(Stop):
            for _ in range(3):
                delivery.step()
        delivery.close()
    assert stolen == []
    assert set(heard) == {"Bearer readers-own-token"}


@pytest.mark.parametrize("elsewhere", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("login", ["token", "password"])
def test_redirect_of_a_hostile_server_carries_no_login(
    elsewhere: str, login: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To another host or port MLflow's client comes without the Authorization header."""
    from trackers.errors import TrackersError
    from trackers.readers.mlflow.reader import MlflowReader

    if login == "token":
        monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "readers-own-token")
    else:
        monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "reader")
        monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "readers-own-password")
    with (
        recorder(elsewhere) as (there, stolen),
        recorder(to=there) as (server, heard),
        pytest.raises(TrackersError),
    ):
        MlflowReader().runs(f"{server}#digits")
    assert all(heard)
    assert heard
    assert stolen == [""] * len(stolen)
    assert stolen


@pytest.mark.slow
def test_delivery_runs_where_no_settings_lie(tmp_path: Path) -> None:
    """A helper's working directory is neither the run's nor the reader's: vendors read settings where they are."""
    path = write_run("one", ROWS)
    code = (
        "import os, sys, json\nfrom pathlib import Path\nfrom trackers.journal import helper_process as process\n"
        "from trackers.journal.run_directory import RunDirectory\n"
        "process.command = lambda *a, **k: [sys.executable, '-c', 'import os; print(os.getcwd())']\n"
        f"process.start(RunDirectory({str(path)!r}), []).wait()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert (path / "relay.log").read_text() == f"{os.sep}\n"


def test_run_is_delivered_where_no_key_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a home training's own relay still follows its options: it is told so by training itself."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nothing")
    run = trackers.init("json", project="digits", options={"JSON_DIR": str(tmp_path / "results")})
    run.log({"loss": 1.0}, step=1)
    run.finish()
    assert json.loads((Path(run.dir) / "run.json").read_bytes()).get("seal") is None
    assert len(list((tmp_path / "results").glob("*.json"))) == 1


@pytest.mark.parametrize("umask", [0o000, 0o022])
def test_directories_of_keys_are_made_for_their_owner(
    umask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those above it too, whatever the umask: who can write to one of them could put other keys there."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "new/config"))
    monkeypatch.setattr(signature, "_written", set())
    before = os.umask(umask)
    try:
        write_run("one", ROWS)
        trusted.trust(tmp_path)
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in [tmp_path / "new", *(tmp_path / "new").rglob("*")]}
    assert {oct(mode) for path, mode in modes.items() if path.is_dir()} == {"0o700"}
    assert {oct(mode) for path, mode in modes.items() if path.is_file()} == {"0o600"}


def test_seal_is_worth_nothing_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A seal fits its own options, by its own user's key, which nobody else may read."""
    path = write_run("one", ROWS, options={"JSON_DIR": "here"})
    monkeypatch.setattr(signature, "_written", set())
    run = RunDirectory(path)
    assert trust.delivered(run)[0].foreign is False
    assert signature.key_path().stat().st_mode & 0o777 == 0o600
    signature.key_path().chmod(0o644)
    assert trust.delivered(run)[0].foreign is True
    signature.key_path().chmod(0o600)
    assert trust.delivered(run)[0].foreign is False
    for change in ({"options": {"JSON_DIR": "there"}}, {"cwd": "/there"}, {"program": "/there"}, {"id": "two"}):
        before = run.identity.read_bytes()
        assert trust.delivered(forge(path, **change))[0].foreign is True
        run.identity.write_bytes(before)
    forge(path, notes="what is only shown isn't sealed")
    assert trust.delivered(run)[0].foreign is False
    signature.key_path().unlink()
    assert trust.delivered(run)[0].foreign is True


def test_seal_that_is_no_ascii_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted seal with other letters makes a run a foreign one; nothing ends in a traceback."""
    path = write_run("one", ROWS, options={"JSON_DIR": "here"})
    monkeypatch.setattr(signature, "_written", set())
    forge(path, seal="sïgned")
    assert trust.delivered(RunDirectory(path))[0].foreign is True


def test_id_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    """A run's id becomes part of file names in every tracker: one with a path in it is delivered to none."""
    path = write_run("one", ROWS)
    with pytest.raises(NotFound, match="can't be a run's id"):
        trust.delivered(forge(path, id="../../victim"))


FILES = ("json", "csv", "benchmark", "tensorboard", "progress")


@pytest.mark.slow
def test_program_takes_no_module_from_the_directory(tmp_path: Path) -> None:
    """The commands, and training with its processes, run nothing of the current directory, whatever its files are
    called; `python -m` takes Python's own modules and `trackers` itself from there, and no others."""
    hostile, own = tmp_path / "hostile", tmp_path / "own"
    hostile.mkdir()
    own.mkdir()
    third = {"rich", "typer", "click", "msgspec", "kconfiglib", "psutil", "duckdb", "wandb", "kconfigfunctions"}
    for name in {*sys.stdlib_module_names, *third, "trackers", "trackers_relay", "sitecustomize"}:
        (hostile / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    (own / "command.py").write_text("from trackers_relay import main\nmain()\n")  # as an entry point begins
    (own / "train.py").write_text(
        "import trackers\nrun = trackers.init('json,tensorboard', project='digits')\n"
        "run.log({'loss': 1.0}, step=1)\nrun.finish()\n"
    )
    python = [sys.executable]
    environ = {**os.environ, "TRACKER_AGENT": "n", "TRACKER_DIR": str(tmp_path / "runs")}
    programs = [*([*python, str(own / "command.py"), word] for word in ("ls", "show-config", "doctor", "--help"))]
    programs += [[*python, str(own / "train.py")]]
    programs += [[*python, "-P", "-m", "trackers", "ls"]] if sys.version_info >= (3, 11) else []
    for words in programs:
        done = subprocess.run(words, cwd=hostile, env=environ, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, (words, done.stderr)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()
    for name in (sys.stdlib_module_names - {"json", "uuid"}) | {"trackers", "trackers_relay"}:
        (hostile / f"{name}.py").unlink(missing_ok=True)
    subprocess.run([*python, "-m", "trackers", "ls"], cwd=hostile, env=environ, capture_output=True, check=True)
    assert not (tmp_path / "ran").exists(), (tmp_path / "ran").read_text()


NAMES = st.sampled_from(["../victim/precious.txt", "/etc/precious.txt", "..", ".", "a/b", "x\0y", "", "precious.txt"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "book": st.fixed_dictionaries({"file": NAMES}, optional={"lengths": st.dictionaries(NAMES, st.integers(0, 9))}),
        "marks": st.fixed_dictionaries({"files": st.dictionaries(NAMES, st.integers(0, 9), max_size=2)}),
        "url": NAMES,
        "length": st.integers(0, 99),
    },
)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    state=FIELDS,
    launch=NAMES,
    tracker=st.sampled_from(FILES),
)
def test_delivery_state_leads_nowhere(state: dict[str, Any], launch: str, tracker: str) -> None:
    """Whatever a delivery's state names, own run or not, nothing outside of the run's places is touched."""
    leads_nowhere(state, launch, tracker)


def leads_nowhere(state: dict[str, Any], launch: str, tracker: str) -> None:
    """A delivery with a state of somebody else's leaves everything alone that isn't the run's."""
    from trackers.relay.delivery.delivery import Delivery, Stop

    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        victim = top / "victim"
        victim.mkdir()
        (victim / "precious.txt").write_text("kept secret")
        (victim / "nccl").mkdir()
        (victim / "nccl/precious.log").write_text("kept secret")
        run = RunDirectory(write_run("one", ROWS, root=top / "runs", trackers=[tracker]))
        forge(run.path, attempts=[{"number": 1, "launch": launch}, {"number": 2, "launch": "../../../victim"}])
        run.delivery_state(tracker).write_text(json.dumps({"seq": 3, "state": state}))
        before = tree(victim)
        delivery = Delivery(run, tracker, say=lambda text: None)
        with contextlib.suppress(Stop):
            for _ in range(20):
                if delivery.step() is None:
                    break
        delivery.close()
        assert tree(victim) == before
        assert {path.name for path in top.iterdir()} == {"victim", "runs"}
        # A file of that name may be there: a name in the state may be any, but the victim's is copied by none.
        assert [
            path for path, held in tree(top / "runs").items() if isinstance(held, bytes) and b"kept secret" in held
        ] == []


@pytest.mark.processes
@pytest.mark.parametrize("tracker", ["json", "csv"])
def test_delivery_order_leads_to_no_other_run(tracker: str, tmp_path: Path) -> None:
    """A delivery's order names streams of its own run alone: or a private run of the reader's would be copied here."""
    write_run("private", [(step, 1.0, {"salary": 4711.5}) for step in range(1, 6)], root=tmp_path / "mine")
    run = RunDirectory(write_run("one", ROWS, root=tmp_path / "runs", trackers=[tracker]))
    forge(run.path)
    for number, stream in enumerate(("../../../../mine/digits/private/streams/rank-0.1", str(tmp_path / "mine/x"))):
        switch = {"seq": 1, "stream": stream, "start": 0}
        (run.delivery / f"{tracker}.order").write_bytes(HEAD.encode() % (9, 1e9) + json.dumps(switch).encode() + b"\n")
        assert sync([run], [f"{tracker}"], lambda work: None), number
        assert b"4711" not in b"".join(
            content for content in tree(tmp_path / "runs").values() if isinstance(content, bytes)
        )
        run.delivery_state(tracker).unlink()


@pytest.mark.processes
def test_verifying_removes_no_file_of_another_run(tmp_path: Path) -> None:
    """A state that names another run's result as damaged doesn't have it removed."""
    from trackers.relay.delivery.delivery import Delivery

    path = write_run("one", ROWS, options={"BENCHMARK_DIR": str(tmp_path / "results")}, trackers=["benchmark"])
    run = RunDirectory(path)
    assert sync([run], (), lambda work: None)
    (own,) = (tmp_path / "results").glob("benchmark_*.json")
    other = own.with_name("benchmark_other.json")
    other.write_text(own.read_text().replace('"one"', '"two"'))
    account = json.loads(run.delivery_state("benchmark").read_bytes())
    account["state"] |= {"url": str(other), "digests": {other.name: [5, 7]}}
    account["closed"] = ""
    run.delivery_state("benchmark").write_text(json.dumps(account))
    delivery = Delivery(run, "benchmark", say=lambda text: None)
    delivery._open()
    assert delivery._tracker is not None
    delivery._tracker.verify()  # type: ignore[attr-defined]
    delivery.close()
    assert other.exists()


NUMBERS = st.floats(allow_nan=False, allow_infinity=False)  # the others are no JSON: such a run.json isn't read
VALUES = st.one_of(
    NAMES, st.none(), st.booleans(), st.integers(-2, 2**70), NUMBERS, st.lists(NAMES, max_size=2),
    st.dictionaries(st.text(max_size=4), NAMES, max_size=2),
)  # fmt: skip
IDENTITIES = st.fixed_dictionaries(
    {
        "options": st.dictionaries(st.sampled_from(sorted(Tree().declarations)), VALUES, max_size=4),
        "name": NAMES,
        "project": NAMES,
        "cwd": st.sampled_from(["/victim", "../victim", "", "."]),
        "program": NAMES,
        "python": NAMES,
        "trackers": st.lists(NAMES, max_size=3),
        "git": st.fixed_dictionaries({"root": NAMES, "remote": NAMES}),
    }
)


@pytest.mark.heavy
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(identity=IDENTITIES, tracker=st.sampled_from(FILES))
def test_identity_leads_nowhere(identity: dict[str, Any], tracker: str) -> None:
    """Whatever a run.json says that the reader didn't write, only the run and the reader's places are touched."""
    identity_leads_nowhere(identity, tracker)


def identity_leads_nowhere(identity: dict[str, Any], tracker: str) -> None:
    """A delivery of a run of somebody else's leaves everything alone that isn't the run's or the reader's."""
    from trackers.relay.delivery.delivery import Delivery, Stop

    with tempfile.TemporaryDirectory() as place:
        top = Path(place)
        (top / "victim").mkdir()
        (top / "victim/precious.txt").write_text("precious")
        (top / "reader").mkdir()
        run = RunDirectory(write_run("one", ROWS, root=top / "runs", trackers=[tracker]))
        identity["options"] = {
            symbol: str(top / "victim") if symbol.endswith("_DIR") else value
            for symbol, value in identity["options"].items()
        }
        forge(run.path, **{**identity, "cwd": str(top / identity["cwd"].lstrip("/"))})
        before = tree(top / "victim")
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRACKER_READER_DIRECTORY", str(top / "reader"))
            delivery = Delivery(run, tracker, say=lambda text: None)
            assert delivery.info.foreign
            with contextlib.suppress(Stop):
                for _ in range(20):
                    if delivery.step() is None:
                        break
            delivery.close()
        assert tree(top / "victim") == before
        assert {path.name for path in top.iterdir()} == {"victim", "runs", "reader"}
        assert {path.name for path in (top / "runs").iterdir()} == {"digits"}
        project = top / "runs/digits"
        assert {path.name for path in project.iterdir()} in ({"one"}, {"one", LINKS})
        assert tracker == "tensorboard" or not (project / LINKS).exists()
        for link in project.glob(f"{LINKS}/*"):  # of TensorBoard: to this run's folder, and nothing else is there
            assert link.is_symlink()
            assert not os.path.isabs(os.readlink(link))
            assert Path(os.path.normpath(link.parent / os.readlink(link))).parent == run.path / "tensorboard"
            assert link.resolve().is_relative_to((run.path / "tensorboard").resolve())


@pytest.mark.processes
def test_delivery_state_replaces_no_other_file(tmp_path: Path) -> None:
    """Even in the run's own places only the run's own log is replaced; the run gets a log of its own."""
    results = tmp_path / "results"
    results.mkdir()
    (results / "precious.json").write_text('{"run_id": "other"}')
    path = write_run("one", ROWS, options={"JSON_DIR": str(results)})
    RunDirectory(path).delivery_state("json").write_text(json.dumps({"state": {"book": {"file": "precious.json"}}}))
    assert sync([RunDirectory(path)], (), lambda work: None)
    assert (results / "precious.json").read_text() == '{"run_id": "other"}'
    assert len(list(results.glob("one_*.json"))) == 1
