"""The commit that a Git repository is at, read from its files: no process is started, and nothing of it is believed."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

from trackers.support import confined
from trackers.support.interruption import pass_on
from trackers.support.redaction import mask_text

FILE_BYTES = 64 * 1024 * 1024
"""Maximum size of a file of a Git repository that is read; ``packed-refs`` has 60 bytes for each branch and tag."""
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


def read(directory: str) -> dict[str, Any]:
    """Commit, branch, remote and root of the repository around ``directory``, read from its files; {} if none.

    The repository is data: references that lead out of it are ignored, and pipes and devices aren't read.
    """
    for root in (Path(directory), *Path(directory).parents):
        dot_git = root / ".git"
        if dot_git.exists():
            try:
                return {"root": str(root), **_head(dot_git)}
            except (OSError, ValueError) as error:
                pass_on(error)
                return {}
    return {}


def _head(dot_git: Path) -> dict[str, Any]:
    if dot_git.is_file():  # a worktree or submodule
        dot_git = (dot_git.parent / _file(dot_git).removeprefix("gitdir:").strip()).resolve()
    common = dot_git
    if (dot_git / "commondir").exists():
        common = (dot_git / _file(dot_git / "commondir").strip()).resolve()
    found: dict[str, Any] = {}
    head = _file(dot_git / "HEAD").strip()
    if head.startswith("ref: "):
        reference = head.removeprefix("ref: ")
        if not (reference.startswith("refs/") and confined.is_inside(reference)):
            raise ValueError(f"no reference: {reference!r:.80}")
        found["branch"] = reference.removeprefix("refs/heads/")
        commit = _reference(common, reference)
    else:
        commit = head
    if _COMMIT.fullmatch(commit):
        found["commit"] = commit
    remote = _remote(common / "config")
    if remote:
        found["remote"] = remote
    return found


def _file(path: Path) -> str:
    """A small file of a repository.

    Raises:
        OSError: it is no regular file, or a long one. UnicodeDecodeError: it is no text.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "isn't a regular file", str(path))
        content = file.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise OSError(errno.EFBIG, f"is longer than {FILE_BYTES:,} bytes", str(path))
    return content.decode()


def _reference(common: Path, reference: str) -> str:
    try:
        return _file(common / reference).strip()
    except OSError as error:
        pass_on(error)
    try:
        for line in _file(common / "packed-refs").splitlines():
            if line.endswith(" " + reference):
                return line.split(" ", 1)[0]
    except OSError as error:
        pass_on(error)
    return ""


def _remote(config: Path) -> str:
    in_origin = False
    for line in _file(config).splitlines() if config.exists() else []:
        text = line.strip()
        if text.startswith("["):
            in_origin = text == '[remote "origin"]'
        elif in_origin and text.startswith("url"):
            url = text.partition("=")[2].strip()
            # Credentials in the address stay out; a password may have any sign, "@" and "/" too.
            scheme, separator, rest = url.partition("://")
            login = re.match(r"\S*@(?=[\w\[])", rest) if separator else None
            return mask_text(scheme + separator + (rest[login.end() :] if login else rest))
    return ""
