"""The commit that a Git repository is at, read from its files: no process is started, and nothing of it is believed."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

from trackers.support import confined
from trackers.support.interruption import pass_on, suppress
from trackers.support.redaction import mask_text

FILE_BYTES = 64 * 1024 * 1024
"""Maximum size of a file of a Git repository that is read; ``packed-refs`` has 60 bytes for each branch and tag."""
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


class ElsewhereError(ValueError):
    """What a directory's ``.git`` leads to is another directory's repository."""


def read(directory: str, notes: list[str]) -> dict[str, Any]:
    """Commit, branch, remote and root of the repository around ``directory``, read from its files; {} if none.

    The repository is data: references that lead out of it are ignored, and pipes and devices aren't read.

    Args:
        notes: gets a line, if the repository is another directory's.
    """
    for root in (Path(directory), *Path(directory).parents):
        if (root / ".git").exists():
            try:
                return {"root": str(root), **_head(*places(root), root.resolve())}
            except (OSError, ValueError) as error:
                pass_on(error)
                if isinstance(error, ElsewhereError):
                    notes.append(f"{error}: the run has no commit, branch or patch")
                return {}
    return {}


def places(root: Path) -> tuple[Path, Path]:
    """Where the repository of a work tree lies: what is its own, and what it shares with other work trees.

    ``.git`` may lead out of the directory only to a repository that names this one as its work tree, as those of
    worktrees and submodules do: who writes the directory can't write that.

    Raises:
        ElsewhereError: it is another directory's. OSError, ValueError: it can't be read.
    """
    dot_git, top = root / ".git", root.resolve()
    where = dot_git.resolve()
    if where.is_file():
        where = (dot_git.parent / _file(where).removeprefix("gitdir:").strip()).resolve()
    shared = (where / _file(where / "commondir").strip()).resolve() if (where / "commondir").exists() else where
    if shared not in (where, where.parent.parent) or not (_is_below(shared, top) or _names(where, top)):
        # Where it leads may be what a file of somebody else's has, so it isn't said.
        raise ElsewhereError(f"{dot_git} leads to a repository that doesn't name this directory as its work tree")
    for path in (place / name for place in {where, shared} for name in _ENTRIES):
        if path.is_symlink() and not _is_below(path.resolve(), shared) and not _is_below(path.resolve(), top):
            raise ElsewhereError(f"{path} leads out of its repository")
    return where, shared


_ENTRIES = ("HEAD", "config", "index", "info", "logs", "objects", "packed-refs", "refs", "objects/info", "objects/pack")


def _is_below(path: Path, top: Path) -> bool:
    return path == top or top in path.parents


def _names(where: Path, top: Path) -> bool:
    """Does a repository name a directory as its work tree?"""
    if (where / "gitdir").exists():
        return (where / _file(where / "gitdir").strip()).parent.resolve() == top
    named = (_setting(where / name, "[core]", "worktree") for name in ("config.worktree", "config"))
    return any((where / path).resolve() == top for path in named if path)


def _head(where: Path, shared: Path, top: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    head = _file(where / "HEAD").strip()
    if head.startswith("ref: "):
        reference = head.removeprefix("ref: ")
        if not (reference.startswith("refs/") and confined.is_inside(reference)):
            raise ValueError(f"no reference: {reference!r:.80}")
        if not any(_is_below((shared / reference).resolve(), place) for place in (shared, top)):
            raise ElsewhereError(f"{shared / reference} leads out of its repository")
        found["branch"] = mask_text(reference.removeprefix("refs/heads/"))
        commit = _reference(shared, reference)
    else:
        commit = head
    if _COMMIT.fullmatch(commit):
        found["commit"] = commit
    if url := _setting(shared / "config", '[remote "origin"]', "url"):
        # Credentials in the address stay out; a password may have any sign, "@" and "/" too.
        scheme, separator, rest = url.partition("://")
        login = re.match(r"\S*@(?=[\w\[])", rest) if separator else None
        found["remote"] = mask_text(scheme + separator + (rest[login.end() :] if login else rest))
    return found


def _file(path: Path) -> str:
    """A small file of a repository.

    Raises:
        OSError: it is no regular file, or a long one. UnicodeDecodeError: it is no text.
    """
    with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):  # a pipe or a device may have no end
            raise OSError(errno.EINVAL, "isn't a regular file", str(path))
        content = file.read(FILE_BYTES + 1)
    if len(content) > FILE_BYTES:
        raise OSError(errno.EFBIG, f"is longer than {FILE_BYTES:,} bytes", str(path))
    return content.decode()


def _reference(common: Path, reference: str) -> str:
    with suppress(OSError):
        return _file(common / reference).strip()
    with suppress(OSError):
        for line in _file(common / "packed-refs").splitlines():
            if line.endswith(" " + reference):
                return line.split(" ", 1)[0]
    return ""


def _setting(config: Path, section: str, name: str) -> str:
    inside = False
    for line in _file(config).splitlines() if config.exists() else []:
        text = line.strip()
        if text.startswith("["):
            inside = text == section
        elif inside and text.startswith(name):
            return text.partition("=")[2].strip().strip('"')
    return ""
