"""Answers of servers as files: of a real MLflow server and the stand-in of W&B's, given again to the clients.

A server's answer is input as a file is. Each is kept in a file of its own, is damaged as other files are, and is given
to the vendor's real client where it would come from the network: no socket, so that many can be tried.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import parse_qsl, urlsplit

WANDB_RUN = "abcd1234"
HISTORY = "history.json"
URL = "http://127.0.0.1:9"
"""Nobody is asked there."""


# --- MLflow


def record_mlflow(place: Path, database: Path, artifacts: Path, work: Path) -> None:
    """Keep what a server answers while its one run is read with its files.

    Args:
        database: of the server; its run's artifacts become ones that the server gives.
        artifacts: ``mlruns`` of that run.
    """
    import sqlite3

    os.environ.update(
        _MLFLOW_SERVER_FILE_STORE=f"sqlite:///{database}",
        _MLFLOW_SERVER_ARTIFACT_ROOT="mlflow-artifacts:/",
        _MLFLOW_SERVER_ARTIFACT_DESTINATION=str(artifacts),
        _MLFLOW_SERVER_SERVE_ARTIFACTS="true",
        MLFLOW_SERVER_DISABLE_SECURITY_MIDDLEWARE="true",
    )
    with contextlib.closing(sqlite3.connect(database)) as opened:
        opened.execute("UPDATE runs SET artifact_uri = 'mlflow-artifacts:/' || experiment_id || '/' || run_uuid || "
                       "'/artifacts'")  # fmt: skip
        opened.commit()
    from mlflow.server import app, handlers

    handlers.initialize_backend_stores(f"sqlite:///{database}", None, "mlflow-artifacts:/")
    server = app.test_client()
    place.mkdir()

    def answer(request: Any) -> tuple[int, bytes]:
        body = request.body or b""
        given = server.open(request.path_url, method=request.method, data=body, headers=dict(request.headers))
        assert given.status_code == 200, (request.path_url, given.data)
        (place / _mlflow_name(request)).write_bytes(given.data)
        return 200, given.data

    with _asked(answer):
        _read_whole(f"mlflow:{URL}#digits", work / "mlflow-fetched")


def mlflow_answers(place: Path) -> Callable[[Any], tuple[int, bytes]]:
    """What a server answers that gives the files of a directory."""
    there = {path.name: path for path in place.iterdir()}

    def answer(request: Any) -> tuple[int, bytes]:
        name = _mlflow_name(request)
        kind = name.partition("--")[0]
        known = there.get(name) or next((path for other, path in there.items() if other.startswith(f"{kind}--")), None)
        if known is None or not known.exists():
            return 404, b'{"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"}'
        return 200, known.read_bytes()

    return answer


def _mlflow_name(request: Any) -> str:
    """A file for each endpoint and what it was asked."""
    split = urlsplit(request.path_url)
    asked = sorted(parse_qsl(split.query))
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        asked += sorted((name, json.dumps(value)) for name, value in json.loads(request.body or b"{}").items())
    parts = re.sub(r"[^A-Za-z0-9]+", "-", split.path.partition("/mlflow")[2]).strip("-")
    return f"{parts[:80]}--{hashlib.sha1(repr((split.path, asked)).encode()).hexdigest()[:8]}.json"


@contextlib.contextmanager
def _asked(answer: Callable[[Any], tuple[int, bytes]]) -> Iterator[None]:
    """Have ``requests`` ask a function, bounded as it is."""
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection

    from trackers.readers.mlflow import bounded_http

    def send(self: Any, request: Any, *arguments: Any, **how: Any) -> Any:
        return _response(request, *answer(request))

    # What takes as long as an answer's reading: a thread for each, a look for modules of Databricks, and for proxies.
    with (
        mock.patch.multiple(bounded_http._Watch, __enter__=lambda watch: watch, __exit__=lambda *_: None),
        mock.patch("mlflow.tracking.request_header.registry.resolve_request_headers", dict),
        mock.patch("requests.sessions.get_environ_proxies", return_value={}),
        mock.patch.object(HTTPAdapter, "send", send),
        mock.patch.object(HTTPConnection, "getresponse"),
    ):
        bounded_http.bound()
        yield


def _response(request: Any, status: int, content: bytes) -> Any:
    from requests import Response
    from urllib3 import HTTPResponse

    response = Response()
    response.status_code, response.url, response.request = status, request.url, request
    response.raw = HTTPResponse(io.BytesIO(content), preload_content=False, status=status)
    response.encoding = "utf-8"
    return response


def read_mlflow(place: Path, read: Callable[[str], object]) -> None:
    """Read the runs of a server that gives the files of a directory."""
    with _asked(mlflow_answers(place)):
        read(f"mlflow:{URL}#digits")


# --- W&B


def record_wandb(place: Path, work: Path) -> None:
    """Keep what the stand-in answers while a run that our tracker delivered there is read with its files."""
    from tests.fakes.wandb_server import WandbServer
    from tests.helpers import Driver, run_info
    from trackers.backends.wandb.tracker import WandbTracker
    from trackers.tracker import Status

    place.mkdir()
    with WandbServer() as server:
        os.environ.update(WANDB_BASE_URL=server.url, WANDB_API_KEY="a" * 40, WANDB_SILENT="true")
        run = work / "wandb-run"
        (run / "media").mkdir(parents=True)
        driver = Driver(WandbTracker, run_info(run, id=WANDB_RUN))
        driver.deliver(wandb_records(run), status=Status("finished", 0, 1_763_689_000.0))
        os.environ["WANDB_CACHE_DIR"] = str(work / "empty")  # or the artifact's file is taken from what was sent
        with _heard(place):
            _read_whole("wandb:someone/digits", work / "wandb-fetched")
        for file in place.glob("download-*"):
            held = server.store.get(bytes.fromhex(file.read_text()).decode())
            file.write_bytes(held or b"")


def wandb_records(run: Path) -> list[Any]:
    import numpy

    from tests.helpers import T0, stream
    from trackers import records as kinds

    numpy.save(run / "picture.npy", numpy.arange(48, dtype="uint8").reshape(4, 4, 3))
    (run / "media/ab").write_bytes(b"weights")
    picture = kinds.MediaFile(format="npy", file="picture.npy", caption="four by four")
    table = kinds.MediaFile(format="json", data={"columns": ["a", "b"], "rows": [[1, "x"], [2.5, None]]})
    histogram = kinds.MediaFile(format="json", data={"counts": [1, 2], "edges": [0.0, 1.0, 2.0]})
    files = [kinds.ArtifactFile(path="sub/model.pt", file="media/ab", size=7),
             kinds.ArtifactFile(path="r", uri="s3://b/x", size=5)]  # fmt: skip
    media = {"image": ("img", picture), "table": ("tab", table), "histogram": ("hist", histogram)}
    return stream([
        kinds.Start(time=T0),
        kinds.Config(time=T0, values={"lr": 0.1, "model": {"width": 3}}),
        *[kinds.Metrics(step=i, time=T0 + i, values={"loss": 1 / (i + 1), "n": i}) for i in range(12)],
        kinds.Metrics(time=T0 + 3, values={"system/cpu": 40.0}),
        *[kinds.Media(step=11, time=T0 + 11, name=name, type=kind, items=[item])
          for kind, (name, item) in media.items()],
        kinds.Text(step=11, time=T0 + 11, values={"note": "x"}),
        kinds.Summary(time=T0 + 12, values={"final/best": 1.0}),
        kinds.ArtifactRecord(time=T0 + 12, name="best model", type="model", files=files, aliases=["best"],
                       description="it", metadata={"k": 1}),
    ])  # fmt: skip


@contextlib.contextmanager
def _heard(place: Path) -> Iterator[None]:
    """Keep the answers that come through the client's service."""
    from wandb.apis.public.service_api import ServiceApi

    send = ServiceApi.send_api_request

    def heard(self: Any, request: Any, timeout: float | None = None) -> Any:
        answer = send(self, request, timeout)
        kind = request.WhichOneof("request")
        if kind == "graphql_request":
            (place / _graphql_name(request.graphql_request)).write_text(answer.graphql_response.data_json)
        elif kind == "read_run_history_request":
            rows = answer.read_run_history_response.run_history.history_rows
            found = [{item.key: json.loads(item.value_json) for item in row.history_items} for row in rows]
            if found:
                (place / HISTORY).write_text(json.dumps(found))
        elif kind == "download_file_request":
            path = urlsplit(request.download_file_request.url).path.removeprefix("/uploads/")
            (place / _download_name(request.download_file_request.path)).write_text(path.encode().hex())
        return answer

    from requests.adapters import HTTPAdapter

    ask = HTTPAdapter.send

    def fetched(self: Any, request: Any, *arguments: Any, **how: Any) -> Any:
        if "/artifactsV2/" in request.url:  # the stand-in has files by the addresses that it gives
            response = _response(request, 200, b"weights")
        else:
            response = ask(self, request, *arguments, **how)
        (place / _fetched_name(request.url)).write_bytes(response.content)
        return response

    heard_at = mock.patch.object(ServiceApi, "send_api_request", heard)
    with heard_at, mock.patch.object(HTTPAdapter, "send", fetched):
        yield


