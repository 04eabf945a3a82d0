"""What the tests of archives and deletion share: runs that were delivered for real, made once and copied."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.analysis.support import write_run
from trackers.journal.run_directory import RunDirectory
from trackers.relay.sync import sync

ROWS = [(step, step / 10, {"loss": 1 / step, "lr": 1e-3}) for step in range(1, 201)]
DAY_S = 86400.0


def delivered(run_id: str = "one", **options: object) -> RunDirectory:
    """A run of 200 steps that the JSON log has whole, delivered by a real sync in this process's directory."""
    path = write_run(run_id, ROWS, config={"lr": 1e-3}, options=options, cwd=str(Path.cwd()))
    run = RunDirectory(path)
    assert sync([run], (), lambda work: None)
    run.relay_log.write_bytes(b"a line\n")
    return run


def files(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every file below: its digest, time and permissions. What a killed process wrote of a lease doesn't count."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
            path.stat().st_mode,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".tmp")
    }


def age(folder: Path, days: float) -> None:
    """Let files be older, and what accounts say of the time with them."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            status = path.stat()
            if path.parent.name == "delivery" and path.suffix == ".json":
                _age_account(path, days)
            os.utime(path, (status.st_atime - days * DAY_S, status.st_mtime - days * DAY_S))


def program(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """``trackers …`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "trackers", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=60,
        check=False,
    )


def _age_account(path: Path, days: float) -> None:
    import msgspec

    account = msgspec.json.decode(path.read_bytes())
    account["time"] -= days * DAY_S
    path.write_bytes(msgspec.json.encode(account))
