"""The live page's server in this process, or as a command, and questions to it."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from tests.helpers import wait_for
from trackers.ui.catalogue import Catalogue
from trackers.ui.server import Server

PATIENCE_S = 60.0
until = functools.partial(wait_for, seconds=PATIENCE_S)


class Site:
    """A server that runs. address: the page's."""

    def __init__(self, address: str) -> None:
        self.address = address

    def get(self, path: str = "", **headers: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of an answer; path: from the page's address, or from the root with "/" first."""
        parts = urlsplit(self.address)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path if path.startswith("/") else parts.path + path, headers=headers)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def ask(self, question: str, **given: Any) -> Any:
        """The answer to a question."""
        status, _, content = self.get(f"api/{question}?{urlencode(given)}")
        assert status == 200, content
        return json.loads(content)

    def rows(self, **query: Any) -> list[dict[str, Any]]:
        """Rows of the table."""
        found: list[dict[str, Any]] = self.ask("runs", query=json.dumps(query))["rows"]
        return found

    def key(self, run_id: str) -> str:
        """What the page calls a run, once it is there."""
        return str(until(lambda: next((row["key"] for row in self.rows(most=1000) if row["id"] == run_id), None)))


@contextlib.contextmanager
def site(*sources: str, root: Path | str = "runs", runs: int | None = None) -> Iterator[Site]:
    """A server in this process.

    Args:
        runs: wait until so many are shown.
    """
    catalogue = Catalogue(sources, Path(root))
    with Server(catalogue, port=0) as server:
        catalogue.open()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            found = Site(server.address)
            if runs is not None:
                until(lambda: found.ask("runs")["all"] == runs)
            yield found
        finally:
            server.shutdown()
            thread.join()
            catalogue.close()


@contextlib.contextmanager
def command(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Site]]:
    """``trackers ui`` as a process, ended by the block or after it."""
    program = [sys.executable, "-m", "trackers", "ui", "--no-open", *arguments]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, Site(process.stdout.readline().strip())
    finally:
        process.kill()
        process.communicate()
