"""Stores in a directory, some of which fail, and runs to send."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.errors import Unavailable
from trackers.object_storage.store import Store


def store(tmp_path: Path) -> Store:
    """A store in a directory."""
    return Store(f"file://{tmp_path}/store")


class Failing(Store):
    """A store whose requests fail now and then, some after they were carried out. rate: how many of them."""

    def __init__(self, where: str, seed: int, rate: float = 0.3) -> None:
        super().__init__(where)
        self._random = random.Random(seed)
        self._rate = rate

    def _call(self, call: Any) -> Any:
        chance = self._random.random()
        if chance < self._rate / 2:
            raise Unavailable("503")
        found = super()._call(call)
        if chance < self._rate:
            raise Unavailable("the answer was lost")
        return found


class Lying(Store):
    """A store that says it has written what it hasn't. lies: of how many objects, the first ones."""

    def __init__(self, where: str, lies: int) -> None:
        super().__init__(where)
        self.lies = lies

    def put(self, name: str, content: bytes | Path) -> str:
        if self.lies > 0 and "/@claims/" not in name:
            self.lies -= 1
            return "claimed"
        return super().put(name, content)


def run_directory(path: Path, lines: int = 3) -> Path:
    """A run's directory as a sender sees it."""
    for folder in ("streams", "delivery", "media/13"):
        (path / folder).mkdir(parents=True)
    (path / "run.json").write_text('{"id": "abc"}\n')
    (path / "media/13/13db.npy").write_bytes(b"picture")
    (path / "run.lease").write_text("mine")
    grow(path, lines, begin=True)
    return path


def grow(path: Path, lines: int, begin: bool = False, name: str = "rank-0.1") -> None:
    """More lines in a stream."""
    with (path / f"streams/{name}.jsonl").open("ab") as file:
        for number in range(lines):
            file.write(b'{"kind":"start"}\n' if begin and not number else b'{"kind":"metrics","step":%d}\n' % number)


def contents(path: Path) -> dict[str, bytes]:
    """Files below a directory, but for those that aren't sent."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.startswith(".") and not file.name.endswith(".lease")
    }


def names(store: Store) -> Iterator[str]:
    """Names of all objects."""
    return (one.name for one in store.objects())


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class BucketServer:
    """moto's server in a process of its own, which forgets all as it ends."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        code = f"from moto.server import main; main(['-H', '127.0.0.1', '-p', '{self.port}'])"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/bucket", method="PUT")).close()

    def variables(self) -> dict[str, str]:
        """What leads a store's client here."""
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1"}  # fmt: skip

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait()
            self.process = None
