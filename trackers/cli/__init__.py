"""The command line: ``trackers`` and ``python -m trackers``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the program. Bad input is one line on stderr: exit code 2 (wrong usage) or 1 (not found)."""
    from trackers import shadow

    text = shadow.complaint()
    if text:
        print(f"trackers: {text}", file=sys.stderr)
        if "took this one's place" in text:
            sys.exit(2)
    from trackers.cli.app import app
    from trackers.cli.common import printable
    from trackers.errors import NotFound, TrackersError

    try:
        app()
    except NotFound as error:
        print(f"trackers: {printable(str(error), 4096)}", file=sys.stderr)
        sys.exit(1)
    except TrackersError as error:
        print(f"trackers: {printable(str(error), 4096)}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)
