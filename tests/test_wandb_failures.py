"""W&B as a tracker when things go wrong: each row once, whatever dies, and every failure told apart."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import T0, Driver, run_info, stream, training
from tests.wandb_server import Fault, WandbServer
from tests.wandb_store import Run
from tests.wandb_support import ID, ROOT, assert_is_training, driver, offline_rows, picture, sync
from trackers.backends import wandb as backend
from trackers.backends import wandb_session
from trackers.backends.wandb import WandbTracker
from trackers.errors import DeliveryError, Fatal, Refused, Unavailable
from trackers.records import (
    Finish,
    Media,
    Metrics,
)
from trackers.tracker import Status

pytest_plugins = ["tests.wandb_support"]


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_lost_state_gives_each_row_once(mode: str, server: WandbServer, tmp_path: Path) -> None:
    """With cursor and state gone, delivering from the start adds only what is missing."""
    records = training(60)
    options = {"WANDB_MODE": mode}
    driver(tmp_path, options=options).deliver(records[:40], status=Status("running"))
    driver(tmp_path, options=options).deliver(records)
    assert_is_training(server.runs[ID].history if mode == "online" else offline_rows(tmp_path), 60)


def test_open_answers_with_what_the_server_holds(server: WandbServer, tmp_path: Path) -> None:
    """A cursor ahead of the server is taken back to where its rows end; nothing is missing, nothing comes twice."""
    records = training(400)
    run = driver(tmp_path)
    run.open()
    run.write(records, batch=50)
    wandb_session.abandon()
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


@pytest.mark.parametrize("mode", ["online", "offline"])
def test_killed_deliverer_leaves_each_row_once(mode: str, server: WandbServer, tmp_path: Path) -> None:
    """The delivering process dies by SIGKILL five times while it sends 4,000 rows: each arrives once, with its time."""
    command = [sys.executable, "-c", "import sys; from tests.test_wandb_failures import child; child(*sys.argv[1:])"]
    command += [str(tmp_path / "run"), str(tmp_path / "state.json")]
    environment = {**os.environ, "WANDB_MODE": mode, "PYTHONPATH": str(ROOT)}
    picks = random.Random(7)
    for kill in (True, True, True, True, True, False):
        batches = picks.randint(2, 9) if kill else 10_000
        with subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
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
    assert held.values == {"lr": 1e-3, "model": {"depth": 4}, "run_name": "baseline"}


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
    wandb_session.abandon()
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


@pytest.mark.parametrize("status", [404, 500])
@pytest.mark.usefixtures("quick")
def test_rows_that_the_server_refuses_are_not_called_delivered(
    status: int, server: WandbServer, tmp_path: Path
) -> None:
    """The client gives up its uploads in silence: close says so, and the next delivery brings the rows."""
    run = driver(tmp_path)
    server.fault = Fault("status", match="file_stream", status=status)
    run.open()
    run.write(training(10))
    assert isinstance(attempt(run.close), Unavailable)
    server.fault = None
    run.deliver(training(10))
    assert_is_training(server.runs[ID].history, 10)


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

    assert type(wandb_session.translate(CommError(text))) is kind


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

    with pytest.raises(Unavailable, match="wasn't W&B"):
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
        session._watch.seen = True
        raise ConnectionError("Connection lost")

    monkeypatch.setattr(session, "log", cut)
    with pytest.raises(Unavailable, match="wasn't W&B"):
        run.write(training(20))
