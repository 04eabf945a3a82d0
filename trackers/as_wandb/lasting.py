"""A line in the environment's ``site-packages`` that answers ``import wandb`` while ``TRACKERS_AS_WANDB=1`` is set.

It is written only on request (``python -m trackers.as_wandb --install``), and does nothing while the variable isn't
set. ``.pth`` files are read when Python starts: https://docs.python.org/3/library/site.html.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

from trackers.as_wandb.replacement import SWITCH

STARTUP = str(Path(__file__).resolve().parent / "startup")
"""Directory whose ``sitecustomize`` does the same for a program that has it on PYTHONPATH."""

LINE = (
    f"import os; os.environ.get({SWITCH!r}, '').lower() in ('1', 'y', 'yes', 'true', 'on') and "
    "__import__('trackers.as_wandb').as_wandb.install_as_wandb()\n"
)


def path() -> Path:
    """Location of the ``.pth`` file; its name comes last, after editable installs."""
    return Path(sysconfig.get_paths()["purelib"]) / "zz-trackers-as-wandb.pth"


def install() -> int:
    """Write the file and say so. Returns an exit code."""
    file = path()
    try:
        file.write_text(LINE)
    except OSError as error:
        print(f"{file} can't be written: {error.strerror}")
        return 1
    print(f"wrote {file}: with {SWITCH}=1 set, `import wandb` gives trackers in every program of this environment.")
    print("Remove it with: python -m trackers.as_wandb --uninstall")
    return 0


def uninstall() -> int:
    """Remove the file and say so. Returns an exit code."""
    file = path()
    try:
        file.unlink()
    except FileNotFoundError:
        print(f"{file} isn't there: nothing to remove")
        return 0
    except OSError as error:
        print(f"{file} can't be removed: {error.strerror}")
        return 1
    print(f"removed {file}")
    return 0
