"""W&B as a tracker when things go wrong: each row once, whatever dies, and every failure told apart."""

from __future__ import annotations

import contextlib
import copy
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT, forked
from tests.backends.wandb.support import (
    CLIENT,
    ID,
    assert_is_training,
    driver,
    offline_events,
    offline_rows,
    picture,
    sync,
    user_row,
)
from tests.backends.wandb.test_datastore import framed
from tests.fakes.wandb_server import Fault, WandbServer
from tests.fakes.wandb_store import Run
from tests.helpers import T0, Driver, begun_run, run_info, stream, training, wait_for
from trackers.analysis.run_list import rejected
from trackers.backends.wandb import client, private_names
from trackers.backends.wandb import tracker as backend
from trackers.backends.wandb.datastore_writer import history, offline_files
from trackers.backends.wandb.refusals import BLAMED_ROWS, sift
from trackers.backends.wandb.tracker import WandbTracker
from trackers.errors import DeliveryError, Fatal, Refused, Rejected, Unavailable
from trackers.formats.leveldb_log import HEADER
from trackers.formats.wandb_datastore import MAGIC
from trackers.formats.wandb_datastore import records as datastore_records
from trackers.records import Alert, Config, Finish, Info, Media, Metrics, Record, Summary, Text, encode
from trackers.relay.delivery import delivery
from trackers.support.machines import boot_id
from trackers.support.processes import process_start
from trackers.tracker import State, Status

