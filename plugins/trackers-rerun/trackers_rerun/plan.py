"""Plans to run a run again, made without writing or starting anything but queries to git."""

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
from trackers.provenance.manifest import DELETED, IMPORTED, Manifest, SourceFile
from trackers.provenance.paths import ENDING, is_below
from trackers.support.redaction import MASK
from trackers_rerun.lock import Lock, differences, lock

_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_ENTRY = re.compile(r"[A-Za-z_][\w.]{0,200}:[A-Za-z_][\w.]{0,200}")
_FLAG = re.compile(r"-[A-Za-z0-9]{1,20}|--check-hash-based-pycs")
OF_THE_RUN = frozenset(
    {
        "TRACKER_RUN_ID",
        "TRACKER_RESUME",
        "TRACKER_DIR",
        "TRACKER_RANK",
        "TRACKER_STORE_DIR",
        "TRACKER_CONFIG_FILE",
        "TRACKER_SWEEP_RUN",
    }
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


class RerunPlan(msgspec.Struct):
    """How a run is run again.

    own: this user's trackers recorded it. repository: where its commit is; "" where its files come from the record
    alone. files: those that the record has and the commit hasn't. command: words behind the interpreter, see
    :func:`command_words`. cwd: from there; None where the run's own wasn't part of it. remarks: what
    isn't as it was, a line each.
    """

    manifest: Manifest
    directory: str
    own: bool
    repository: str
    files: list[SourceFile]
    python: Python
    lock: Lock
    command: list[str]
    cwd: str | None
    variables: dict[str, str]
    links: list[str]
    remarks: list[str]


class RerunOptions(msgspec.Struct, kw_only=True):
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


def plan(run: RunDirectory, options: RerunOptions) -> RerunPlan:
    """Plan to run a run again.

    Raises:
        NotFound: the run has no record of its code, or its commit is nowhere. UsageError: it can't be run again so.
    """
    manifest = _recorded(run, options.attempt)
    info, left_out = trust.delivered(run)
    own = manifests.is_own(manifest) and not info.foreign and manifest.run == info.id and not trust.other_owner(run)
    remarks: list[str] = []
    where = _repository(manifest, options, own)
    files = _files(manifest, where, remarks)
    if not where and not any(file.kept for file in manifest.files):
        why = f"it was started in {_NOWHERE[manifest.program]}" if manifest.program in _NOWHERE else "no file was found"
        why += _cells(run, manifest)
        raise NotFound(f"run {manifest.run} has no code in its record: {examples(manifest.notes or [why])}")
    command = _command(manifest, options, files, remarks, _cells(run, manifest))
    cwd = _relative(manifest.cwd, manifest.root)
    if cwd is None:
        remarks.append(f"its working directory {manifest.cwd} isn't part of its code: it starts in an empty one")
    locked = lock(manifest)
    python = _python(manifest, options, own)
    if python.how != "current":
        remarks += locked.remarks
    if beside := [
        path for path in python_path(manifest) if path != manifest.root and not is_below(path, manifest.root)
    ]:
        remarks.append(f"imported from PYTHONPATH as it is now: {examples(beside, 3)}")
    variables = _variables(manifest, info.options if own else {}, options)
    if own and cwd is not None:
        remarks += _missing(manifest, options, where, command)
    if own:
        remarks += _other_data(manifest)
    if left_out:
        remarks.append(left_out.partition("; ")[0])
    remarks += manifest.notes
    return RerunPlan(
        manifest,
        str(run.path),
        own,
        where,
        files,
        python,
        locked,
        command,
        cwd,
        variables,
        list(options.links),
        remarks,
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


def _repository(manifest: Manifest, options: RerunOptions, own: bool) -> str:
    """A repository that has the run's commit; "" where the record alone is used."""
    commit = str(manifest.git.get("commit", ""))
    if options.snapshot or not commit:
        return ""
    if not _COMMIT.fullmatch(commit):
        raise NotFound(f"run {manifest.run} names no commit of its repository: --snapshot restores the recorded files")
    candidates = [options.repository] if options.repository else [*([manifest.root] if own else []), os.getcwd()]
    for directory in dict.fromkeys(candidates):
        if os.path.isdir(directory) and (top := _repository_with(directory, commit)):
            return top
    raise NotFound(
        f"commit {commit[:12]} is in no repository at {examples(candidates, 2)}: git fetch it there, name another "
        f"clone with --repo, or restore the {sum(file.kept for file in manifest.files)} recorded files alone with "
        "--snapshot"
    )


def _repository_with(directory: str, commit: str) -> str:
    """The root of the repository around a directory, if it has this commit; else ""."""
    try:
        top = os.fsdecode(repository.ask_around(directory, "rev-parse", "--show-toplevel")).rstrip("\n")
        repository.ask_around(directory, "cat-file", "-e", f"{commit}^{{commit}}")
    except (OSError, subprocess.SubprocessError):
        return ""
    return top


def _files(manifest: Manifest, where: str, remarks: list[str]) -> list[SourceFile]:
    """The files that are to be laid over the commit's."""
    committed: set[str] | None = None
    if where:
        try:
            listed = repository.ask_around(
                where, "ls-tree", "-r", "-z", "--name-only", str(manifest.git["commit"]), most=repository.NAMES_BYTES
            )
            committed = {os.fsdecode(name) for name in listed.split(b"\0")}
        except (OSError, subprocess.SubprocessError):
            committed = set()
    chosen = []
    for file in manifest.files:
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
    if manifest.untracked:
        remarks.append(f"not kept, untracked: {examples(manifest.untracked, 5)} (TRACKER_CODE_UNTRACKED)")
    if not where and manifest.git.get("commit"):
        remarks.append(f"only the recorded files of commit {str(manifest.git.get('commit', '?'))[:12]} are restored")
    return chosen


def _cells(run: RunDirectory, manifest: Manifest) -> str:
    """Where the cells of a notebook are, as the end of a message; "" where there are none."""
    path = run.path / f"notebook-{manifest.attempt}.py"
    return f"; the cells that ran are in {path}" if path.is_file() else ""


def _command(
    manifest: Manifest, options: RerunOptions, files: list[SourceFile], remarks: list[str], cells: str
) -> list[str]:
    if where := _NOWHERE.get(manifest.program):
        if not options.starts:
            return []
        raise UsageError(
            f"run {manifest.run} was started in {where}: there is no command that does it again; --no-start restores "
            f"its code and environment{cells}"
        )
    arguments = list(manifest.argv if options.arguments is None else options.arguments)
    if options.arguments is None and options.starts and (hidden := [word for word in arguments if MASK in word]):
        raise UsageError(
            f"run {manifest.run}: {examples(map(repr, hidden), 2)} stands for a secret that wasn't recorded: give all "
            "arguments again, behind --"
        )
    if any(flag.startswith("-i") for flag in manifest.flags) or not all(map(_is_flag, manifest.flags)):
        remarks.append(f"flags of the interpreter that are left out: {examples(manifest.flags)}")
        flags = []
    else:
        flags = manifest.flags
    program = _program(manifest)
    if manifest.ranks <= 1:
        return [*flags, *program, *arguments]
    if manifest.launcher is None or manifest.nodes > 1:
        if options.starts:
            on = f"{manifest.nodes} nodes" if manifest.nodes > 1 else f"{manifest.ranks} ranks"
            raise UsageError(
                f"run {manifest.run} ran on {on}, and its launcher isn't known as a command of one machine: --no-start "
                "restores code and environment, to start it there with your launcher"
            )
        return [*flags, *program, *arguments]
    return _launched(manifest, options, program)


def _is_flag(word: str) -> bool:
    return bool(_FLAG.fullmatch(word)) or word.startswith(("-X", "-W")) or not word.startswith("-")


def _program(manifest: Manifest) -> list[str]:
    if manifest.program.startswith("-m "):
        return ["-m", manifest.program[3:]]
    if (path := _relative(manifest.program, manifest.root)) is not None and not _is_script(manifest):
        return [CODE + path]
    if _is_script(manifest):
        return [BIN + os.path.basename(manifest.program)]
    raise UsageError(f"run {manifest.run}: its script {manifest.program} isn't part of its recorded code")


def _is_script(manifest: Manifest) -> bool:
    """Whether the program is one that a package installed beside the interpreter."""
    return os.path.dirname(manifest.program) == os.path.dirname(manifest.python) != ""


def _launched(manifest: Manifest, options: RerunOptions, program: list[str]) -> list[str]:
    assert manifest.launcher is not None
    words = list(manifest.launcher.argv)
    index = next((n for n, word in enumerate(words) if n > 1 and _names(manifest, word)), None)
    if index is None:
        raise UsageError(f"run {manifest.run}: its launcher's command line doesn't name its program: {' '.join(words)}")
    start = index - 1 if program[0] == "-m" and words[index - 1] in ("-m", "--module") else index
    named = [words[start], program[1]] if start < index else program
    behind = words[index + 1 :] if options.arguments is None else list(options.arguments)
    if options.arguments is None and any(MASK in word for word in words):
        raise UsageError(f"run {manifest.run}: {MASK} stands for a secret in its launcher's command line")
    return [*words[:start], *named, *behind]


def _names(manifest: Manifest, word: str) -> bool:
    if manifest.program.startswith("-m "):
        return word == manifest.program[3:]
    return os.path.normpath(os.path.join(manifest.launcher.cwd if manifest.launcher else "", word)) == manifest.program


def _relative(path: str, root: str) -> str | None:
    """A path from the root; None where it lies elsewhere."""
    if path == root:
        return "."
    if not is_below(path, root) or ".." in Path(path).parts:
        return None
    return os.path.relpath(path, root)


def _python(manifest: Manifest, options: RerunOptions, own: bool) -> Python:
    if options.env not in ("auto", "new", "current"):
        path = os.path.abspath(os.path.expanduser(options.env))
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise UsageError(f"--env {options.env!r} is no interpreter: give its path, or auto, new, current")
        return Python(path, "given")
    other = [] if _same_python(manifest) else [f"Python {_version()}, not {manifest.python_version}"]
    if options.env != "new":
        here = [*other, *differences(manifest, packages.installed(), packages.origins())]
        if options.env == "current" or not here:
            return Python(sys.executable, "current", here)
    return Python(interpreter(manifest, own), "new")


def _version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _same_python(manifest: Manifest) -> bool:
    return manifest.python_version == _version()


def interpreter(manifest: Manifest, own: bool) -> str:
    """A Python of the run's version, 3.11 for 3.11.7.

    Raises:
        UsageError: there is none.
    """
    import shutil

    version = ".".join(manifest.python_version.split(".")[:2])
    if not re.fullmatch(r"3\.\d{1,3}", version):
        raise UsageError(f"run {manifest.run} doesn't say its Python's version: --env current takes this one")
    if version == f"{sys.version_info[0]}.{sys.version_info[1]}":
        return sys.executable
    if own and manifest.python and os.access(manifest.python, os.X_OK):
        return manifest.python
    if shutil.which("uv"):
        return version
    path = shutil.which(f"python{version}")
    if path is None:
        raise UsageError(
            f"run {manifest.run} needs Python {version}, and there is no python{version} here: install it (uv brings "
            "it along), or take another with --env current or --env PATH"
        )
    return path


def python_path(manifest: Manifest) -> list[str]:
    """Directories of the run's PYTHONPATH, absolute."""
    words = manifest.variables.get("PYTHONPATH", "").split(os.pathsep)
    return [
        os.path.normpath(os.path.join(manifest.cwd, word)) for word in words if word and os.path.isabs(manifest.cwd)
    ]


def _variables(manifest: Manifest, recorded: dict[str, object], options: RerunOptions) -> dict[str, str]:
    from trackers.configuration.kconfig import Tree

    variables = {name: text for name, text in manifest.variables.items() if name not in _PATHS and name.isidentifier()}
    for symbol, declaration in Tree().declarations.items():
        value = recorded.get(symbol)
        if symbol in OF_THE_RUN or value is None or value == declaration.default or MASK in str(value):
            continue
        variables[symbol] = ("y" if value else "n") if isinstance(value, bool) else str(value)
    if options.root:
        variables["TRACKER_DIR"] = options.root
    return {**variables, **options.set}


READ_BYTES = 256 * 1024 * 1024
"""Maximum size of a file of data that is read to see whether it is the same."""


def _other_data(manifest: Manifest) -> list[str]:
    """Files of data whose digests were recorded and that aren't the same any more."""
    digests = Digests()
    other, unknown = [], []
    for file in manifest.data:
        if not file.digest:
            continue
        now = digests.describe(file.path, READ_BYTES if os.path.exists(file.path) else None)
        if not now.digest and now.bytes == file.bytes and now.bytes:
            unknown.append(file.path)
        elif now.digest != file.digest:
            other.append(file.path if os.path.exists(file.path) else f"{file.path} (gone)")
    remarks = [f"other data than in the run: {examples(other, 5)}"] if other else []
    return [*remarks, *([f"too large to compare now: {examples(unknown, 3)}"] if unknown else [])]


def _missing(manifest: Manifest, options: RerunOptions, where: str, command: Sequence[str]) -> list[str]:
    """Paths among the arguments that are there in the run's directory and aren't part of its code."""
    recorded = {file.path for file in manifest.files}
    gone = []
    for argument in manifest.argv:
        path = argument.partition("=")[2] or argument
        if os.path.isabs(path) or path.startswith("-") or not path or len(path) > 1000:
            continue
        below = _relative(os.path.normpath(os.path.join(manifest.cwd, path)), manifest.root)
        if below in (None, ".") or below in recorded or any(is_below(str(below), link) for link in [*options.links]):
            continue
        if (
            below not in options.links
            and os.path.exists(os.path.join(manifest.root, str(below)))
            and not _committed(where, str(manifest.git.get("commit", "")), str(below))
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


def command_words(planned: RerunPlan, code: str, python: str, beside: str) -> list[str]:
    """The words of the command, for a directory of restored files and an interpreter.

    Args:
        beside: directory for a program that the interpreter's environment hasn't.
    """
    words = [python]
    for word in planned.command:
        if word.startswith(CODE):
            word = os.path.join(code, word[len(CODE) :])
        elif word.startswith(BIN):
            name = word[len(BIN) :]
            word = os.path.join(os.path.dirname(python), name)
            if not os.path.exists(word) and _ENTRY.fullmatch(planned.manifest.entry):
                word = os.path.join(beside, name)
        words.append(word)
    return words
