"""A run's files in a directory of their own: a work tree of its commit, with what the record has laid over it."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
from pathlib import Path

from trackers.errors import Damaged, NotFound, UsageError
from trackers.journal.run_directory import RunDirectory
from trackers.provenance import repository
from trackers.provenance.manifest import DELETED, Archive, SourceFile
from trackers.provenance.snapshot import masked
from trackers.support import confined, git_head, user_directories
from trackers_rerun.plan import RerunPlan

CODE, WORK = "code", "work"
"""Folders: the restored files; the working directory of a run whose own wasn't part of them."""
_HIDDEN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")


def directory_for(run: str, chosen: Path | None) -> Path:
    """The directory for a run's files, which doesn't exist yet.

    Raises:
        UsageError: what was given is there already.
    """
    if chosen is not None:
        if os.path.lexists(chosen):
            raise UsageError(f"--into {chosen} is there already: name a directory that isn't")
        return chosen.absolute()
    base = cache() / "reruns"
    number = 1
    while os.path.lexists(base / f"{run}-{number}"):
        number += 1
    return base / f"{run}-{number}"


def make(run: str, chosen: Path | None) -> Path:
    """Make that directory; another process may choose the same name at the same time.

    Raises:
        UsageError: it can't be made.
    """
    for _ in range(100):
        into = directory_for(run, chosen)
        try:
            into.parent.mkdir(parents=True, exist_ok=True) if chosen else confined.make_private(into.parent)
            into.mkdir(mode=0o700)
        except FileExistsError as error:
            if chosen is not None:
                raise UsageError(f"{into} can't be made: {error.strerror}") from None
        except OSError as error:
            raise UsageError(f"{into} can't be made: {error.strerror}") from None
        else:
            return into
    raise UsageError(f"{cache() / 'reruns'} can't be written")


def cache() -> Path:
    """The directory for what can be made again."""
    return user_directories.of("CACHE")


def restore(plan: RerunPlan, into: Path) -> list[str]:
    """Fill a new directory with a run's files; one that is half filled is removed.

    Returns:
        what isn't as it was, a line each.

    Raises:
        UsageError: it can't be made, or git refuses. Damaged: the record isn't what was recorded.
    """
    code = into / CODE
    try:
        if plan.repository:
            _work_tree(plan.repository, code, str(plan.manifest.git["commit"]))
            remarks = [*_submodules(plan, code), *_pointers(code)]
        else:
            code.mkdir()
            remarks = []
        remarks += _lay(plan, code)
        remarks += _link(plan, code)
        if plan.cwd is None:
            (into / WORK).mkdir()
        else:
            _folder(code, plan.cwd)
    except BaseException as error:
        remove(plan, into)
        if isinstance(error, OSError):
            raise UsageError(f"the run's files can't be written below {into}: {error}") from None
        raise
    return remarks


def remove(plan: RerunPlan, into: Path) -> None:
    """Remove a directory that :func:`restore` made, and what the repository knows of it."""
    shutil.rmtree(into, ignore_errors=True)
    if plan.repository:
        with contextlib.suppress(UsageError):
            git(plan.repository, "worktree", "prune")


def _work_tree(repository_: str, code: Path, commit: str) -> None:
    git(repository_, "worktree", "add", "--detach", "--quiet", "--force", str(code), commit)


def git(root: str, *words: str) -> None:
    """Have git do something in the user's repository; no program is run, and nothing fetched, for what it says.

    Raises:
        UsageError: it failed.
    """
    env = {name: text for name, text in repository.environment(root).items() if name not in _HIDDEN}
    try:
        command = ["git", "-C", root, *repository.without_programs(root), *words]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", env=env, check=False
        )
    except OSError as error:
        raise UsageError(f"git can't be started: {error.strerror}") from None
    except subprocess.SubprocessError as error:
        raise UsageError(f"git in {root}: {error}: the repository's configuration names programs") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise UsageError(f"git {' '.join(words[:2])} in {root}: {lines[-1]}")


def _submodules(plan: RerunPlan, code: Path) -> list[str]:
    remarks = []
    for path, commit in plan.manifest.submodules.items():
        if not confined.is_inside(path):
            continue
        here = os.path.join(plan.repository, path)
        try:
            if not os.path.lexists(os.path.join(here, ".git")) or os.path.islink(here):
                raise UsageError("it isn't checked out")
            git_head.places(Path(here))  # its .git may lead to a repository of another directory
            repository.ask_around(here, "cat-file", "-e", f"{commit}^{{commit}}")
            git(here, "worktree", "add", "--detach", "--quiet", "--force", str(code / path), commit)
        except (OSError, ValueError, subprocess.SubprocessError):
            remarks.append(
                f"submodule {path} isn't restored: {here} hasn't its commit {commit[:12]} "
                "(git submodule update --init there)"
            )
    return remarks


