"""Environment of a run: git state, packages, machine. Gathered outside of the training process, because it is slow."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from typing import Any

from trackers.hardware import host
from trackers.journal.run_directory import RunDirectory
from trackers.support import confined
from trackers.support.redaction import mask_source
from trackers.tracker import RunInfo

PATCH_BYTES = 1_000_000


def gather(info: RunInfo) -> dict[str, Any]:
    """Nested values for an Environment record; what can't be found out is absent."""
    values: dict[str, Any] = {
        "host": info.host,
        "os": platform.platform(),
        "python": platform.python_version(),
        "executable": info.python,
        "cpu_count": os.cpu_count() or 0,
        "packages": packages(),
        **host.gpus(),
    }
    values["git"] = {**info.git, **git_state(info.git.get("root", ""))} if info.git else {}
    return values


def keep_patch(values: dict[str, Any], run: RunDirectory, attempt: int) -> None:
    """Move the patch out of the values into a file of the run that only its owner may read, and name that instead."""
    patch = values.get("git", {}).pop("patch", None)
    if patch is None:
        return
    path = run.path / f"git-{attempt}.patch"
    try:
        with os.fdopen(confined.open_fd(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(patch.encode("utf-8", "replace"))
    except OSError:  # a full disk: training's records come first
        return
    values["git"]["patch_file"] = path.name


def packages() -> dict[str, str]:
    """Installed distributions and their versions, sorted by name."""
    found = {}
    for distribution in metadata.distributions():
        name = distribution.metadata["Name"] if distribution.metadata else None
        if name:
            found[name] = distribution.version
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))


def git_state(root: str) -> dict[str, Any]:
    """``dirty`` and ``patch`` (against HEAD, up to 1 MB) of a repository; {} without git.

    A repository is data: no program that it names itself is run, and nothing is fetched for it.
    """
    if not root:
        return {}
    try:
        quiet = ["-c", "core.fsmonitor=false", *_without_filters(root), "--no-optional-locks"]
        shown = ["--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty"]
        diff = _git(root, *quiet, "diff", *shown, "HEAD")
    except (OSError, subprocess.SubprocessError):
        return {}
    state: dict[str, Any] = {"dirty": bool(diff)}
    if diff:
        state["patch"] = mask_source(diff[:PATCH_BYTES].decode("utf-8", "replace"))
    return state


def _without_filters(root: str) -> list[str]:
    """Options that switch off the filters which the repository's own configuration defines: ``git diff`` runs them on
    files that were changed. Those of the user's configuration (git-lfs) stay."""
    asked = ("-z", "--name-only", "--get-regexp", "^filter[.]")
    try:
        found = _git(root, "config", "--show-scope", *asked).split(b"\0")
        names = [name for scope, name in zip(found[::2], found[1::2], strict=False) if scope in _OWN_SCOPES]
    except subprocess.CalledProcessError as error:
        if error.returncode == 1:  # there are none
            return []
        try:
            names = _git(root, "config", *asked).split(b"\0")  # git before 2.26: all of them
        except subprocess.CalledProcessError:
            return []
    filters = sorted({os.fsdecode(name).rpartition(".")[0] for name in names if name})
    if any("=" in name for name in filters):  # an option can't name it
        raise subprocess.SubprocessError("a filter that can't be switched off")
    switched = [f"{name}.{key}" for name in filters for key in ("clean=", "smudge=", "process=", "required=false")]
    return [word for setting in switched for word in ("-c", setting)]


_OWN_SCOPES = (b"local", b"worktree")


def _git(root: str, *words: str) -> bytes:
    return subprocess.run(
        ["git", "-C", root, *words],  # noqa: S607 - the user's own git
        capture_output=True, timeout=20, check=True, stdin=subprocess.DEVNULL,
        env={**os.environ, "GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"},
    ).stdout  # fmt: skip