class WandbAnswers:
    """The client's connection to its service, which answers with the files of a directory."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._history: list[Any] | None = None

    def finalize(self, of: object, cleanup: Any) -> Callable[[], None]:
        return lambda: None

    def api_request(self, request: Any, timeout: float | None = None) -> Any:
        from wandb.proto.wandb_api_pb2 import ApiResponse
        from wandb.sdk.lib.service.service_connection import WandbApiFailedError

        answer = ApiResponse()
        kind = request.WhichOneof("request")
        try:
            if kind == "graphql_request":
                content = (self._place / _graphql_name(request.graphql_request)).read_bytes()
                answer.graphql_response.data_json = content.decode("utf-8", "replace")
            elif kind == "read_run_history_request":
                self._rows(request.read_run_history_request, answer.read_run_history_response)
            elif kind == "download_file_request":
                asked = request.download_file_request
                Path(asked.path).write_bytes((self._place / _download_name(asked.path)).read_bytes())
                answer.download_file_response.SetInParent()
            elif kind == "auth_request":
                answer.auth_response.authenticate_response.default_entity = "someone"
            elif kind == "features_request":
                answer.features_response.server.SetInParent()
        except FileNotFoundError:
            raise WandbApiFailedError("404 not found") from None
        return answer

    def _rows(self, request: Any, answer: Any) -> None:
        if request.HasField("scan_run_history_init"):
            answer.scan_run_history_init.request_id = 1
            return
        answer.run_history.SetInParent()
        if not request.HasField("scan_run_history"):
            return
        if self._history is None:
            self._history = _rows_of((self._place / HISTORY).read_bytes())
        asked = request.scan_run_history
        for row in self._history:
            step = row.get("_step")
            if isinstance(step, int) and not asked.min_step <= step < asked.max_step:
                continue
            sent = answer.run_history.history_rows.add()
            for name, value in row.items():
                sent.history_items.add(
                    key=name.encode("utf-8", "replace").decode(),
                    value_json=value if isinstance(value, str) and name == RAW else json.dumps(value),
                )


RAW = "raw"
"""Under it a row has text that needn't be JSON."""


