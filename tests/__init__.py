"""Tests, in the package's own folders; stand-ins for what can't be had here in ``fakes``."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout."""
LOGS = ROOT / "plugins/trackers-console-logs/tests/logs"
"""Console logs of real trainings."""
