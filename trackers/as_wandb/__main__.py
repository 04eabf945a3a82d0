"""``python -m trackers.as_wandb script.py …``: run a script that was written for W&B, unchanged.

The program is started anew by this Python, or found on PATH (``accelerate launch …``), with an environment in which it
and its child processes find this package under the name ``wandb``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from trackers.as_wandb import lasting
from trackers.as_wandb.replacement import SWITCH

USAGE = """usage: python -m trackers.as_wandb [PYTHON OPTIONS] SCRIPT [ARGUMENTS]
       python -m trackers.as_wandb -m MODULE [ARGUMENTS]
       python -m trackers.as_wandb PROGRAM [ARGUMENTS]     (torchrun, accelerate launch, ...)
       python -m trackers.as_wandb --install | --uninstall

Runs a script that was written for W&B with trackers answering `import wandb`, in child processes too.
--install makes every program of this Python environment do so while TRACKERS_AS_WANDB=1 is set."""


def main(arguments: list[str]) -> int:
    """Replace this process by the program; return only after --install, --uninstall and --help."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if arguments else 2
    if arguments[0] in ("--install", "--uninstall"):
        return lasting.install() if arguments[0] == "--install" else lasting.uninstall()
    os.environ[SWITCH] = "1"
    paths = [lasting.STARTUP, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    program = None if arguments[0].startswith("-") or os.path.exists(arguments[0]) else shutil.which(arguments[0])
    if program is not None:
        command = [program, *arguments[1:]]
    else:
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        command = [sys.executable, *flags, *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":  # there execv ends this process at once, and the shell goes on
        return subprocess.call(command)
    os.execv(command[0], command)  # noqa: S606 - the user's own program


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
