"""Logins stay with the server that the reader's configuration names, wherever that server sends the client."""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.backends.wandb.support import server
from tests.fakes import wandb_server
from tests.fakes.servers import QuietHandler, listening
from tests.fakes.wandb_server import WandbServer
from tests.fuzz.answers import WANDB_RUN, wandb_records
from tests.helpers import Driver, run_info, stream
from trackers.errors import TrackersError
from trackers.readers.mlflow.reader import MlflowReader
from trackers.readers.wandb import api, fetch
from trackers.readers.wandb.api import WandbReader
from trackers.records import Config, Start
from trackers.tracker import Status

__all__ = ["server"]
# The client's thread complains where a test's service was stopped before what it had opened was collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
KEY = "0123456789abcdef" * 2 + "01234567"


@contextlib.contextmanager
def hostile_server(
    answer: Callable[[str, str], tuple[int, dict[str, str], bytes]], host: str = "127.0.0.1"
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """An HTTP server, and everything that it is sent: of each request its path, and its headers and body as text.

    Args:
        answer: status, headers and body, by method and path.
    """
    heard: list[tuple[str, str]] = []

    class Handler(QuietHandler):
        def reply(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode("latin-1")
            heard.append((self.path, f"{self.headers}\n{sent}"))
            status, headers, body = answer(self.command, self.path)
            self.send_response(status)
            for name, value in {
                "Content-Type": "application/json",
                **headers,
                "Content-Length": str(len(body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_HEAD = reply

    with listening(Handler, host) as address:
        yield address, heard


@pytest.mark.parametrize("elsewhere", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("old", [True, False])
def test_redirect_of_a_trackio_server_carries_no_login(
    elsewhere: str, old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither trackio's write token nor the Hub's login goes where a server sends the client, old API or new."""
    from trackers.backends.trackio.server import ServerStore
    from trackers.backends.trackio.store import TrackioRunKey
    from trackers.errors import DeliveryError

    monkeypatch.setenv("HF_TOKEN", "hf_readersOwnLoginOfTheHub")
    versions = itertools.count()
    with hostile_server(lambda method, path: (200, {}, b"{}"), elsewhere) as (there, stolen):

        def answer(method: str, path: str) -> tuple[int, dict[str, str], bytes]:
            if path == "/version" and not (old and next(versions)):
                return 200, {}, b'{"api_version": 1}'
            return 307, {"Location": there + path}, b""

        with hostile_server(answer) as (server, heard):
            store = ServerStore(TrackioRunKey("digits", "one"), "one", f"{server}?write_token=readers-own-token")
            with contextlib.suppress(DeliveryError):
                store.connect()
                store.known_name()
    assert heard
    assert "readers-own-token" not in str(stolen)
    assert "hf_readersOwn" not in str(stolen) + str(heard)


@pytest.mark.parametrize("elsewhere", ["127.0.0.1", "localhost"])
def test_redirect_of_a_store_carries_no_key(elsewhere: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the key, its id nor a signature goes along; a session's token does, which is nothing without them."""
    from trackers.object_storage.store import Store

    with (
        hostile_server(lambda method, path: (404, {}, b""), elsewhere) as (there, stolen),
        hostile_server(lambda method, path: (307, {"Location": there + path}, b"")) as (endpoint, heard),
    ):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDreaders")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "readersOwnSecret")
        with contextlib.suppress(TrackersError):
            Store("s3://bucket/runs").get("name", 1000)
    assert "AKIDreaders" in str(heard)
    assert stolen
    assert not any(word in str(stolen) for word in ("AKIDreaders", "readersOwnSecret", "uthorization"))


def test_logged_mapping_uploads_no_file(tmp_path: Path) -> None:
    """A configuration or a row in the form of an upload is data: the reader's files stay where they are."""
    from trackers.backends.trackio.server import ServerStore
    from trackers.backends.trackio.store import Files, TrackioRow, TrackioRunKey

    secret = tmp_path / "id_rsa"
    secret.write_text("key of the reader")
    sent = tmp_path / "weights.bin"
    sent.write_text("weights of the run")
    claim = {"path": str(secret), "orig_name": "x", "meta": {"_type": "gradio.FileData"}}
    reply = json.dumps({"data": {"present": []}, "paths": ["there"], "api_version": 1}).encode()
    with hostile_server(lambda method, path: (200, {}, reply)) as (server, heard):
        store = ServerStore(TrackioRunKey("digits", "one"), "one", server)
        store.connect()
        store.log([TrackioRow("a", 1, 1.0, {"loss": 0.5, "table": [claim]})], {"model": claim, "more": [{"x": claim}]})
        store.artifact(Files("weights", "model", None, {"from": claim}, [], {"w.bin": sent}, {}))
    said = str(heard)
    assert "weights of the run" in said
    assert "key of the reader" not in said
    assert str(secret) in said


def assert_no_key(stolen: object) -> None:
    """Neither the key itself nor as a browser would send it."""
    assert KEY not in str(stolen)
    for login in (f"api:{KEY}", KEY):
        assert base64.b64encode(login.encode()).decode().rstrip("=") not in str(stolen)


@pytest.mark.parametrize("elsewhere", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("code", [302, 307, 308])
def test_redirect_of_a_wandb_server_carries_no_key(
    elsewhere: str, code: int, server: WandbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that sends the client on doesn't get the reader's key sent there."""
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setattr(api, "START_PATIENCE_S", 0.0)
    monkeypatch.setattr(fetch, "PATIENCE_S", 0.0)
    monkeypatch.setattr(fetch, "CLIENT_TIMEOUT_S", 4)
    with hostile_server(lambda method, path: (404, {}, b"{}"), elsewhere) as (there, stolen):
        moved = (code, {"Location": f"{there}/graphql"}, b"")
        with hostile_server(lambda method, path: moved) as (hostile, heard):
            monkeypatch.setenv("WANDB_BASE_URL", hostile)
            with pytest.raises((TrackersError, ValueError)):
                WandbReader().runs("someone/digits")
    assert heard
    assert_no_key(stolen)


@pytest.mark.parametrize("elsewhere", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("code", [302, 307, 308])
def test_redirect_of_an_mlflow_server_carries_no_login(
    elsewhere: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a token nor a password goes where a server sends the client; what .netrc has for that host does."""
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    for login in ("token", "password", "netrc"):
        monkeypatch.delenv("MLFLOW_TRACKING_TOKEN", raising=False)
        with hostile_server(lambda method, path: (404, {}, b"{}"), elsewhere) as (there, stolen):
            moved = (code, {"Location": f"{there}/moved"}, b"")
            with hostile_server(lambda method, path, moved=moved: moved) as (hostile, heard):
                if login == "token":
                    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "readers-token")
                elif login == "netrc":
                    (tmp_path / "netrc").write_text("machine localhost login me password of-localhost\n")
                    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
                else:
                    hostile = hostile.replace("//", "//me:readers-password@")
                with pytest.raises(TrackersError):
                    MlflowReader().runs(f"{hostile}#digits")
        sent, taken = (
            [base64.b64decode(word + "==").decode("latin-1") for word in re.findall(r"Basic ([\w+/]+)", str(what))]
            for what in (heard, stolen)
        )
        assert stolen
        assert ("readers-token" in str(heard), "me:readers-password" in sent) == (login == "token", login == "password")
        assert "readers-token" not in str(stolen)
        assert taken == (["me:of-localhost"] if login == "netrc" and elsewhere == "localhost" else [])


@pytest.mark.slow
@pytest.mark.parametrize("elsewhere", ["127.0.0.1", "localhost"])
def test_files_that_lie_elsewhere_are_fetched_without_the_key(
    elsewhere: str, server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files, manifests and parts of an artifact may lie with another host, as with W&B's own stores: it gets no key."""
    from trackers.backends.wandb.tracker import WandbTracker

    monkeypatch.setenv("WANDB_API_KEY", KEY)
    run = tmp_path / "run"
    (run / "media").mkdir(parents=True)
    driver = Driver(WandbTracker, run_info(run, id=WANDB_RUN))
    driver.deliver(wandb_records(run), status=Status("finished", 0, 1_763_689_000.0))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "empty"))  # else the artifact comes from what was sent
    monkeypatch.setattr(fetch, "PATIENCE_S", 0.0)
    given = wandb_server.answer

    def held_by_the_server(method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        content = server.store.get(path.split("?")[0].removeprefix("/uploads/"))
        return (404, {}, b"{}") if content is None else (200, {}, content)

    with hostile_server(held_by_the_server, elsewhere) as (there, stolen):

        def elsewhere_instead(*arguments: Any) -> Any:
            return json.loads(json.dumps(given(*arguments)).replace(f"{server.url}/uploads", f"{there}/uploads"))

        monkeypatch.setattr(wandb_server, "answer", elsewhere_instead)
        reader = WandbReader()
        (found,) = reader.runs(f"someone/digits/{WANDB_RUN}")
        with contextlib.suppress(TrackersError):
            list(reader.read(found, files=tmp_path / "got"))
    assert {Path(path).name for path, _ in stolen} >= {"wandb-metadata.json", "x"}
    assert_no_key(stolen)


def test_configuration_names_no_server(server: WandbServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that W&B's client would take for artifacts of another server are data: nothing is asked there."""
    from trackers.backends.wandb.tracker import WandbTracker

    monkeypatch.setenv("WANDB_API_KEY", KEY)
    with hostile_server(lambda method, path: (404, {}, b"{}")) as (there, stolen):
        named = f"wandb-artifact://{there}/someone/digits/model:v0"
        version = {"_type": "artifactVersion", "_version": "v0", "id": "a0", "version": "v0", "sequenceName": "m"}
        values = {"model": named, "version": version, "deep": {"model": named, "list": [named, version]}}
        driver = Driver(WandbTracker, run_info(tmp_path / "run", id=WANDB_RUN, config=values))
        later = stream([Start(time=1.0), Config(time=2.0, values={"later": named, "more": {"version": version}})])
        driver.deliver(later)
    assert stolen == []
    config = {name: entry["value"] for name, entry in server.runs[WANDB_RUN].config.items() if name != "_wandb"}
    assert {name: config[name] for name in values} == values
    assert config["later"] == named
    assert config["more"] == {"version": version}
