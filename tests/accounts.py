"""Programs of a second account: ``nobody``, who owns nothing and may read what everybody may.

The interpreter may lie where that account has no access (a home directory). Then the program runs where such a
directory is covered, by private mounts, with one that shows the interpreter alone.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import ROOT

ACCOUNT = "nobody"
_ENTER = """
set -eu
while [ "$1" != -- ]; do  # closed directory, what to show of it
    cover=$(mktemp -d -p "$COVERS"); chmod 755 "$cover"; mkdir "$cover/$2"
    mount --rbind "$1/$2" "$cover/$2"; mount --rbind "$cover" "$1"; shift 2
done
shift
exec runuser -u {account} -- env -i "$@"
"""


@functools.cache
def closed() -> dict[str, str]:
    """Directories above the interpreter and the package that others may not enter, and what is needed of each."""
    found: dict[str, str] = {}
    for path in map(os.path.realpath, (sys.executable, sys.prefix, sys.base_prefix, os.__file__, ROOT)):
        for above in reversed(Path(path).parents):
            if above.stat().st_mode & 0o001 == 0:
                found[str(above)] = Path(path).relative_to(above).parts[0]
                break
    return found


@functools.cache
def possible() -> bool:
    """Whether this process may start programs of the second account here."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0 or shutil.which("runuser") is None:
        return False
    if not closed():
        return True
    return bool(shutil.which("unshare")) and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0


def run(
    words: Sequence[str], directory: Path, place: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of the second account.

    Args:
        directory: where it runs. place: a directory that everybody may enter, for its home and for covers.
        environment: more variables.
    """
    home, covers = place / "home-of-nobody", place / "covers"
    covers.mkdir(exist_ok=True)
    if not home.is_dir():
        home.mkdir()
        shutil.chown(home, ACCOUNT)
    variables = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "WANDB_MODE": "offline",
                 "TRACKER_SAMPLE": "n", "TRACKER_AGENT": "n", **(environment or {})}  # fmt: skip
    hidden = [word for pair in closed().items() for word in pair]
    assignments = [f"{name}={value}" for name, value in variables.items()]
    enter = ["bash", "-c", _ENTER.format(account=ACCOUNT), "enter", *hidden, "--", *assignments, *words]
    return subprocess.run(
        ["unshare", "-m", *enter] if hidden else enter,
        cwd=directory, env={**os.environ, "COVERS": str(covers)}, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
