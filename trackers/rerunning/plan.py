"""What running a run again comes to, found out without writing or starting anything but questions to git."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trackers.analysis.diff import quote
from trackers.errors import NotFound, UsageError, examples
from trackers.journal import trust
from trackers.journal.run_directory import RunDirectory
from trackers.provenance import manifest as manifests
from trackers.provenance import packages, repository
from trackers.provenance.data import Digests
from trackers.provenance.manifest import DELETED, IMPORTED, File, Manifest
from trackers.provenance.places import ENDING, inside
from trackers.rerunning.lock import Lock, differences, lock
from trackers.support.redaction import MASK

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_ENTRY = re.compile(r"[A-Za-z_][\w.]{0,200}:[A-Za-z_][\w.]{0,200}")
_FLAG = re.compile(r"-[A-Za-z0-9]{1,20}|--check-hash-based-pycs")
OF_THE_RUN = frozenset(
    {"TRACKER_RUN_ID", "TRACKER_RESUME", "TRACKER_DIR", "TRACKER_RANK", "TRACKER_STORE_DIR", "TRACKER_CONFIG_FILE"}
)
"""Options that name the run itself, or where it lay: not those of a run that is made from it."""
CODE, BIN = "\0code/", "\0bin/"
"""Beginning of a command's word that is a path below the restored files, and of a program beside the interpreter."""
_PATHS = ("PYTHONPATH",)
_NOWHERE = {"<notebook>": "a notebook", "<python>": "a console, from standard input or by python -c"}
"""Programs that lie in no file."""


class Python(msgspec.Struct):
    """path: an interpreter. how: "current", "new" (an environment is made for it) or "given". differences: of its
    packages from the run's, where it is used as it is.
    """

    path: str
    how: str
    differences: list[str] = []


class Plan(msgspec.Struct):
    """How a run is run again.

    own: this user's trackers recorded it. repository: where its commit is; "" where its files come from the record
    alone. files: those that the record has and the commit hasn't. command: words behind the interpreter, see
    :func:`written`. cwd: from there; None where the run's own wasn't part of it. remarks: what
    isn't as it was, a line each.
    """

    manifest: Manifest
    directory: str
    own: bool
    repository: str
    files: list[File]
    python: Python
    lock: Lock
    command: list[str]
    cwd: str | None
    variables: dict[str, str]
    links: list[str]
    remarks: list[str]


class Wishes(msgspec.Struct, kw_only=True):
    """What the user asks for. repository: where the commit is. env: "auto", "new", "current" or an interpreter.
    snapshot: files of the record alone. links: paths below the root that are linked to. arguments: in the place of the
    run's; None: the run's. set: variables. starts: the command is to be started.
    """

    repository: str = ""
    env: str = "auto"
    snapshot: bool = False
    links: Sequence[str] = ()
    arguments: Sequence[str] | None = None
    set: dict[str, str] = {}
    attempt: int | None = None
    starts: bool = True
    root: str = ""


def plan(run: RunDirectory, wishes: Wishes) -> Plan:
    """Plan it.

    Raises:
        NotFound: the run has no record of its code, or its commit is nowhere. UsageError: it can't be run again so.
    """
    found = _recorded(run, wishes.attempt)
    info, left_out = trust.delivered(run)
    own = manifests.is_own(found) and not info.foreign and found.run == info.id and not trust.other_owner(run)
    remarks: list[str] = []
    where = _repository(found, wishes, own)
    files = _files(found, where, remarks)
    if not where and not any(file.kept for file in found.files):
        why = f"it was started in {_NOWHERE[found.program]}" if found.program in _NOWHERE else "no file was found"
        why += _cells(run, found)
        raise NotFound(f"run {found.run} has no code in its record: {examples(found.notes or [why])}")
    command = _command(found, wishes, files, remarks, _cells(run, found))
    cwd = _relative(found.cwd, found.root)
    if cwd is None:
        remarks.append(f"its working directory {found.cwd} isn't part of its code: it starts in an empty one")
    locked = lock(found)
    python = _python(found, wishes, own)
    if python.how != "current":
        remarks += locked.remarks
    if beside := [path for path in python_path(found) if path != found.root and not inside(path, found.root)]:
        remarks.append(f"imported from PYTHONPATH as it is now: {examples(beside, 3)}")
    variables = _variables(found, info.options if own else {}, wishes)
    if own and cwd is not None:
        remarks += _missing(found, wishes, where, command)
    if own:
        remarks += _other_data(found)
    if left_out:
        remarks.append(left_out.partition("; ")[0])
    remarks += found.notes
    return Plan(
        found, str(run.path), own, where, files, python, locked, command, cwd, variables, list(wishes.links), remarks
    )


