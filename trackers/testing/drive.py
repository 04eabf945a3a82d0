"""Deliver to one tracker in this process: ``python -m trackers.testing.drive JOB.json``.

Writes a line on standard output as each batch begins, its number and how long the one before took, so that whoever
started it can kill it there. What the vendor prints goes to standard error instead.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from trackers.testing.driver import DriverJob


def main(arguments: list[str]) -> None:
    """Carry out the job in the file that the only argument names."""
    job = msgspec.json.decode(Path(arguments[0]).read_bytes(), type=DriverJob)
    progress = os.dup(1)
    os.dup2(2, 1)

    def say(batch: int, previous_s: float) -> None:
        os.write(progress, f"{batch} {previous_s:.6f}\n".encode())

    job.run(say)


if __name__ == "__main__":
    main(sys.argv[1:])
