"""Where a user's own configuration, data, state and caches lie, by the XDG base directory specification.

https://specifications.freedesktop.org/basedir-spec/latest
"""

from __future__ import annotations

import os
from pathlib import Path

_DEFAULTS = {"CONFIG": ".config", "DATA": ".local/share", "STATE": ".local/state", "CACHE": ".cache"}
_NO_HOME = "/nonexistent"
"""The home of who has none, as in Debian's list of users: it can't be made, so nothing is read or kept there."""


def of(kind: str) -> Path:
    """The directory of ``trackers`` for a kind: CONFIG, DATA, STATE or CACHE.

    A relative ``XDG_…_HOME`` doesn't count, as the specification has it, nor does a relative home: it would be another
    directory for each one in which a command is given, with what somebody else may have put there.
    """
    named, home = os.environ.get(f"XDG_{kind}_HOME", ""), os.path.expanduser("~")
    if os.path.isabs(named):
        return Path(named, "trackers")
    return Path(home if os.path.isabs(home) else _NO_HOME, _DEFAULTS[kind], "trackers")