def _recorded(run: RunDirectory, attempt: int | None) -> Manifest:
    try:
        return manifests.read(run, attempt)
    except NotFound as error:
        if type(error) is not NotFound:
            raise
        if any((run.path / manifests.name(n, ENDING)).exists() for n in (attempt, run.attempt()) if n):
            raise NotFound(f"{error} yet: its relay makes it a second after the start, if it lives") from None
        raise NotFound(
            f"{error} (TRACKER_CODE=n, or an earlier version): `trackers argv {run.path.name}` prints its command"
        ) from None


def _repository(found: Manifest, wishes: Wishes, own: bool) -> str:
    """A repository that has the run's commit; "" where the record alone is used."""
    commit = str(found.git.get("commit", ""))
    if wishes.snapshot or not commit:
        return ""
    if not _COMMIT.fullmatch(commit):
        raise NotFound(f"run {found.run} names no commit of its repository: --snapshot restores the recorded files")
    places = [wishes.repository] if wishes.repository else [*([found.root] if own else []), os.getcwd()]
    for place in dict.fromkeys(places):
        if os.path.isdir(place) and (top := _has(place, commit)):
            return top
    raise NotFound(
        f"commit {commit[:12]} is in no repository at {examples(places, 2)}: git fetch it there, name another clone "
        f"with --repo, or restore the {sum(file.kept for file in found.files)} recorded files alone with --snapshot"
    )


def _has(place: str, commit: str) -> str:
    """The top of the repository around a directory, if it has a commit; else ""."""
    try:
        top = os.fsdecode(repository.ask_around(place, "rev-parse", "--show-toplevel")).rstrip("\n")
        repository.ask_around(place, "cat-file", "-e", f"{commit}^{{commit}}")
    except (OSError, subprocess.SubprocessError):
        return ""
    return top


def _files(found: Manifest, where: str, remarks: list[str]) -> list[File]:
    """The files that are to be laid over the commit's."""
    committed: set[str] | None = None
    if where:
        try:
            listed = repository.ask_around(
                where, "ls-tree", "-r", "-z", "--name-only", str(found.git["commit"]), most=repository.NAMES_BYTES
            )
            committed = {os.fsdecode(name) for name in listed.split(b"\0")}
        except (OSError, subprocess.SubprocessError):
            committed = set()
    chosen = []
    for file in found.files:
        in_commit = committed is not None and file.path in committed and file.origin == IMPORTED
        if in_commit:
            continue
        if file.origin == DELETED and not where:
            continue
        if file.kept or file.link or file.origin == DELETED:
            chosen.append(file)
        if not file.kept and not file.link and file.origin != DELETED:
            remarks.append(f"{file.path} isn't restored: {file.why or 'it was not kept'}")
        elif file.why:
            remarks.append(f"{file.path}: {file.why}")
    if found.untracked:
        remarks.append(f"not kept, untracked: {examples(found.untracked, 5)} (TRACKER_CODE_UNTRACKED)")
    if not where and found.git.get("commit"):
        remarks.append(f"only the recorded files of commit {str(found.git.get('commit', '?'))[:12]} are restored")
    return chosen


def _cells(run: RunDirectory, found: Manifest) -> str:
    """Where the cells of a notebook are, as the end of a message; "" where there are none."""
    path = run.path / f"notebook-{found.attempt}.py"
    return f"; the cells that ran are in {path}" if path.is_file() else ""


