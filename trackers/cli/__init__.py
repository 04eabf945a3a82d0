"""The command line: ``trackers`` and ``python -m trackers``."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the program. Bad input is one line on stderr: exit code 2 (wrong usage) or 1 (not found)."""
    _speak_utf8()
    from trackers.support import name_clash

    text = name_clash.complaint()
    if text:
        print(f"trackers: {text}", file=sys.stderr)
        if "took this one's place" in text:
            sys.exit(2)
    if "TRACKERS_AS_WANDB" in os.environ:  # this program delivers to W&B and reads from it: it needs the real one
        from trackers.as_wandb import uninstall

        uninstall()
    from trackers.cli.app import app
    from trackers.cli.common import run_program

    # A command makes many objects and ends: to look through those of the packages again and again takes a tenth of it.
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    run_program("trackers", app)


def _speak_utf8() -> None:
    """Start anew in Python's UTF-8 mode where the locale says ASCII: names of runs, and of their files, are UTF-8."""
    known = sys.getfilesystemencoding().lower() in ("utf-8", "utf8")
    if not known and not sys.flags.utf8_mode and os.name == "posix" and sys.executable:
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - itself
