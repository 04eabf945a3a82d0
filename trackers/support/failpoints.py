"""Named points at which a test makes the process die or fail: ``TRACKERS_FAILPOINT="delivery.commit.before=kill:3"``.

The form is ``name=action[:n]``, several joined by ";". The action happens at the n-th passing (default the first):
``kill`` sends SIGKILL to this process, ``raise`` raises OSError, ``hang`` stops for an hour. Without the variable
a point costs one comparison. Names may be globs. The passing of points is counted per process.
"""

from __future__ import annotations

import fnmatch
import os
import signal
import time

_plan: list[list[object]] = []


def failpoint(name: str) -> None:
    """Die, fail or hang here if the environment says so."""
    if _plan:
        _act(name)


def arm(text: str) -> None:
    """Set the plan of this process, as the environment variable would."""
    _plan.clear()
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        pattern, _, action = part.partition("=")
        verb, _, count = action.partition(":")
        if verb not in ("kill", "raise", "hang"):
            raise ValueError(f"failpoint action {verb!r}: known are kill, raise, hang")
        _plan.append([pattern, verb, int(count or 1)])


def _act(name: str) -> None:
    for entry in _plan:
        pattern, verb, left = entry
        assert isinstance(pattern, str)
        assert isinstance(left, int)
        if not fnmatch.fnmatchcase(name, pattern):
            continue
        entry[2] = left - 1
        if left != 1:
            continue
        if verb == "kill":
            os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        elif verb == "hang":
            time.sleep(3600)
        else:
            raise OSError(5, f"failpoint {name}")


if "TRACKERS_FAILPOINT" in os.environ:
    arm(os.environ["TRACKERS_FAILPOINT"])