pytest_plugins = ["tests.backends.wandb.support"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_lost_state_gives_each_row_once(mode: str, server: WandbServer, tmp_path: Path) -> None:
    """With cursor and state gone, delivering from the start adds only what is missing."""
    records = training(60)
    options = {"WANDB_MODE": mode}
    driver(tmp_path, options=options).deliver(records[:40], status=Status("running"))
    driver(tmp_path, options=options).deliver(records)
    assert_is_training(server.runs[ID].history if mode == "online" else offline_rows(tmp_path), 60)


def beside_training(steps: int) -> list[Record]:
    """Training, and samples of its machine as they are taken meanwhile: before, and while, W&B's agent runs."""
    start = time.time() - 3
    found: list[Record] = []
    for step in range(steps):
        at = start + step / 5
        found.append(Metrics(step=step, time=at, values={"loss": float(step)}, id=f"rank-0.1:{step}"))
        if step % 3 == 0:
            sample = {"system.cpu": float(step), "system.gpu.0.powerWatts": 200.0}
            found.append(Metrics(time=at + 0.1, values=sample, id=f"sampler-0.1:{step}"))
        if step % 10 == 9:
            found.append(Metrics(step=step - 5, time=at + 0.15, values={"val": 1.0}, id=f"rank-0.1:v{step}"))
    found.insert(5, Alert(time=start, title="look", id="rank-0.1:alert"))
    found.append(Metrics(time=start + steps, values={"system.cpu": 9.0}, id="sampler-0.1:last"))
    return [msgspec.structs.replace(record, seq=seq) for seq, record in enumerate(found, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_rows_follow_from_the_records_and_what_is_there(mode: str, server: WandbServer, tmp_path: Path) -> None:
    """Delivered again with any earlier state or none, after W&B's agent has ended: the same rows, and no more.

    Samples that the agent stood for stay left out; an alert comes once.
    """
    records = beside_training(40)
    info = {"options": {"WANDB_MODE": mode}, "host": socket.gethostname(), "boot_id": boot_id()}
    lives = {"pid": os.getpid(), "pid_start": process_start(os.getpid())}
    states: list[tuple[dict[str, Any], int]] = [({}, 0)]
    run = driver(tmp_path, **info, **lives)
    for end in (21, len(records)):
        run.deliver(records[:end], batch=7, status=Status("running"))
        states.append((copy.deepcopy(run.state), run.cursor))

    def rows() -> list[dict[str, Any]]:
        return server.runs[ID].history if mode == "online" else offline_rows(tmp_path)

    def samples() -> list[float]:
        """Times of the samples that are ours: W&B's agent has no value of this one's power."""
        events = server.runs[ID].events if mode == "online" else offline_events(tmp_path)
        return [event["_timestamp"] for event in events if event.get("system.gpu.0.powerWatts") == 200.0]

    ended = driver(tmp_path, **info, pid=2**22, pid_start=1.0).info
    Driver(WandbTracker, ended, copy.deepcopy(run.state), run.cursor).deliver(records)  # the last row waited
    before = rows()
    assert [user_row(row)["loss"] for row in before if "loss" in row] == [float(step) for step in range(40)]
    own = samples()
    assert 0 < len(own) < 14, "the agent covers some of the samples"
    for state, cursor in states:
        again = Driver(WandbTracker, ended, copy.deepcopy(state), cursor)
        again.deliver(records, batch=11)
        assert rows() == before
        assert samples() == own or (mode == "online" and CLIENT < (0, 28))  # which writes over earlier samples
    assert mode == "offline" or len(server.runs[ID].alerts) == 1


def test_verify_brings_back_rows_that_the_server_lost(server: WandbServer, tmp_path: Path) -> None:
    """Every row is looked for by its step, time and names; what isn't there comes again, behind the others."""
    records = training(20)
    run = driver(tmp_path)
    run.deliver(records)
    lines = server.runs[ID].lines["wandb-history.jsonl"]
    for number, line in enumerate([line for place, line in sorted(lines.items()) if place not in (4, 5, 11)]):
        lines[number] = line
    for number in range(17, 20):
        del lines[number]
    again = Driver(WandbTracker, run.info, run.state, run.cursor)
    again.open()
    assert again.tracker is not None
    assert again.tracker.held() == 17  # type: ignore[attr-defined]
    again.close()
    verify(again, records)
    rows = server.runs[ID].history
    assert sorted(row["global_step"] for row in rows) == list(range(20))
    assert [row["global_step"] for row in rows[17:]] == [4, 5, 11]


@pytest.mark.slow
def test_cleaned_offline_files_are_not_written_again(
    server: WandbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Synced, removed by ``wandb clean``, resumed and synced again: the server has every row once. Without the state,
    which alone tells, all rows are written."""
    records = training(60, finish=False)
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})

    def clean() -> None:
        if CLIENT < (0, 28):  # which has no such command
            for folder in (tmp_path / "run/wandb").glob("offline-run-*"):
                shutil.rmtree(folder)
            return
        command = [sys.executable, "-m", "wandb", "clean", "--min-hours", "0", "--force"]
        places = {**os.environ, "WANDB_DIR": str(tmp_path / "run")}
        subprocess.run(command, check=True, capture_output=True, timeout=60, env=places)

    for end in (30, 62):
        run.deliver(records[:end], status=Status("running" if end == 30 else "finished", 0))
        sync(tmp_path)
        assert_is_training(server.runs[ID].history, end - 2)
        clean()
        assert offline_rows(tmp_path) == []
    assert "count as uploaded" in caplog.text
    Driver(WandbTracker, run.info).deliver(records)
    assert_is_training(offline_rows(tmp_path), 60)


@pytest.mark.slow
def test_verify_leaves_cleaned_offline_files_alone(server: WandbServer, tmp_path: Path) -> None:
    """Of three offline files the first was uploaded and removed and the second lost its rows: verifying brings back
    those of the second. Steps of the first that were logged again later change nothing."""
    records = training(60, finish=False)
    again = [Metrics(step=step, time=T0 + 50 + step, values={f"metric_{k}": 0.0 for k in range(10)}) for step in (3, 4)]
    records = stream([*records, *again])
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})
    root = tmp_path / "run/wandb"
    for end in (20, 40, len(records)):
        run.deliver(records[:end], status=Status("running" if end < len(records) else "finished", 0))
    first, second, third = offline_files(root, ID)
    uploaded, lost, kept = ([row["_step"] for row in history(path)] for path in (first, second, third))
    shutil.rmtree(first.parent)
    second.write_bytes(HEADER.pack(*MAGIC))
    verify(run, records)
    rows = offline_rows(tmp_path)
    assert [row["_step"] for row in rows[: len(kept)]] == kept
    assert [row["global_step"] for row in rows[len(kept) :]] == lost
    assert uploaded
    assert uploaded[-1] < lost[0]
    verify(run, records)
    assert offline_rows(tmp_path) == rows


@pytest.mark.slow
def test_verify_asks_no_cleaned_offline_file_that_nothing_is_known_of(server: WandbServer, tmp_path: Path) -> None:
    """Where the delivery's state was lost in between, it isn't known what a removed file held: nothing comes again."""
    records = training(40, finish=False)
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})
    run.deliver(records[:20], status=Status("running"))
    Driver(WandbTracker, run.info).deliver(records)
    run = Driver(WandbTracker, run.info)
    run.deliver(records)
    first, *others = offline_files(tmp_path / "run/wandb", ID)
    shutil.rmtree(first.parent)
    run.open()
    found = run.tracker.verify()  # type: ignore[union-attr]
    run.close()
    assert "isn't known" in found.unchecked
    assert found.cursor is None
    assert offline_rows(tmp_path) == [row for path in others for row in history(path)]


def test_verify_compares_values_in_offline_files(tmp_path: Path) -> None:
    """A row that is gone and a value that is another are counted, and the right ones follow all other rows.

    A verification that finds everything leaves no file behind, and the run's address names what is to be uploaded.
    """
    records = training(20)
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})
    run.deliver(records)
    (path,) = offline_files(tmp_path / "run/wandb", ID)
    verify(run, records)
    assert offline_files(tmp_path / "run/wandb", ID) == [path]
    assert run.state["url"].endswith(f"(upload: wandb {private_names.upload_command()} {path.parent})")
    assert (tmp_path / "run/wandb/latest-run").resolve() == path.parent
    width = sum(name.startswith("metric_") for name in offline_rows(tmp_path)[4])
    rewritten = []
    for record in datastore_records(path):
        step = record.history.step.num if record.WhichOneof("record_type") == "history" else -1
        for item in record.history.item if step == 7 else ():
            item.value_json = "-2.0" if (item.key or item.nested_key[0]) == "metric_3" else item.value_json
        rewritten += [record.SerializeToString()] if step != 4 else []
    path.write_bytes(framed(rewritten))
    for missing, changed in ((width, 1), (0, 0)):
        found = verify(run, records)
        assert (found.missing, found.changed, found.restored) == (missing, changed, missing + changed)
    rows = offline_rows(tmp_path)
    assert len(offline_files(tmp_path / "run/wandb", ID)) == 2  # those that say nothing new are gone
    assert run.state["url"].endswith(
        f"(upload: wandb {private_names.upload_command()} {tmp_path}/run/wandb/offline-run-*-{ID})"
    )
    assert [row["global_step"] for row in rows[19:]] == [4, 7]
    assert rows[-1]["metric_3"] == next(row for row in training(20) if row.step == 7).values["metric_3"]  # type: ignore[attr-defined]


def verify(run: Driver, records: list[Record]) -> Any:
    """Have a delivered run read back, and what is missing delivered again, as the delivery does; what it compared."""
    run.open()
    found = run.tracker.verify()  # type: ignore[union-attr]
    state = dict(run._live)
    run.close(Status("running"))
    run.state, run.cursor = state, found.cursor.seq
    run.tracker_class = type("Comparing", (WandbTracker,), {"comparison": found.comparison})
    run.deliver(records, status=Status("finished", 0))
    run.tracker_class = WandbTracker
    return found.comparison


def test_offline_file_of_a_client_killed_as_it_began_keeps_no_rows_from_the_server(
    server: WandbServer, tmp_path: Path
) -> None:
    """``wandb sync`` ends at a file without a record: the next delivery removes it, and every row arrives."""
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})
    for torn in (HEADER.size, HEADER.size - 3, 0):
        empty = tmp_path / f"run/wandb/offline-run-2020010{torn}_000000-{ID}/run-{ID}.wandb"
        empty.parent.mkdir(parents=True)
        empty.write_bytes(HEADER.pack(*MAGIC)[:torn])
    run.deliver(training(30))
    sync(tmp_path)
    assert_is_training(server.runs[ID].history, 30)


@pytest.mark.skipif(CLIENT < (0, 31), reason="needs wandb 0.31: others file 32 KiB at once")
def test_rows_seen_in_an_offline_file_count_once_it_is_gone(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is removed while it is written: what was seen in it isn't written again, all that follows is."""
    monkeypatch.setattr(backend, "ASK_S", 0.0)
    records = training(60)
    run = driver(tmp_path, options={"WANDB_MODE": "offline"})
    run.open()

    def filed() -> bool:
        run.write(records[:32])
        run.cursor = 0
        return bool(run.state.get("filed"))

    wait_for(filed)
    last = run.state["filed"][1]
    shutil.rmtree(tmp_path / "run/wandb")
    run.cursor = 32
    with pytest.raises(Unavailable, match="removed while it was written"):
        run.write(records)
    again = Driver(WandbTracker, run.info, run.state, 32)
    again.deliver(records)
    assert [row["_step"] for row in offline_rows(tmp_path)] == list(range(last + 1, 60))


@pytest.mark.slow
def test_open_answers_with_what_the_server_holds(server: WandbServer, tmp_path: Path) -> None:
    """A cursor ahead of the server is taken back to where its rows end; nothing is missing, nothing comes twice."""
    records = training(400)
    run = driver(tmp_path)
    run.open()
    run.write(records, batch=50)
    client.abandon()
    at_server = len(server.runs[ID].history)
    assert run.cursor == len(records)
    run.open()
    assert run.cursor <= at_server + 2
    run.write(records)
    run.close()
    assert_is_training(server.runs[ID].history, 400)


def child(directory: str, store: str) -> None:
    """Deliver 4,000 rows, a batch for each line on standard input; state and cursor are kept in a file."""
    file = Path(store)
    kept = json.loads(file.read_text()) if file.exists() else {"state": {}, "cursor": 0}
    run = Driver(WandbTracker, run_info(Path(directory)), **kept)
    run.open()
    records = training(4000)
    for _ in sys.stdin:
        start = run.cursor
        if start == len(records):
            break
        run.write([record for record in records if record.seq <= start + 100])
        file.with_suffix(".new").write_text(json.dumps({"state": run.state, "cursor": run.cursor}))
        file.with_suffix(".new").replace(file)
        print(run.cursor, flush=True)
    run.close()
    print("closed", flush=True)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_killed_deliverer_leaves_each_row_once(mode: str, kills: int, server: WandbServer, tmp_path: Path) -> None:
    """The delivering process dies by SIGKILL again and again while it sends 4,000 rows: each arrives once, with its
    time.
    """
    command = [
        sys.executable,
        "-c",
        "import sys; from tests.backends.wandb.test_failures import child; child(*sys.argv[1:])",
    ]
    command += [str(tmp_path / "run"), str(tmp_path / "state.json")]
    environment = {**os.environ, "WANDB_MODE": mode, "PYTHONPATH": str(ROOT)}
    picks = random.Random(7)
    for kill in (*[True] * kills, False):
        batches = picks.randint(2, 9) if kill else 10_000
        with forked.Program(
            command,
            preload=forked.HELPERS,
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            for _ in range(batches):
                process.stdin.write("\n")
                process.stdin.flush()
                answer = process.stdout.readline().strip()
                if answer == "closed":
                    break
                assert answer.isdigit(), "the deliverer died by itself"
            if kill:
                process.kill()
            else:
                assert answer == "closed"
    if mode == "offline":
        assert_is_training(offline_rows(tmp_path), 4000)
        sync(tmp_path)
    held: Run = server.runs[ID]
    assert_is_training(held.history, 4000)
    assert held.values == {"lr": 1e-3, "model": {"depth": 4}}


@pytest.mark.slow
def test_image_whose_upload_was_cut_is_uploaded_again(server: WandbServer, tmp_path: Path) -> None:
    """The client dies when the row is at the server and its image isn't: the next delivery uploads the image."""
    run = driver(tmp_path)
    server.fault = Fault("hang", match="/uploads/.*media")
    run.open()
    image = Media(step=1, time=T0, name="image", type="image", items=[picture(tmp_path / "run")])
    records = stream([image, Metrics(step=2, time=T0, values={"a": 1.0}), Finish(time=T0, status="finished")])
    run.write(records)
    assert isinstance(run.tracker, WandbTracker)
    run.tracker._confirm(0)
    client.abandon()
    server.fault = None
    held = server.runs[ID]
    path = held.history[0]["image"]["path"]
    assert path not in held.files
    run.open()
    run.write(records)
    run.close()
    assert held.files[path].startswith(b"\x89PNG")
    assert len(held.history) == 2


def attempt(call: Callable[[], Any]) -> DeliveryError:
    with pytest.raises(DeliveryError) as caught:
        call()
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("status", status=401), Refused),
        (Fault("status", status=403), Refused),
        (Fault("status", status=404), Refused),
        (Fault("status", status=429, retry_after_s=1), Unavailable),
        (Fault("status", status=500), Unavailable),
        (Fault("status", status=502), Unavailable),
        (Fault("garbage"), Unavailable),
        (Fault("drop"), Unavailable),
        (Fault("hang"), Unavailable),
        (Fault("refuse"), Unavailable),
    ],
    ids=lambda value: f"{value.kind}{value.status}" if isinstance(value, Fault) else "",
)
@pytest.mark.usefixtures("quick")
def test_each_failure_of_the_server_is_told_apart(
    fault: Fault, kind: type[DeliveryError], server: WandbServer, tmp_path: Path
) -> None:
    """What the server answers at open decides what happens next; once it is well, the same object's successor works."""
    server.fault = fault
    run = driver(tmp_path)
    error = attempt(run.open)
    assert type(error) is kind, error
    assert "\n" not in str(error)
    server.fault = None
    run.deliver(training(3))
    assert_is_training(server.runs[ID].history, 3)


def test_disabled_stops_the_delivery_and_writes_nothing(server: WandbServer, tmp_path: Path) -> None:
    """WANDB_MODE=disabled is taken at its word: neither a server nor a file gets the run."""
    run = driver(tmp_path, options={"WANDB_MODE": "disabled"})
    assert isinstance(attempt(run.open), Fatal)
    assert server.requests == []
    assert offline_rows(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("status", [404, 500])
@pytest.mark.usefixtures("quick")
def test_rows_that_the_server_refuses_are_not_called_delivered(
    status: int, server: WandbServer, tmp_path: Path
) -> None:
    """The client gives up its uploads in silence: write or close says so, and the next delivery brings the rows."""
    run = driver(tmp_path)
    server.fault = Fault("status", match="file_stream", status=status)
    run.open()

    def write_and_close() -> None:
        run.write(training(10))
        run.close()

    assert isinstance(attempt(write_and_close), Unavailable)
    server.fault = None
    run.deliver(training(10))
    assert_is_training(server.runs[ID].history, 10)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_server_that_dies_during_the_run_is_noticed(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can't be confirmed isn't piled up in the client: write raises, and goes on when the server is back."""
    monkeypatch.setattr(backend, "ASK_S", 0.0)
    run = driver(tmp_path)
    records = training(100)
    run.open()
    run.write(records[:50])
    server.fault = Fault("refuse")
    assert isinstance(attempt(lambda: run.write(records)), Unavailable)
    server.fault = None
    run.deliver(records)
    assert_is_training(server.runs[ID].history, 100)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("returned error 401: no", Refused),
        ("HTTP 404: not found", Refused),
        ("status 429", Unavailable),
        ("dial tcp 127.0.0.1:40403: connection refused", Unavailable),
        ("please upgrade wandb", Fatal),
    ],
)
def test_messages_of_the_client_are_translated(text: str, kind: type[DeliveryError]) -> None:
    """A status is read from the client's words; a port that looks like one isn't."""
    from wandb.errors import CommError

    assert type(client.translate(CommError(text))) is kind


@pytest.mark.slow
def test_rows_that_nonsense_was_answered_to_are_sent_again(server: WandbServer, tmp_path: Path) -> None:
    """Something else answers 200 for W&B, once: the client believes it; the rows it took so arrive all the same."""
    records = training(400)
    run = driver(tmp_path)
    run.open()
    server.fault = Fault("garbage", match="file_stream", count=1)

    def until_noticed() -> None:
        run.write(records[:200], batch=50)
        while True:
            assert run.tracker is not None
            run.tracker.tick()
            time.sleep(0.05)

    with pytest.raises(Unavailable, match="didn't come from W&B"):
        until_noticed()
    assert not server.runs[ID].history
    run.deliver(records)
    assert_is_training(server.runs[ID].history, 400)


def test_client_that_is_ended_while_it_sends_says_why(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is ended for nonsense in a call fails with that reason, not with its lost connection."""
    run = driver(tmp_path)
    run.open()
    session = run.tracker._session  # type: ignore[union-attr]

    def cut(*_: object, **__: object) -> None:
        session._watch.foreign_answer = True
        raise ConnectionError("Connection lost")

    monkeypatch.setattr(session, "publish", cut)
    with pytest.raises(Unavailable, match="didn't come from W&B"):
        run.write(training(20))


@pytest.mark.slow
def test_rows_that_are_refused_for_their_number_arrive_from_the_same_client(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes nothing for three requests: the client tries again, and the delivery is told to slow down."""
    monkeypatch.setattr(client, "STREAM_RETRY_S", 1.0)
    run = driver(tmp_path)
    run.open()
    server.fault = Fault("status", match="file_stream", status=429, count=3)
    run.write(training(10))
    tracker: Any = run.tracker
    session = tracker._session
    run.close()
    assert tracker._session is session
    assert tracker.limited()
    assert not tracker.limited()
    assert_is_training(server.runs[ID].history, 10)
    assert server.runs[ID].state == "finished"


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_end_that_the_server_never_got_is_not_called_delivered(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client has all rows there, gives up with the run's end, and says nothing: close does."""
    monkeypatch.setattr(client, "STREAM_RETRIES", 1)
    run = driver(tmp_path)
    run.open()
    run.write(training(10))
    session = run.tracker._session  # type: ignore[union-attr]
    run.tracker._rows.flush()  # type: ignore[union-attr]
    wait_for(lambda: session.last_step() == 9)
    server.fault = Fault("status", match="file_stream", status=429)
    error = attempt(run.close)
    assert isinstance(error, Unavailable)
    assert error.limited
    assert "given up" in str(error)
    assert server.runs[ID].state == "running"
    server.fault = None
    run.deliver(training(10))
    assert server.runs[ID].state == "finished"
    assert_is_training(server.runs[ID].history, 10)


@pytest.mark.slow
def test_client_that_has_given_up_is_left_at_once(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No row goes out any more, though the server is well again: the next call says so, not the run's end."""
    monkeypatch.setattr(client, "STREAM_RETRIES", 1)
    run = driver(tmp_path)
    run.open()
    server.fault = Fault("status", match="file_stream", status=500, count=2)
    run.write(training(10))
    session = run.tracker._session  # type: ignore[union-attr]

    def given_up() -> bool:
        session._watch.poll()
        return bool(session._watch.given_up)

    wait_for(given_up)
    error = attempt(lambda: run.write(training(20)))
    assert isinstance(error, Unavailable)
    assert not error.limited
    run.deliver(training(20))
    assert_is_training(server.runs[ID].history, 20)


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 503])
def test_configuration_that_the_client_dropped_is_sent_again(server: WandbServer, tmp_path: Path, status: int) -> None:
    """The client sends it a second after the run has begun, tries three times, and goes on without: the run would be
    shown as finished, with all its rows and no configuration."""
    run = driver(tmp_path, config={"width": 8})
    run.open()
    server.fault = Fault("status", match="UpsertBucket", status=status, count=3)
    records = training(400)

    def until_noticed() -> None:
        for count in range(1, 400):
            run.write(records[:count])
            time.sleep(0.05)

    error = attempt(until_noticed)
    assert isinstance(error, Unavailable)
    assert error.limited is (status == 429)
    assert "configuration" in str(error)
    run.deliver(records)
    assert server.runs[ID].config["width"]["value"] == 8
    assert server.runs[ID].state == "finished"
    assert_is_training(server.runs[ID].history, 400)


@pytest.mark.slow
def test_configuration_that_is_dropped_at_the_end_is_not_called_delivered(server: WandbServer, tmp_path: Path) -> None:
    """The last change of it, which the client sends as it ends."""
    run = driver(tmp_path, config={"width": 8})
    run.open()
    run.write(training(10))
    wait_for(lambda: "width" in server.runs[ID].config)
    server.fault = Fault("status", match="UpsertBucket", status=429, count=3)
    records = [*training(10), Config(time=T0 + 10, values={"late": 2}, seq=99, id="late")]
    run.write(records)
    error = attempt(run.close)
    assert isinstance(error, Unavailable)
    assert error.limited
    run.deliver(records)
    assert {name: server.runs[ID].config[name]["value"] for name in ("width", "late")} == {"width": 8, "late": 2}
    assert server.runs[ID].state == "finished"


@pytest.mark.slow
def test_refused_beginning_is_told_while_the_client_still_tries(server: WandbServer, tmp_path: Path) -> None:
    """The client tries again after a second or two: others of this machine hear of it before."""
    server.fault = Fault("status", match="UpsertBucket", status=429, count=2)
    run = driver(tmp_path)
    heard: list[int] = []
    tracker = WandbTracker()
    tracker.begin_refused = lambda: heard.append(sum("UpsertBucket" in asked for asked in server.requests))
    tracker.open(run.info, State())
    assert heard[:1] == [1]
    assert len(heard) == 2
    tracker.close(Status("finished"))
    assert server.runs[ID].state == "finished"


LINE = b'{"level":"INFO","msg":"api: retrying HTTP error","status":429,"url":"http://x/e/p/r/file_stream","body":""}'


def test_watch_counts_each_refusal_once_however_the_log_is_written(tmp_path: Path) -> None:
    """A line that is half written counts when it is whole; other requests' refusals, and rows' texts, don't count."""
    log = tmp_path / "debug-internal.log"
    watch = client.Watch(log, lambda: None)
    watch.stop()
    watch.poll()
    others = LINE.replace(b"file_stream", b"graphql"), LINE.replace(b'"', b'\\"')
    written = b"\n".join((LINE, *others, LINE))
    with log.open("ab", buffering=0) as file:
        for at in range(0, len(written), 7):
            file.write(written[at : at + 7])
            watch.poll()
        assert watch.limited == 1
        file.write(b"\n")
        watch.poll()
    assert (watch.limited, watch.given_up, watch.foreign_answer) == (2, "", False)


def refusing(server: WandbServer, *words: str, status: int = 400) -> None:
    """Have the server refuse for good each request whose content has one of the words."""
    server.refuses = lambda what, sent: next((f"no {word} here" for word in words if word in json.dumps(sent)), "")
    server.refusal = status


def until_taken(run: Driver, records: list[Record]) -> dict[str, tuple[Record, str]]:
    """Deliver as the delivery does, with one client after the other; what was refused, by id."""
    refused: list[tuple[Record, str]] = []
    for _ in range(10):
        with contextlib.suppress(Unavailable):
            run.open()
            tracker: Any = run.tracker
            refused += tracker.refused()
            run.write(records, batch=200)
            run.close()
            return {record.id.rpartition("/")[0] or record.id: (record, why) for record, why in refused}
    raise AssertionError("ten clients, one after the other, failed")


@pytest.mark.parametrize("status", [400, 200])
def test_values_of_the_configuration_that_the_server_refuses_are_set_aside(
    server: WandbServer, tmp_path: Path, status: int
) -> None:
    """The client drops all of it in silence: what isn't refused is there, and so is what comes later."""
    config = {**{f"key{number}": number for number in range(20)}, "bad": "poison"}
    refusing(server, "poison", "venom", status=status)
    late = Config(time=T0 + 2, values={"late": 1, "worse": {"deep": "venom"}}, seq=99, id="late")
    run = driver(tmp_path, config=config)
    refused = until_taken(run, [*training(20), late])
    found = server.runs[ID]
    assert {name: found.config[name]["value"] for name in ("key0", "key19", "late")} == {
        "key0": 0, "key19": 19, "late": 1}  # fmt: skip
    assert not {"bad", "worse"} & set(found.config)
    assert {id: record.values for id, (record, _) in refused.items()} == {  # type: ignore[attr-defined]
        "config/bad": {"bad": "poison"}, "config/worse": {"worse": {"deep": "venom"}}}  # fmt: skip
    assert all("no " in why for _, why in refused.values())
    assert found.state == "finished"
    assert_is_training(found.history, 20)
    again = [*training(20), late, Config(time=T0 + 3, values={"bad": "balm", "worse": 3}, seq=100, id="mended")]
    assert not until_taken(run, again)
    assert {name: found.config[name]["value"] for name in ("bad", "worse")} == {"bad": "balm", "worse": 3}


def test_name_tags_and_notes_that_the_server_refuses_keep_no_run_from_it(server: WandbServer, tmp_path: Path) -> None:
    """At its beginning: the run is there with what the server takes, and its rows."""
    refusing(server, "poison")
    run = driver(tmp_path, name="poison", group="poison", job_type="poison", tags=["a", "poison", "b"], notes="fine")
    refused = until_taken(run, training(20))
    found = server.runs[ID]
    assert (found.display_name, found.group, found.job_type, found.notes) == (None, None, None, "fine")
    assert found.tags == ["a", "b"]
    assert {id: getattr(record, id, None) for id, (record, _) in refused.items()} == {
        "name": "poison", "group": "poison", "job_type": None, "tags": ["poison"]}  # fmt: skip
    assert found.state == "finished"
    assert_is_training(found.history, 20)


@pytest.mark.slow
def test_changes_of_a_run_that_the_server_refuses_keep_no_other_change_from_it(
    server: WandbServer, tmp_path: Path
) -> None:
    """While it goes on: the client sends name, tags and notes together, and drops them together."""
    refusing(server, "poison")
    changes = Info(time=T0, name="better", tags=["poison", "c"], notes="poison", seq=99, id="edit")
    refused = until_taken(driver(tmp_path), [*training(20), changes])
    found = server.runs[ID]
    assert (found.display_name, found.tags, found.notes) == ("better", ["c"], None)
    assert set(refused) == {"tags", "notes"}
    assert found.state == "finished"


@pytest.mark.slow
def test_change_that_a_busy_server_dropped_is_sent_again(server: WandbServer, tmp_path: Path) -> None:
    """A new name and tags: the client tries three times, and goes on without."""
    run = driver(tmp_path)
    run.open()
    run.write(training(10))
    wait_for(lambda: "lr" in server.runs[ID].config)
    server.fault = Fault("status", match="UpsertBucket", status=503, count=3)
    records = [*training(10), Info(time=T0 + 10, name="better", tags=["c"], seq=99, id="edit")]
    run.write(records)
    assert isinstance(attempt(run.close), Unavailable)
    assert not until_taken(run, records)
    assert (server.runs[ID].display_name, server.runs[ID].tags) == ("better", ["c"])
    server.runs[ID].display_name = "in the browser"
    assert not until_taken(run, [*training(10), records[-1], *training(0)])
    assert server.runs[ID].display_name == "in the browser"


@pytest.mark.slow
def test_change_of_a_client_that_was_killed_is_sent_again(server: WandbServer, tmp_path: Path) -> None:
    """The client sends it a second later; it was killed before."""
    run = driver(tmp_path)
    run.open()
    records = [*training(10), Info(time=T0 + 10, name="better", seq=99, id="edit")]
    run.write(records)
    client.abandon()
    run.deliver(records)
    assert server.runs[ID].display_name == "better"


@pytest.mark.usefixtures("quick")
def test_row_that_the_server_refuses_is_set_aside(server: WandbServer, tmp_path: Path) -> None:
    """The client gives up all its uploads: the row is found, alone, and every other one arrives once."""
    refusing(server, "poison")
    bad = Text(step=7, time=T0 + 0.7, values={"note": "poison"}, seq=0, id="bad")
    plain = training(20, finish=False)
    at = next(place for place, record in enumerate(plain) if isinstance(record, Metrics) and record.step == 8)
    records = [msgspec.structs.replace(one, seq=seq) for seq, one in enumerate([*plain[:at], bad, *plain[at:]], 1)]
    refused = until_taken(driver(tmp_path), records)
    found = server.runs[ID]
    assert "bad" in refused
    assert len(refused) == 2, "what was logged at the same step is one row with it"
    assert [user_row(row)["metric_0"] for row in found.history] == [step for step in range(20) if step != 7]
    assert found.state == "finished"


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_result_that_the_server_refuses_is_set_aside(server: WandbServer, tmp_path: Path) -> None:
    """It goes with the rows: every row and every other result arrive."""
    refusing(server, "poison")
    results = Summary(time=T0 + 3, values={"best": 1.5, "word": "poison"}, seq=99, id="results")
    refused = until_taken(driver(tmp_path), [*training(20), results])
    found = server.runs[ID]
    assert {id: record.values for id, (record, _) in refused.items()} == {  # type: ignore[attr-defined]
        "summary/word": {"word": "poison"}}  # fmt: skip
    assert found.summary["best"] == 1.5
    assert "word" not in found.summary
    assert found.state == "finished"
    assert_is_training(found.history, 20)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_server_that_refuses_every_row_has_none_set_aside_but_a_few(server: WandbServer, tmp_path: Path) -> None:
    """It isn't the rows then: they wait, and the delivery says why."""
    refusing(server, "wandb-history.jsonl")
    run = driver(tmp_path)
    refused: list[Any] = []
    for _ in range(8):
        with contextlib.suppress(Unavailable):
            run.open()
            tracker: Any = run.tracker
            refused += tracker.refused()
            run.write(training(20))
            run.close()
    assert 0 < len(refused) <= BLAMED_ROWS
    server.refuses = lambda what, sent: ""
    run.deliver(training(20))
    assert len(server.runs[ID].history) == 20 - len(refused)


def test_what_only_the_client_says_of_a_run_stops_nothing_when_it_is_refused(
    server: WandbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its definitions of metrics are part of the configuration: after two clients the rest goes on without, and it is
    said."""
    server.refuses = lambda what, sent: "no metrics" if '"m":[{' in str(sent.get("config")).replace(" ", "") else ""
    run = driver(tmp_path, config={"width": 8})
    assert not until_taken(run, training(20))
    assert server.runs[ID].state == "finished"
    assert_is_training(server.runs[ID].history, 20)
    assert caplog.text.count("x axes and custom charts may be missing") == 1


def test_row_that_is_too_long_for_the_client_is_refused_here(server: WandbServer, tmp_path: Path) -> None:
    """The client leaves it out in silence. Texts of one step that are too long together are rows of their own."""
    text = "x" * 950_000
    long = Text(step=1, time=T0, values={f"text{number}": text for number in range(12)}, seq=2, id="long")
    first = Metrics(step=0, time=T0, values={"a": 1.0}, seq=1, id="a")
    run = driver(tmp_path)
    run.open()
    run.write([first])
    with pytest.raises(Rejected, match="bytes of text in one record"):
        run.write([first, long])
    parts = [Text(step=2, time=T0, values={f"{part}{number}": text for number in range(7)}, seq=3 + place, id=part)
             for place, part in enumerate("pq")]  # fmt: skip
    run.cursor = 2
    run.write(parts)
    run.close()
    assert [len(user_row(row)) for row in server.runs[ID].history] == [1, 7, 7]


def test_results_that_are_too_long_for_the_client_are_said(
    server: WandbServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The client leaves out all results in silence."""
    results = {f"text{number}": "x" * 950_000 for number in range(12)}
    run = driver(tmp_path)
    run.deliver([*training(3), Summary(time=T0 + 3, values=results, seq=99, id="results")])
    assert caplog.text.count("leaves out the run's results") == 1
    assert_is_training(server.runs[ID].history, 3)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_refused_values_are_told_and_listed_by_the_delivery(
    server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line each, once, beside what is delivered; ``trackers show --rejected`` reads the same file."""
    monkeypatch.setattr(delivery, "RETRY_S", (0.0, 0.0))
    refusing(server, "poison")
    run, writer = begun_run(tmp_path / "run", trackers=["wandb"], options={"WANDB_MODE": "online"})
    for record in [Config(time=T0, values={"bad": "poison", "good": 1}), *training(20)[2:]]:
        writer.write(encode(record))
    writer.release()
    said: list[str] = []
    for _ in range(6):
        work = delivery.Delivery(run, "wandb", say=said.append)
        with contextlib.suppress(delivery.Stop):
            while (pause := work.step()) is not None:
                time.sleep(min(pause, 0.05))
            break
    assert [text.partition(" (")[0] for text in said if "refused" in text] == ["wandb refused a record"]
    (entry,) = rejected(run, "wandb")
    assert entry["record"]["values"] == {"bad": "poison"}
    assert "no poison here" in entry["reason"]
    found = server.runs[run.read_info().id]
    assert found.config["good"]["value"] == 1
    assert len(found.history) == 20
    assert found.state == "finished"


@pytest.mark.heavy
@given(st.lists(st.integers(0, 99), unique=True, max_size=30), st.sets(st.integers(0, 99)))
def test_sift_finds_each_that_is_refused_and_has_the_others_taken(items: list[int], bad: set[int]) -> None:
    """However many there are, and wherever; the last that is taken is all of the good ones."""
    taken: list[list[int]] = [[]]

    def refusal(some: list[int]) -> str:
        if bad & set(some):
            return "no"
        taken.append(some)
        return ""

    assert [item for item, _ in sift(items, refusal)] == [item for item in items if item in bad]
    assert taken[-1] == [item for item in items if item not in bad]


def test_threads_that_quieten_the_client_leave_the_streams_as_they_were() -> None:
    """Runs of two threads, delivered inside training: the second one left ``sys.stderr`` closed."""
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with client._quiet():
            inside.set()
            leave.wait(30)

    def second() -> None:
        with client._quiet():
            inside.set()
            left.join(30)

    before = sys.stdout, sys.stderr
    left, late = threading.Thread(target=first), threading.Thread(target=second)
    left.start()
    inside.wait(30)
    inside.clear()
    late.start()
    inside.wait(0.2)  # the second one is inside where nothing holds it
    leave.set()
    left.join(30)
    late.join(30)
    assert (sys.stdout, sys.stderr) == before
