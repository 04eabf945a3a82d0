"""A training process that tests drive line by line, while they break what is around it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests import forked
from trackers.journal.run_directory import RunDirectory

ROOT = Path(__file__).resolve().parent.parent.parent


class Training:
    """A training process that does what it is told on standard input, one line of Python after the other."""

    PROGRAM = """
import os, sys, time, trackers
def rows(n):
    for _ in range(n):
        run.log({"loss": run.step / 7})
for line in sys.stdin:
    exec(line)
    print("done", flush=True)
"""

    def __init__(self, directory: Path, *, preload: Sequence[str] = forked.HELPERS, **environment: str) -> None:
        self.directory = directory
        self.errors = directory.parent / f"{directory.name}.stderr.txt"  # not on a disk that will be full
        with self.errors.open("wb") as errors_file:
            self.process = forked.Program(
                [sys.executable, "-c", self.PROGRAM],
                preload=preload,
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors_file,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            )

    def do(self, line: str) -> None:
        """Have it do something, and wait until it is done: nothing may raise."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        assert answer == "done", self.errors.read_text()

    def end(self) -> None:
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.errors.read_text()

    def said(self, words: str) -> int:
        """On how many lines of standard error ``words`` were said."""
        return sum(words in line for line in self.lines())

    def lines(self) -> list[str]:
        """The lines of its standard error."""
        return self.errors.read_text().splitlines()

    @property
    def run(self) -> RunDirectory:
        return RunDirectory(self.directory / "runs/p/r")

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()