def _pointers(code: Path) -> list[str]:
    """Says which files git-lfs would have filled: filters don't run."""
    try:
        listed = repository.ask_around(str(code), "ls-files", "-z", ":(attr:filter=lfs)").split(b"\0")[:-1]
    except (OSError, subprocess.SubprocessError):
        return []
    if not listed:
        return []
    return [f"{len(listed):,} files are git-lfs's pointers, as {os.fsdecode(listed[0])}: git -C {code} lfs pull"]


def _lay(plan: RerunPlan, code: Path) -> list[str]:
    """Lay the record's files over those that are there."""
    archive = Archive(RunDirectory(plan.directory), plan.manifest)
    remarks = []
    for file in plan.files:
        target = code / file.path
        try:
            if file.origin == DELETED:
                with contextlib.suppress(FileNotFoundError):
                    confined.remove(target, root=code)
            elif file.link:
                remarks += _lay_link(file, target, code)
            elif file.kept:
                remarks += _lay_file(file, archive.read(file), target, code)
        except OSError as error:
            raise Damaged(f"{file.path} can't be restored: {error.strerror}") from None
    return remarks


def _lay_file(file: SourceFile, content: bytes, target: Path, code: Path) -> list[str]:
    present = b""
    with contextlib.suppress(OSError):
        present = confined.read(target, root=code)
    if file.masked:
        content, lost = unmasked(content, present, file.masked)
    else:
        lost = []
    if content != present or not target.exists():
        _folder(code, os.path.dirname(file.path))
        confined.write_whole(target, content, root=code, mode=0o777 if file.executable else 0o666)
    if not lost:
        return []
    return [f"{file.path}:{lost[0]}: *** stands for a secret that wasn't recorded"]


def unmasked(content: bytes, committed: bytes, lines: list[int]) -> tuple[bytes, list[int]]:
    """A file with those masked lines put back that are the same in the committed one; numbers of the others."""
    if masked(committed)[0] == content:
        return committed, []
    known = {masked(line)[0]: line for line in committed.split(b"\n")}
    restored, lost = content.split(b"\n"), []
    for number in lines:
        if 0 < number <= len(restored) and restored[number - 1] in known:
            restored[number - 1] = known[restored[number - 1]]
        else:
            lost.append(number)
    return b"\n".join(restored), lost


def _lay_link(file: SourceFile, target: Path, code: Path) -> list[str]:
    whole = os.path.normpath(os.path.join(os.path.dirname(file.path), file.link))
    # Behind a name, which may be a link, ".." leads to another place than it reads.
    named = itertools.dropwhile(lambda part: part in ("", os.curdir, os.pardir), file.link.split("/"))
    if os.path.isabs(file.link) or whole.startswith(os.pardir) or os.pardir in named or "\0" in file.link:
        return [f"{file.path} isn't restored: it is a link to {file.link}, outside of the code"]
    _folder(code, os.path.dirname(file.path))
    with contextlib.suppress(FileNotFoundError):
        confined.remove(target, root=code)
    os.symlink(file.link, target)
    return []


def _link(plan: RerunPlan, code: Path) -> list[str]:
    """Link what the user asked for to where it lies in the run's own directory."""
    remarks = []
    for path in plan.links:
        path = os.path.normpath(path)
        origin = os.path.join(plan.manifest.root, path)
        if not confined.is_inside(path) or not os.path.exists(origin):
            raise NotFound(f"--link {path}: there is no {origin}")
        target = code / path
        if os.path.lexists(target):
            remarks.append(f"--link {path}: it is part of the code, and stays")
            continue
        _folder(code, os.path.dirname(path))
        os.symlink(origin, target)
    return remarks


def add_entry(plan: RerunPlan, words: list[str], into: Path) -> None:
    """Write the program that a package would install, where the command names one that the environment hasn't.

    That is so for packages in editable form: their files are imported, and not installed.
    """
    module, _, function = plan.manifest.entry.partition(":")
    for word in words:
        path = Path(word)
        if path.parent == into and not path.exists():
            call = f"import sys\nfrom {module} import {function.partition('.')[0]}\n\nsys.exit({function}())\n"
            path.write_text(call, encoding="utf-8")


def _folder(code: Path, path: str) -> None:
    if path and path != ".":
        confined.make_folder(code / path, root=code)
