"""The command ``trackers-relay``: always this package's, whatever else is installed into the folder ``trackers``.

Another distribution brings a folder and a command of that name, too. The one that is installed last replaces
``trackers/__init__.py``, and the one that is uninstalled takes it away.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

CURE = "pip uninstall -y trackers trackers-relay && pip install trackers-relay"
MARK = "_MODULE_OF"
"""A name that ``trackers/__init__.py`` of this package has."""


def main() -> None:
    """Run the command line, or say why it can't be run."""
    spec = importlib.util.find_spec("trackers")  # doesn't import it: another one's may need what isn't here
    if spec is None or spec.origin is None:
        sys.exit(f"trackers-relay: trackers/__init__.py was removed, as by uninstalling the package 'trackers': {CURE}")
    if MARK not in Path(spec.origin).read_text("utf-8", "replace"):
        sys.exit(f"trackers-relay: another package 'trackers' (object tracking) took this one's place: {CURE}")
    from trackers.cli import main as program

    program()
