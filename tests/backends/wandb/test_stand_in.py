"""The stand-in for W&B's server serves the real client, and shows the real client's losses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from tests.backends.wandb.support import server
from tests.fakes.wandb_server import Fault, Limits, WandbServer
from trackers.backends.wandb import datastore_writer

__all__ = ["server"]


def plain_init(**fields: Any) -> Any:
    import wandb

    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True)
    return wandb.init(project="digits", id="abcd1234", settings=quiet, **fields)


KILLED = """
import sys, time, wandb
run = wandb.init(project="digits", id="abcd1234", settings=wandb.Settings(console="off", silent=True))
for step in range(100):
    run.log({"loss": 1.0}, step=step)
time.sleep(2.5)
print("logged", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["online", "offline"])
def test_real_client_killed_after_100_rows_loses_rows(mode: str, server: WandbServer, tmp_path: Path) -> None:
    """wandb, used as usual and killed 2.5 s after 100 calls of log, hasn't kept all of them, mostly none.

    Which of the two is a race in its service (measured: 0 rows in 4 of 5 kills, else 99): why a journal is needed.
    """
    environment = {**os.environ, "WANDB_MODE": mode, "WANDB_DIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"logged\n"
        child.kill()
    if mode == "online":
        assert len(server.runs["abcd1234"].history) < 100
        assert server.runs["abcd1234"].state == "running"
    else:
        (path,) = datastore_writer.offline_files(tmp_path / "wandb", "abcd1234")
        assert len(list(datastore_writer.history(path))) < 100


@pytest.mark.slow
def test_real_client_drops_a_backward_step(server: WandbServer) -> None:
    """wandb drops a row whose step is below the last one's, without an error."""
    run = plain_init()
    for step in (0, 5, 3, 6):
        run.log({"loss": float(step)}, step=step)
    run.finish()
    assert [row["_step"] for row in server.runs["abcd1234"].history] == [0, 5, 6]


@pytest.mark.slow
def test_real_client_is_served_from_init_to_the_api(server: WandbServer, tmp_path: Path) -> None:
    """A run logged with the real client is read back with the real client: rows, summary, filters, artifacts."""
    import wandb

    run = plain_init(name="one", config={"lr": 0.1}, tags=["t"], group="g", notes="n")
    for step in range(600):
        run.log({"loss": float(step)}, step=step)
    (tmp_path / "weights").write_bytes(b"12345")
    artifact = wandb.Artifact("weights", type="model")
    artifact.add_file(str(tmp_path / "weights"))
    run.log_artifact(artifact).wait(timeout=30)
    run.alert("stop", "it diverged")
    run.finish(exit_code=3)

    held = server.runs["abcd1234"]
    assert (held.display_name, held.tags, held.group, held.notes) == ("one", ["t"], "g", "n")
    assert (held.values, held.state, held.exit_code) == ({"lr": 0.1}, "failed", 3)
    assert [alert["title"] for alert in held.alerts] == ["stop"]
    assert [item.files for item in server.store.artifacts] == [{"weights": b"12345"}]
    api = wandb.Api()
    (found,) = api.runs("someone/digits", filters={"display_name": "one"}, order="-created_at")
    assert not list(api.runs("someone/digits", filters={"display_name": "two"}))
    assert found.summary["loss"] == 599
    assert len(list(found.scan_history())) == 600
    assert len(found.history(keys=["loss"], pandas=False)) <= 500


@pytest.mark.slow
def test_resume_goes_on_behind_the_last_row(server: WandbServer) -> None:
    """A resumed run starts at the step after the server's last row, and adds to its rows."""
    run = plain_init()
    run.log({"loss": 1.0}, step=7)
    run.finish()
    run = plain_init(resume="allow")
    assert run.starting_step == 8
    run.log({"loss": 2.0}, step=8)
    run.finish()
    assert [row["loss"] for row in server.runs["abcd1234"].history] == [1.0, 2.0]


def test_a_run_without_heartbeat_shows_as_crashed(server: WandbServer) -> None:
    """Without an exit code the state is running, until the last sign of life is too old."""
    client = plain_init()
    run = server.runs["abcd1234"]
    assert run.state == "running"
    run.heartbeat_timeout_s = -1.0
    assert run.state == "crashed"
    client.finish()
    assert run.state == "finished"


def ask(url: str, path: str = "/graphql", body: dict[str, Any] | None = None) -> bytes:
    content = json.dumps(body or {"query": "query Viewer { viewer { id } }"}).encode()
    with urllib.request.urlopen(urllib.request.Request(url + path, content), timeout=5) as reply:
        return bytes(reply.read())


@pytest.mark.parametrize("status", [401, 403, 404, 429, 500, 502])
def test_fault_status_answers_with_it_where_it_matches(status: int) -> None:
    """A status is given to the requests that match, with Retry-After if asked for, and to no others."""
    with WandbServer() as server:
        server.fault = Fault("status", match="Viewer", status=status, retry_after_s=7)
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(server.url)
        assert (caught.value.code, caught.value.headers["Retry-After"]) == (status, "7")
        assert b"unknown operation" in ask(server.url, body={"query": "query Other { x }"})


def test_fault_refuse_closes_the_port_and_opens_it_again() -> None:
    """While it refuses nobody listens; afterwards the same address answers."""
    with WandbServer() as server:
        server.fault = Fault("refuse")
        with pytest.raises(urllib.error.URLError, match="refused"):
            ask(server.url)
        server.fault = None
        assert b"someone" in ask(server.url)


def test_fault_hang_drop_garbage_and_count() -> None:
    """A request that hangs times out, a dropped one is cut, garbage isn't JSON, and a counted fault ends."""
    with WandbServer() as server:
        server.fault = Fault("hang")
        with pytest.raises(TimeoutError), urllib.request.urlopen(server.url + "/graphql", b"{}", timeout=0.2):
            pass
        server.fault = Fault("drop")
        with pytest.raises(Exception, match="IncompleteRead"):
            ask(server.url)
        server.fault = Fault("garbage", count=1)
        with pytest.raises(json.JSONDecodeError):
            json.loads(ask(server.url))
        assert json.loads(ask(server.url))["data"]["viewer"]["entity"] == "someone"


@pytest.mark.slow
def test_server_as_a_process_takes_faults_and_shows_runs() -> None:
    """Started on its own it prints its address, takes faults by POST and shows runs by GET."""
    command = [sys.executable, "-m", "tests.fakes.wandb_server", "--port", "0"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        ask(url, "/_fault", {"kind": "status", "status": 503})
        with pytest.raises(urllib.error.HTTPError, match="503"):
            ask(url)
        with urllib.request.urlopen(url + "/_fault", b"{}", timeout=5):
            pass
        mutation = {
            "query": "mutation UpsertBucket { x }",
            "variables": {"name": "r1", "project": "p", "config": '{"lr": {"value": 1}}'},
        }
        ask(url, body=mutation)
        with urllib.request.urlopen(url + "/_runs", timeout=5) as reply:
            assert json.loads(reply.read())["r1"]["values"] == {"lr": 1}
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(timeout=10) == 0


def test_limits_are_counted_by_the_second_for_a_project_and_for_a_run() -> None:
    """What is above them is answered 429 with W&B's headers; a second later there is room again."""
    limits = Limits(stream=3, each=2, begin=1)
    one, other = "/files/e/p/one/file_stream", "/files/e/p/two/file_stream"
    assert [limits.take(one, 10.0) for _ in range(3)] == [True, True, False]
    assert [limits.take(other, 10.5) for _ in range(2)] == [True, False]
    assert limits.take(one, 11.1)
    assert [limits.take("/graphql UpsertBucket", 10.0) for _ in range(2)] == [True, False]
    assert all(limits.take("/graphql Viewer", 10.0) for _ in range(100))
    with WandbServer() as server:
        server.limits = Limits(begin=0)
        with pytest.raises(urllib.error.HTTPError) as caught:
            ask(server.url, body={"query": "mutation UpsertBucket { x }"})
        headers = caught.value.headers
        assert (caught.value.code, headers["RateLimit-Remaining"], headers["RateLimit-Reset"]) == (429, "0", "1")
        assert [(what, taken) for _, what, taken in server.asked] == [("/graphql UpsertBucket", False)]
