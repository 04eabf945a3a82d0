"""All benchmarks, one after the other, each in a process of its own: ``python -m benchmarks [--quick] [--json]``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAMES = ("log_call", "startup", "training_step", "delivery_rate", "sampling", "log_reading", "analysis",
         "plotting", "reading", "copying", "ranks", "nodes", "instruments", "inspection", "file_trackers",
         "console_capture", "finishing", "crowd", "sweep", "ui", "lake")  # fmt: skip
MORE = {"sweep": ("--runs", "60")}
"""Options of a benchmark that would take the longest: 60 runs say what a thousand do."""


def main(arguments: list[str]) -> int:
    """Run them; 1 if any bound is missed."""
    here = Path(__file__).parent
    codes = [subprocess.run([sys.executable, str(here / f"{name}.py"), *arguments, *MORE.get(name, ())], check=False)
             .returncode for name in NAMES]  # fmt: skip
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
