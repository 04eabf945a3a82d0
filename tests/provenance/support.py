"""Runs with a record of their code, written as training and its relay leave them, without starting either."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from tests.analysis.support import write_run
from trackers.journal.run_directory import RunDirectory
from trackers.provenance.modules import Head, Module, lines
from trackers.relay.code_keeper import CaptureTask, keep
from trackers.support import git_head

PROGRAM = "import os, sys\nimport part\nprint(part.VALUE, sys.argv[1:], os.getcwd(), flush=True)\n"


def git(root: Path, *words: str) -> str:
    """Have git do something there, by nobody's configuration; what it says."""
    words = ("-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *words)
    return subprocess.run(["git", *words], capture_output=True, check=True, text=True, timeout=60).stdout


def repository(root: Path, files: dict[str, str]) -> Path:
    """A repository with these files committed."""
    root.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "first")
    return root


def record(
    root: Path,
    run_id: str = "one",
    program: str = "train.py",
    argv: tuple[str, ...] = (),
    modules: dict[str, str] | None = None,
    where: Path | str = "runs",
    head: dict[str, Any] | None = None,
    installed: dict[str, str] | None = None,
    **fields: Any,
) -> RunDirectory:
    """A run of a program below a directory, with its code as it is now.

    Args:
        program: below ``root``, or as ``run.json`` has it. modules: files below ``root`` by module, that were imported.
        head: what training told beside them. installed: packages, default this Python's. fields: of ``run.json``.
    """
    path = str(root / program) if (root / program).exists() else program
    values: dict[str, Any] = {
        "program": path, "argv": list(argv), "cwd": str(root), "python": sys.executable,
        "git": git_head.read(str(root), []), **fields,
    }  # fmt: skip
    run = RunDirectory(write_run(run_id, [(1, 1.0, {"loss": 1.0})], root=where, **values))
    spool = run.path / "code-1.modules"
    found = [Module("__main__", values["program"])] if Path(values["program"]).exists() else []
    found += [Module(name, str(root / file)) for name, file in (modules or {}).items()]
    stats = [Path(module.path).stat() for module in found]
    seen = [
        module._replace(size=one.st_size, changed=one.st_mtime_ns) for module, one in zip(found, stats, strict=True)
    ]
    with spool.open("wb") as file:
        file.write(msgspec.json.encode(Head(**{"root": str(root), **(head or {})})) + b"\n" + lines(seen))
    assert keep(run, CaptureTask(1, os.getppid()), installed) == 0
    spool.unlink()
    return run
