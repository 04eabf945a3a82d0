"""Servers that answer without an end, a byte at a time, or with page after page, are left in one line."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import requests
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection

from trackers.errors import Damaged, TrackersError
from trackers.readers.mlflow import bounded_http
from trackers.readers.mlflow.bounded_http import TooLong, _bounded_send, _watched, download
from trackers.readers.mlflow.reader import MlflowReader, pages
from trackers.readers.reader import SourceRun
from trackers.records import ArtifactRecord, Config

EXPERIMENT = {"experiment_id": "1", "name": "digits", "artifact_location": "mlflow-artifacts:/1",
              "lifecycle_stage": "active"}  # fmt: skip


class Hostile(BaseHTTPRequestHandler):
    """Answers by the path that is asked for."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    ended = threading.Event()
    tokens = itertools.count()
    listed: ClassVar[list[str]] = []
    said = 9

    def do_GET(self) -> None:
        """One of the attacks."""
        with contextlib.suppress(OSError):
            getattr(self, self.path.split("?")[0].strip("/").translate(str.maketrans("/-.", "___")), self.missing)()

    def do_POST(self) -> None:
        """The same; what was sent is read, as the connection stays open."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.do_GET()

    def endless(self) -> None:
        """Chunk after chunk."""
        self._head("Transfer-Encoding", "chunked")
        while not self.ended.is_set():
            self.wfile.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")

    def drip(self) -> None:
        """A byte now and then."""
        self._head("Content-Length", "1000000")
        while not self.ended.wait(0.05):
            self.wfile.write(b"x")

    def head(self) -> None:
        """A line of the head now and then."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\n")
        for number in itertools.count():
            self.wfile.write(b"X-%d: 1\r\n" % number if number < 50 else b"x")
            if self.ended.wait(0.05):
                return

    def missing(self) -> None:
        """Nothing there."""
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def small(self) -> None:
        """An ordinary answer."""
        self._json({"a": 1})

    def around(self) -> None:
        """To itself, for ever."""
        self.send_response(302)
        self.send_header("Location", "/around")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def api_2_0_mlflow_experiments_get_by_name(self) -> None:
        """MLflow: the experiment."""
        self._json({"experiment": EXPERIMENT})

    def api_2_0_mlflow_runs_search(self) -> None:
        """MLflow: a page without runs, and always another one behind it."""
        self._json({"runs": [], "next_page_token": f"t{next(self.tokens)}"})

    def api_2_0_mlflow_runs_get(self) -> None:
        """MLflow: a run whose files are the server's."""
        info = {"run_id": "r", "run_uuid": "r", "experiment_id": "1", "status": "FINISHED", "start_time": 1,
                "artifact_uri": "mlflow-artifacts:/1/r/artifacts", "lifecycle_stage": "active"}  # fmt: skip
        self._json({"run": {"info": info, "data": {}}})

    def api_2_0_mlflow_artifacts_artifacts(self) -> None:
        """MLflow: at the top two files; in each file, which is no folder, a folder of the same name."""
        self.listed.append(self.path)
        inside = self.path.rpartition("artifacts%2F")[2] if "artifacts%2F" in self.path else ""
        name = inside.rpartition("%2F")[2]
        names = [name] if name else ["config.json", "big.bin"]
        self._json({"files": [{"path": one, "is_dir": bool(name), "file_size": self.said} for one in names]})

    def api_2_0_mlflow_artifacts_artifacts_1_r_artifacts_config_json(self) -> None:
        """MLflow: a file."""
        self._json({"lr": 1})

    def api_2_0_mlflow_artifacts_artifacts_1_r_artifacts_big_bin(self) -> None:
        """MLflow: a file that is longer than was said."""
        self.endless()

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def _head(self, name: str, value: str) -> None:
        self.send_response(200)
        self.send_header(name, value)
        self.end_headers()

    def _json(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self._head("Content-Length", str(len(content)))
        self.wfile.write(content)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server that means ill."""
    Hostile.ended.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hostile)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    Hostile.ended.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def _bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte, and a second, for each answer."""
    send = getattr(HTTPAdapter.send, "__wrapped__", HTTPAdapter.send)
    monkeypatch.setattr(HTTPAdapter, "send", _bounded_send(send, 1_000_000, 1.0))
    getresponse = getattr(HTTPConnection.getresponse, "__wrapped__", HTTPConnection.getresponse)
    monkeypatch.setattr(HTTPConnection, "getresponse", _watched(getresponse))


@pytest.mark.usefixtures("_bounded")
@pytest.mark.parametrize(
    ("path", "said"),
    [("endless", "longer than 1,000,000 bytes"), ("drip", "wasn't whole after 1 s"), ("head", "wasn't whole after 1 s"),
     ("around", "30 redirects")],
)  # fmt: skip
def test_answers_have_an_end(url: str, path: str, said: str) -> None:
    """Neither size nor time of an answer is the server's to choose."""
    with pytest.raises(requests.RequestException, match=said):
        requests.get(f"{url}/{path}", timeout=10)


@pytest.mark.usefixtures("_bounded")
def test_ordinary_answers_are_what_they_were(url: str) -> None:
    """They are read whole, by ``json`` and ``content``, and piece by piece where that was asked for."""
    assert requests.get(f"{url}/small", timeout=10).json() == {"a": 1}
    with requests.get(f"{url}/small", timeout=10, stream=True) as response:
        assert b"".join(response.iter_content(2)) == b'{"a": 1}'


@pytest.mark.usefixtures("_bounded")
@pytest.mark.parametrize(
    ("path", "most", "said"),
    [("endless", 100_000, "longer than 100,000 bytes"), ("drip", 1000, "wasn't whole after 1 s")],
)
def test_downloads_have_an_end(url: str, path: str, most: int, said: str) -> None:
    """Within ``download`` what is read piece by piece ends, too; outside it nothing has changed."""
    with pytest.raises((requests.RequestException, TooLong), match=said), download(most):
        list(requests.get(f"{url}/{path}", timeout=10, stream=True).iter_content(1 << 20))
    with download(1000):
        assert b"".join(requests.get(f"{url}/small", timeout=10, stream=True).iter_content(3)) == b'{"a": 1}'
    with requests.get(f"{url}/endless", timeout=10, stream=True) as response:
        assert sum(map(len, itertools.islice(response.iter_content(1 << 20), 40))) > 1_000_000


@pytest.mark.parametrize("size", [9, 0])
def test_files_of_mlflow_are_files(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A server that lists a folder in each file doesn't lead into it; a file is at most as long as was said of it."""
    Hostile.listed.clear()
    monkeypatch.setattr(Hostile, "said", size)
    run = SourceRun(source="mlflow", id="r", native={"uri": url, "run_id": "r", "version": ""})
    found = list(MlflowReader().read(run, files=tmp_path))
    assert [record.values for record in found if isinstance(record, Config)] == [{"lr": 1}]
    assert len(Hostile.listed) == 1
    assert not [record for record in found if isinstance(record, ArtifactRecord)]
    assert run.note.endswith(f"1 artifacts are left out, the first: the answer is longer than {size} bytes")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 2_000_000


def test_bound_is_put_on_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second reader of a process adds nothing."""
    monkeypatch.setattr(HTTPAdapter, "send", HTTPAdapter.send)
    monkeypatch.setattr(HTTPConnection, "getresponse", HTTPConnection.getresponse)
    bounded_http.bound()
    once = HTTPAdapter.send
    bounded_http.bound()
    assert HTTPAdapter.send is once


@pytest.mark.slow
def test_mlflow_lists_end(url: str) -> None:
    """Page after page of runs, each with another token behind it, is one line."""
    with pytest.raises(TrackersError, match="has no end"):
        MlflowReader().runs(f"{url}#digits")


def test_pages_have_an_end() -> None:
    """A token that comes again, empty pages, and too many pages; a list that ends is given whole."""
    listed = {None: "a", "a": "b", "b": ""}
    assert list(pages(lambda token: listed[token], lambda page: page, lambda page: False, 5)) == ["a", "b", ""]
    with pytest.raises(Damaged, match="has no end"):
        list(pages(lambda token: "x", lambda page: page, lambda page: False, 5))
    with pytest.raises(Damaged, match="more than 5 pages"):
        list(pages(lambda token: (token or 0) + 1, lambda page: page, lambda page: False, 5))
    with pytest.raises(Damaged, match="has no end"):
        list(pages(lambda token: (token or 0) + 1, lambda page: page, lambda page: True, 5000))