def _rows_of(content: bytes) -> list[Any]:
    """The rows in a damaged file; where it is none any more, its text is a value of a row."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(content)
        if isinstance(found, list):
            return [row for row in found if isinstance(row, dict)]
    return [{"_step": 0, "_timestamp": 1.0, RAW: content.decode("utf-8", "replace")}]


@contextlib.contextmanager
def wandb_answers(place: Path) -> Iterator[None]:
    """Have W&B's client ask the files of a directory."""
    from wandb.apis.public.service_api import ServiceApi, _ServiceApiSession

    def answer(request: Any) -> tuple[int, bytes]:
        path = place / _fetched_name(request.url)
        return (200, path.read_bytes()) if path.exists() else (404, b"{}")

    session = _ServiceApiSession(connection=WandbAnswers(place), api_id="api-0")
    away = {"WANDB_BASE_URL": URL, "WANDB_API_KEY": "a" * 40, "WANDB_SILENT": "true"}
    here = mock.patch.object(ServiceApi, "_get_api_session", return_value=session)
    with here, mock.patch.dict(os.environ, away), _asked(answer):
        yield


def _graphql_name(request: Any) -> str:
    found = re.search(r"(?:query|mutation)\s+(\w+)", request.query)
    variables = json.loads(request.variables_json or "{}")
    names = [os.path.basename(name) for name in variables.get("fileNames") or []]
    return "-".join([found.group(1) if found else "none", *names]) + ".json"


def _download_name(path: str) -> str:
    return f"download-{os.path.basename(path)}"


def _fetched_name(url: str) -> str:
    return "fetched-" + "-".join(urlsplit(url).path.split("/")[-2:])


def _read_whole(source: str, files: Path) -> None:
    from trackers.readers import registry

    reader, runs = registry.open_source(source)
    files.mkdir(exist_ok=True)
    for run in runs:
        assert list(reader.read(run, files=files))


def main() -> None:
    """``python -m tests.fuzz.answers SEEDS``: record both, of the files that are there."""
    place = Path(sys.argv[1])
    work = place / "work" / "answers"
    work.mkdir()
    os.environ.update(HOME=str(work), XDG_CACHE_HOME=str(work / "cache"))
    record_wandb(place / "wandb", work)
    record_mlflow(place / "mlflow-rest", place / "work" / "mlflow.db", place / "work" / "mlruns", work)


if __name__ == "__main__":
    main()