def _command(found: Manifest, wishes: Wishes, files: list[File], remarks: list[str], cells: str) -> list[str]:
    if where := _NOWHERE.get(found.program):
        if not wishes.starts:
            return []
        raise UsageError(
            f"run {found.run} was started in {where}: there is no command that does it again; --no-start restores its "
            f"code and environment{cells}"
        )
    arguments = list(found.argv if wishes.arguments is None else wishes.arguments)
    if wishes.arguments is None and wishes.starts and (hidden := [word for word in arguments if MASK in word]):
        raise UsageError(
            f"run {found.run}: {examples(map(repr, hidden), 2)} stands for a secret that wasn't recorded: give all "
            "arguments again, behind --"
        )
    if any(flag.startswith("-i") for flag in found.flags) or not all(map(_is_flag, found.flags)):
        remarks.append(f"flags of the interpreter that are left out: {examples(found.flags)}")
        flags = []
    else:
        flags = found.flags
    program = _program(found)
    if found.ranks <= 1:
        return [*flags, *program, *arguments]
    if found.launcher is None or found.nodes > 1:
        if wishes.starts:
            on = f"{found.nodes} nodes" if found.nodes > 1 else f"{found.ranks} ranks"
            raise UsageError(
                f"run {found.run} ran on {on}, and its launcher isn't known as a command of one machine: --no-start "
                "restores code and environment, to start it there with your launcher"
            )
        return [*flags, *program, *arguments]
    return _launched(found, wishes, program)


def _is_flag(word: str) -> bool:
    return bool(_FLAG.fullmatch(word)) or word.startswith(("-X", "-W")) or not word.startswith("-")


def _program(found: Manifest) -> list[str]:
    if found.program.startswith("-m "):
        return ["-m", found.program[3:]]
    if (path := _relative(found.program, found.root)) is not None and not _is_script(found):
        return [CODE + path]
    if _is_script(found):
        return [BIN + os.path.basename(found.program)]
    raise UsageError(f"run {found.run}: its script {found.program} isn't part of its recorded code")


def _is_script(found: Manifest) -> bool:
    """Whether the program is one that a package installed beside the interpreter."""
    return os.path.dirname(found.program) == os.path.dirname(found.python) != ""


def _launched(found: Manifest, wishes: Wishes, program: list[str]) -> list[str]:
    assert found.launcher is not None
    words = list(found.launcher.argv)
    place = next((n for n, word in enumerate(words) if n > 1 and _names(found, word)), None)
    if place is None:
        raise UsageError(f"run {found.run}: its launcher's command line doesn't name its program: {' '.join(words)}")
    start = place - 1 if program[0] == "-m" and words[place - 1] in ("-m", "--module") else place
    named = [words[start], program[1]] if start < place else program
    behind = words[place + 1 :] if wishes.arguments is None else list(wishes.arguments)
    if wishes.arguments is None and any(MASK in word for word in words):
        raise UsageError(f"run {found.run}: {MASK} stands for a secret in its launcher's command line")
    return [*words[:start], *named, *behind]


def _names(found: Manifest, word: str) -> bool:
    if found.program.startswith("-m "):
        return word == found.program[3:]
    return os.path.normpath(os.path.join(found.launcher.cwd if found.launcher else "", word)) == found.program


def _relative(path: str, root: str) -> str | None:
    """A path from the root; None where it lies elsewhere."""
    if path == root:
        return "."
    if not inside(path, root) or ".." in Path(path).parts:
        return None
    return os.path.relpath(path, root)


def _python(found: Manifest, wishes: Wishes, own: bool) -> Python:
    if wishes.env not in ("auto", "new", "current"):
        path = os.path.abspath(os.path.expanduser(wishes.env))
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise UsageError(f"--env {wishes.env!r} is no interpreter: give its path, or auto, new, current")
        return Python(path, "given")
    other = [] if _same_python(found) else [f"Python {_version()}, not {found.python_version}"]
    if wishes.env != "new":
        here = [*other, *differences(found, packages.installed(), packages.origins())]
        if wishes.env == "current" or not here:
            return Python(sys.executable, "current", here)
    return Python(interpreter(found, own), "new")


def _version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _same_python(found: Manifest) -> bool:
    return found.python_version == _version()


