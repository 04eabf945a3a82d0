"""A git repository as data: its commit, what isn't committed, which files it has.

No program that the repository or a submodule names is run, nothing is fetched for it, and files of other directories
aren't read for it.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

from trackers.support.interruption import pass_on
from trackers.support.redaction import mask_source

PATCH_BYTES = 1_000_000
GIT_S = 20.0
"""Maximum time that git may take, in seconds."""
NAMES_BYTES = 16 * 1024 * 1024
"""Maximum length of a list of files."""
_SHOWN = ("--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty", "--submodule=short")
# A git of its own would look at the commits of a submodule, with the programs that the submodule names.
_QUIET = ("-c", f"core.hooksPath={os.devnull}", "-c", "core.fsmonitor=false")


def state(root: str) -> dict[str, Any]:
    """``dirty`` and ``patch`` (against HEAD, up to 1 MB) of a repository; {} without git."""
    if not root:
        return {}
    try:
        diff = _compare(root, most=PATCH_BYTES)
    except (OSError, subprocess.SubprocessError) as error:
        pass_on(error)
        return {}
    changes: dict[str, Any] = {"dirty": bool(diff)}
    if diff:
        changes["patch"] = mask_source(diff[:PATCH_BYTES].decode("utf-8", "replace"))
    return changes


def changed_files(root: str) -> dict[str, str]:
    """Tracked files that differ from the commit, with git's letter: M, A, D, T; paths below ``root``.

    Raises:
        OSError: there is no git. SubprocessError: it failed, or the index names files of elsewhere.
    """
    words = _split(_compare(root, "--name-status", "--no-renames", "-z"))
    return dict(zip(words[1::2], words[::2], strict=False))


def _compare(root: str, *words: str, most: int | None = None) -> bytes:
    """What ``git diff`` says of the files against HEAD.

    Raises:
        OSError: there is no git. SubprocessError: it failed, or the index names files of elsewhere.
    """
    options = quiet(root)
    # Git opens each path of the index as it stands there: /etc/passwd and ../x too, where somebody wrote the index.
    for name in run_git(root, *options, "ls-files", "-z").split(b"\0")[:-1]:
        if not {b"", b".", b"..", b".git"}.isdisjoint(name.lower().split(b"/")):
            raise subprocess.SubprocessError("the index names files outside of the work tree")
    return run_git(root, *options, "diff", *_SHOWN, *words, "HEAD", most=most)


def untracked(root: str, *, whole: bool) -> list[str]:
    """Files that are neither tracked nor ignored.

    Args:
        whole: each file; else a folder that has nothing tracked is named itself, as ``folder/``.

    Raises:
        OSError: there is no git. SubprocessError: it failed.
    """
    more = () if whole else ("--directory",)
    listed = run_git(root, *quiet(root), "ls-files", "-z", "--others", "--exclude-standard", *more, most=NAMES_BYTES)
    return _split(listed[: listed.rfind(b"\0") + 1])


def submodules(root: str) -> dict[str, str]:
    """Paths of submodules, each with the commit that the repository's index has of it.

    Raises:
        OSError: there is no git. SubprocessError: it failed.
    """
    listed = run_git(root, *quiet(root), "ls-files", "-z", "--stage", most=NAMES_BYTES)
    lines = (line.partition("\t") for line in _split(listed[: listed.rfind(b"\0") + 1]) if line.startswith("160000 "))
    return {path: about.split()[1] for about, _, path in lines}


def _split(listed: bytes) -> list[str]:
    return [os.fsdecode(name) for name in listed.split(b"\0") if name]


def quiet(root: str) -> list[str]:
    """Options with which git runs nothing that the repository names."""
    return [*_QUIET, *_without_filters(root), "--no-optional-locks"]


def without_programs(root: str) -> list[str]:
    """Options with which git writes a work tree and runs nothing else: no hook, no monitor, and no filter, not even the
    user's own (git-lfs asks for what it fetches, and by which programs, in the repository)."""
    return [*_QUIET, "-c", "submodule.recurse=false", *_without_filters(root, every=True)]


def _without_filters(root: str, *, every: bool = False) -> list[str]:
    """Options that switch off the filters which the repository's own configuration defines (``git diff`` runs them on
    files that were changed), and all hooks by configuration (git from 2.54). Filters of the user's configuration
    (git-lfs) stay, unless ``every`` one is to go, or the repository's own names programs that they run."""
    asked = ("-z", "--name-only", "--get-regexp", "^(filter|lfs|hook)[.]")
    try:
        words = run_git(root, "config", "--show-scope", *asked).split(b"\0")
        scoped = list(zip(words[::2], words[1::2], strict=False))
        every = every or any(scope in _OWN_SCOPES and name.startswith(_LFS_PROGRAMS) for scope, name in scoped)
        names = [name for scope, name in scoped if every or scope in _OWN_SCOPES or name.startswith(b"hook.")]
    except subprocess.CalledProcessError as error:
        if error.returncode == 1:  # there are none
            return []
        try:
            names = run_git(root, "config", *asked).split(b"\0")  # git before 2.26: all of them
        except subprocess.CalledProcessError:
            return []
    programs = sorted({os.fsdecode(name).rpartition(".")[0] for name in names if name.startswith(tuple(_SWITCHED))})
    if any("=" in name for name in programs):  # an option can't name it
        raise subprocess.SubprocessError("a filter or hook that can't be switched off")
    switched = [f"{name}.{key}" for name in programs for key in _SWITCHED[os.fsencode(name.partition(".")[0])]]
    return [word for setting in switched for word in ("-c", setting)]


_SWITCHED = {b"filter": ("clean=", "smudge=", "process=", "required=false"), b"hook": ("enabled=false",)}
_OWN_SCOPES = (b"local", b"worktree")
_LFS_PROGRAMS = (b"lfs.extension.", b"lfs.customtransfer.", b"lfs.standalonetransferagent")


_ASKING_NOBODY = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}


def environment(root: str) -> dict[str, str]:
    """What git is started with, so that it fetches nothing and asks nobody."""
    return {
        **os.environ, **_ASKING_NOBODY,
        "GIT_WORK_TREE": os.path.abspath(root),  # the repository's own core.worktree may be anywhere
        "GIT_CEILING_DIRECTORIES": os.path.dirname(os.path.realpath(root)),  # one that git can't read isn't another's
    }  # fmt: skip


def run_git(root: str, *words: str, most: int | None = None) -> bytes:
    """Run git in a repository. Returns up to ``most`` bytes of its output.

    Raises:
        OSError: there is no git. SubprocessError: it failed, or took longer than :data:`GIT_S`.
    """
    return _run(["git", "-C", root, *words], environment(root), most)


def ask_around(folder: str, *words: str, most: int | None = None) -> bytes:
    """The same of the repository that a directory lies in, of what is committed there.

    Raises:
        OSError: there is no git. SubprocessError: it failed, took too long, or there is no repository.
    """
    env = {name: text for name, text in os.environ.items() if name not in ("GIT_WORK_TREE", "GIT_DIR")} | _ASKING_NOBODY
    return _run(["git", "-C", folder, *_QUIET, *words], env, most)


def _run(command: Sequence[str], env: dict[str, str], most: int | None) -> bytes:
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    ) as process:
        timer = threading.Timer(GIT_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            output = process.stdout.read(-1 if most is None else most)
            if most is not None and len(output) >= most:
                return output
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()
    if code:
        raise subprocess.CalledProcessError(code, command)
    return output
