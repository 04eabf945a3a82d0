"""A pipe, a folder, a device or a socket in place of any file of a run holds nobody up, and hides no other run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import trackers
from tests.analysis.support import write_run
from trackers.cli.app import app
from trackers.errors import TrackersError

FILES = (
    "run.json", "streams/rank-0.1.jsonl", "streams/rank-0.1.jsonl.zst", "streams/sampler-0.1.jsonl",
    "delivery/json.json", "delivery/json.rejected.jsonl", "delivery/json.lease", "archive.json", "messages.jsonl",
    "relay.log", "git-1.patch", "run.json.deleting",
)  # fmt: skip
KINDS = ("pipe", "folder", "socket", "device", "link to a device")
LIMIT_S = 60
"""Reading an endless device, or waiting for a pipe, would take longer on any machine."""


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    def over(*_: Any) -> None:
        raise AssertionError("it waits for what never comes")

    before = signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def plant(path: Path, kind: str) -> None:
    """Put something that is no file in a file's place."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "socket":
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's name is short
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
        os.chdir(here)
    elif kind == "link to a device":
        path.symlink_to("/dev/zero")
    else:
        if os.geteuid() != 0:
            pytest.skip("needs root: only root makes devices")
        with contextlib.suppress(PermissionError):
            os.mknod(path, 0o20666, os.makedev(1, 5))


@pytest.mark.parametrize(
    ("file", "kind"), [*((file, "pipe") for file in FILES), *((file, kind) for file in FILES[:2] for kind in KINDS[1:])]
)
def test_what_is_no_file_holds_nobody_up(file: str, kind: str) -> None:
    """Listing, showing and loading end at once; the other run is shown."""
    rows = [(1, 1.0, {"loss": 1.0})]
    write_run("good", rows)
    path = write_run("bad", rows)
    if file.endswith(".zst"):
        (path / "streams/rank-0.1.jsonl").unlink()
    (path / "delivery/json.json").write_text("{}")
    plant(path / file, kind)
    bad = str(path)
    words = (["ls", "--dir", "runs"], ["ls", "--dir", "runs", "--json"], ["show", bad], ["show", bad, "--rejected"])
    for one in words:
        done = CliRunner().invoke(app, one)
        assert done.exception is None or isinstance(done.exception, (TrackersError, OSError, SystemExit)), one
        assert "good" in done.output or "runs" not in one
    assert "good" in [data.run.id for data in trackers.load_all("runs")]
    with contextlib.suppress(TrackersError):
        trackers.load(bad).metrics()