def interpreter(found: Manifest, own: bool) -> str:
    """A Python of the run's version, 3.11 for 3.11.7.

    Raises:
        UsageError: there is none.
    """
    import shutil

    wanted = ".".join(found.python_version.split(".")[:2])
    if not re.fullmatch(r"3\.\d{1,3}", wanted):
        raise UsageError(f"run {found.run} doesn't say its Python's version: --env current takes this one")
    if wanted == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    if own and found.python and os.access(found.python, os.X_OK):
        return found.python
    if shutil.which("uv"):
        return wanted
    path = shutil.which(f"python{wanted}")
    if path is None:
        raise UsageError(
            f"run {found.run} needs Python {wanted}, and there is no python{wanted} here: install it (uv brings it "
            "along), or take another with --env current or --env PATH"
        )
    return path


def python_path(found: Manifest) -> list[str]:
    """Directories of the run's PYTHONPATH, absolute."""
    words = found.variables.get("PYTHONPATH", "").split(os.pathsep)
    return [os.path.normpath(os.path.join(found.cwd, word)) for word in words if word and os.path.isabs(found.cwd)]


def _variables(found: Manifest, options: dict[str, object], wishes: Wishes) -> dict[str, str]:
    from trackers.configuration.kconfig import Tree

    variables = {name: text for name, text in found.variables.items() if name not in _PATHS}
    for symbol, declaration in Tree().declarations.items():
        value = options.get(symbol)
        if symbol in OF_THE_RUN or value is None or value == declaration.default or MASK in str(value):
            continue
        variables[symbol] = ("y" if value else "n") if isinstance(value, bool) else str(value)
    if wishes.root:
        variables["TRACKER_DIR"] = wishes.root
    return {**variables, **wishes.set}


READ_BYTES = 256 * 1024 * 1024
"""Maximum size of a file of data that is read to see whether it is the same."""


def _other_data(found: Manifest) -> list[str]:
    """Files of data whose digests were recorded and that aren't the same any more."""
    digests = Digests()
    other, unknown = [], []
    for file in found.data:
        if not file.digest:
            continue
        now = digests.of(file.path, READ_BYTES if os.path.exists(file.path) else None)
        if not now.digest and now.bytes == file.bytes and now.bytes:
            unknown.append(file.path)
        elif now.digest != file.digest:
            other.append(file.path if os.path.exists(file.path) else f"{file.path} (gone)")
    said = [f"other data than in the run: {examples(other, 5)}"] if other else []
    return [*said, *([f"too large to compare now: {examples(unknown, 3)}"] if unknown else [])]


def _missing(found: Manifest, wishes: Wishes, where: str, command: Sequence[str]) -> list[str]:
    """Paths among the arguments that are there in the run's directory and aren't part of its code."""
    kept = {file.path for file in found.files}
    gone = []
    for word in found.argv:
        path = word.partition("=")[2] or word
        if os.path.isabs(path) or path.startswith("-") or not path or len(path) > 1000:
            continue
        below = _relative(os.path.normpath(os.path.join(found.cwd, path)), found.root)
        if below in (None, ".") or below in kept or any(inside(str(below), link) for link in [*wishes.links]):
            continue
        if (
            below not in wishes.links
            and os.path.exists(os.path.join(found.root, str(below)))
            and not _committed(where, str(found.git.get("commit", "")), str(below))
        ):
            gone.append(str(below))
    if not gone:
        return []
    links = " ".join(f"--link {quote(path)}" for path in gone[:3])
    return [f"named in its arguments, and not part of its code: {examples(gone, 3)}; as they are now: {links}"]


def _committed(where: str, commit: str, path: str) -> bool:
    if not where:
        return False
    try:
        repository.ask_around(where, "cat-file", "-e", f"{commit}:{path}")
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def written(found: Plan, code: str, python: str, beside: str) -> list[str]:
    """The command's words, for a directory of restored files and an interpreter.

    Args:
        beside: directory for a program that the interpreter's environment hasn't.
    """
    words = [python]
    for word in found.command:
        if word.startswith(CODE):
            word = os.path.join(code, word[len(CODE) :])
        elif word.startswith(BIN):
            name = word[len(BIN) :]
            word = os.path.join(os.path.dirname(python), name)
            if not os.path.exists(word) and _ENTRY.fullmatch(found.manifest.entry):
                word = os.path.join(beside, name)
        words.append(word)
    return words
