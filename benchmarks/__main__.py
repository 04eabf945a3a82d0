"""All benchmarks, one after the other, each in a process of its own: ``python -m benchmarks [--quick] [--json]``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NAMES = ("log_call", "startup", "training_step", "delivery_rate", "sampling", "log_reading", "analysis",
         "plotting", "reading", "copying", "ranks", "instruments", "inspection", "file_trackers")  # fmt: skip


def main(arguments: list[str]) -> int:
    """Run them; 1 if any bound is missed."""
    here = Path(__file__).parent
    codes = [subprocess.run([sys.executable, str(here / f"{name}.py"), *arguments], check=False).returncode
             for name in NAMES]  # fmt: skip
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
