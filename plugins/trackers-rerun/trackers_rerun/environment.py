"""An environment with a run's packages: made once for each set of them, and kept for the next rerun."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from trackers.errors import UsageError
from trackers_rerun.plan import RerunPlan
from trackers_rerun.restore import cache

WHOLE = "trackers-lock.txt"
"""A file of an environment that is complete: its requirements."""


def environment(plan: RerunPlan, say: Callable[[str], None]) -> str:
    """The interpreter for a run: the one that was chosen, or that of a new environment with the run's packages.

    Raises:
        UsageError: the environment can't be made; it names the installer's last words.
    """
    if plan.python.how != "new":
        return plan.python.path
    directory = where(plan)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive(directory.with_suffix(".lock")):
        if (directory / WHOLE).is_file():
            say(f"environment: {directory}, made before")
            return str(directory / "bin" / "python")
        shutil.rmtree(directory, ignore_errors=True)
        say(f"environment: {len(plan.lock.lines)} requirements into {directory}")
        try:
            _make(plan, directory)
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
    return str(directory / "bin" / "python")


def where(plan: RerunPlan) -> Path:
    """Where the environment for a plan lies, or will."""
    content = "\n".join([plan.python.path, plan.manifest.python_version.rpartition(".")[0], *plan.lock.lines])
    return cache() / "environments" / hashlib.sha256(content.encode()).hexdigest()[:16]


def _make(plan: RerunPlan, directory: Path) -> None:
    uv = shutil.which("uv")
    if uv:
        _run([uv, "venv", "--quiet", "--python", plan.python.path, str(directory)])
        install = [uv, "pip", "install", "--quiet", "--python", str(directory / "bin" / "python"), "--no-deps"]
        install += ["--index-strategy", "unsafe-best-match"]
    else:
        _run([plan.python.path, "-m", "venv", str(directory)])
        install = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        install += ["--disable-pip-version-check", "--no-input"]
    requirements = directory / "requirements.txt"
    requirements.write_text(plan.lock.text(plan.manifest))
    if plan.lock.lines:
        _run([*install, "-r", str(requirements)], "uv" if uv else "pip")
    os.replace(requirements, directory / WHOLE)


def _run(command: list[str], name: str = "") -> None:
    """Run a command, in ``/``: Python and uv take modules and settings from the current directory."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
            cwd=os.path.abspath(os.sep),
        )  # fmt: skip
    except OSError as error:
        raise UsageError(f"{command[0]} can't be started: {error.strerror}") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith(("error", "×", "╰", "├"))] or lines[-1:]
        message = " ".join(errors[:3]) or f"exit code {done.returncode}"
        name = name or os.path.basename(command[0])
        raise UsageError(
            f"the environment can't be made: {name} said: {message[:500]}; --env current takes this Python as it is, "
            "--requirements prints what is asked for"
        )


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Wait while another process makes the same environment, and hold its lock."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
