"""``trackers rerun``: a run is run again."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from trackers.cli import completion
from trackers.cli.common import AsJson, RunsDir, printable
from trackers.cli.roots import runs_root

if TYPE_CHECKING:
    from trackers_rerun.plan import RerunPlan

app = typer.Typer()


@app.command()
def rerun(
    run: Annotated[
        str,
        typer.Argument(metavar="RUN", help="A run by id, name, directory or latest.", autocompletion=completion.runs),
    ] = "",
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGUMENTS…]", help="Arguments in the place of the run's.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and write nothing.")] = False,
    trust: Annotated[
        bool, typer.Option("--trust", help="Also run the code of a run that your own trackers didn't record.")
    ] = False,
    into: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory for its files; default one in the user's cache.")
    ] = None,
    repo: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A clone that has its commit; default its own, then this one.")
    ] = None,
    snapshot: Annotated[
        bool, typer.Option("--snapshot", help="Restore the recorded files alone, without the repository.")
    ] = False,
    env: Annotated[
        str,
        typer.Option(
            metavar="auto|new|current|PYTHON",
            help="Its packages in an environment of their own (new), this Python as it is (current), or another one; "
            "auto: this one, if nothing differs.",
        ),
    ] = "auto",
    link: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Link to data in the run's own directory; repeatable."),
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="An environment variable; repeatable.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Which start of a run that was resumed; default the last.")
    ] = None,
    no_start: Annotated[
        bool, typer.Option("--no-start", help="Restore code and environment, and print the command.")
    ] = False,
    requirements: Annotated[
        bool, typer.Option("--requirements", help="Print its packages as requirements for pip or uv, and do nothing.")
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove what reruns left in the cache: directories and environments.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Carry --clean out; without it only print what would go.")] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Run a run again: its commit, its uncommitted files, its packages, its arguments, in a directory of their own.

    Your checkout stays as it is. The new run is logged where the old one was.

    Example: trackers rerun latest --dry-run; trackers rerun --clean --yes
    """
    from trackers.errors import UsageError
    from trackers.journal.naming import find_run
    from trackers.provenance.manifest import await_record
    from trackers_rerun import environment, leftovers, restore
    from trackers_rerun.lock import lock
    from trackers_rerun.plan import RerunOptions, plan

    if clean and (run or arguments):
        raise UsageError("--clean goes without a run: it removes what is left of all")
    if clean:
        _clean(yes, as_json)
    if not run:
        raise UsageError("which run? Name it, as in trackers rerun latest; `trackers ls` lists them")
    root = runs_root(directory)
    run_directory = find_run(run.removeprefix("run:"), root)
    await_record(run_directory)
    options = RerunOptions(
        repository=str(repo.absolute()) if repo is not None else "", env=env, snapshot=snapshot, links=link or [],
        arguments=arguments, set=_pairs(set_ or []), attempt=attempt, starts=not no_start and not requirements,
        root=str(run_directory.path.absolute().parent.parent),
    )  # fmt: skip
    if requirements:
        from trackers.provenance.manifest import read

        manifest = read(run_directory, attempt)
        sys.stdout.write("".join(f"{printable(line, 4096)}\n" for line in lock(manifest).text(manifest).splitlines()))
        return
    planned = plan(run_directory, options)
    if dry_run:
        _print_plan(planned, into, as_json)
        return
    if not planned.own and not trust:
        raise UsageError(
            f"run {planned.manifest.run} wasn't recorded by your own trackers, and to run it again runs its code: look "
            "at it with --dry-run, then add --trust"
        )
    restore.directory_for(planned.manifest.run, into)
    for line in [*planned.remarks, *planned.python.differences]:
        _print_message(line)
    python = environment.environment(planned, _print_message)
    target = restore.make(planned.manifest.run, into)
    in_use = [target, *([Path(python).parent.parent] if planned.python.how == "new" else [])]
    with leftovers.lock_directories(in_use) as descriptors:
        for line in restore.restore(planned, target):
            _print_message(line)
        _print_message(f"code: {target / restore.CODE}")
        command, variables, cwd = _started(planned, target, python)
        restore.add_entry(planned, command[1:], target)
        if no_start:
            print(_command_line(command, variables, cwd))
            return
        _print_message(f"starts: {_command_line(command, {}, cwd)}")
        code = _run(command, variables, cwd, descriptors)
    raise typer.Exit(code)


def _started(planned: RerunPlan, target: Path, python: str) -> tuple[list[str], dict[str, str], str]:
    """The command, the variables beside this process's own, and the working directory."""
    from trackers.provenance.paths import RERUN_OF, is_below
    from trackers_rerun import restore
    from trackers_rerun.plan import command_words, python_path

    manifest = planned.manifest
    code = str(target / restore.CODE)
    cwd = str(target / restore.WORK) if planned.cwd is None else os.path.normpath(os.path.join(code, planned.cwd))
    paths = [os.path.normpath(os.path.join(code, path)) for path in manifest.import_paths]
    for path in python_path(manifest):
        below = path == manifest.root or is_below(path, manifest.root)
        paths.append(os.path.normpath(os.path.join(code, os.path.relpath(path, manifest.root))) if below else path)
    for path in planned.lock.beside if planned.python.how == "new" else []:
        paths += [os.path.join(path, "src"), path] if os.path.isdir(os.path.join(path, "src")) else [path]
    variables = {**planned.variables, RERUN_OF: f"{manifest.run}.{manifest.attempt}"}
    paths += [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path]  # by --set
    if paths:
        variables["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return command_words(planned, code, python, str(target)), variables, cwd


def _clean(yes: bool, as_json: bool) -> NoReturn:
    """Remove what reruns left, or say what would go."""
    from trackers.analysis.tables import format_size
    from trackers_rerun import leftovers

    entries, left = [], False
    for leftover in leftovers.leftovers():
        if leftover.used:
            state = "stays: it is used now"
        elif not yes:
            state = "to remove"
        else:
            state = "removed" if leftovers.remove(leftover) else "stays: it can't be removed"
            left = left or state != "removed"
        entries.append({"path": str(leftover.path), "kind": leftover.kind, "bytes": leftover.bytes, "state": state})
        if not as_json:
            print(f"{printable(str(leftover.path), 2000)}  {format_size(leftover.bytes)}  {state}")
    if as_json:
        print(json.dumps(entries, indent=2))
    elif not entries:
        print("nothing is left of reruns")
    elif not yes:
        print("nothing was changed; add --yes to do it")
    raise typer.Exit(int(left))


def _run(command: list[str], variables: dict[str, str], cwd: str, descriptors: list[int]) -> int:
    """Start the command and wait; its exit code, as a shell has it. descriptors: those that it inherits."""
    from trackers.errors import UsageError

    env = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        process = subprocess.Popen(command, cwd=cwd, env={**env, **variables}, pass_fds=descriptors)
    except (OSError, ValueError) as error:
        raise UsageError(f"{command[0]} can't be started: {error}") from None
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the program, too
    try:
        signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def _pairs(words: list[str]) -> dict[str, str]:
    from trackers.errors import UsageError

    pairs = [word.partition("=") for word in words]
    wrong = [
        word for word, (name, equals, _) in zip(words, pairs, strict=True) if not equals or not name.isidentifier()
    ]
    if wrong:
        raise UsageError(f"--set {wrong[0]!r}: give NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _command_line(command: list[str], variables: dict[str, str], cwd: str) -> str:
    from trackers.analysis.diff import quote

    named = [f"{name}={quote(text)}" for name, text in variables.items()]
    return f"cd {quote(cwd)} && {' '.join([*named, *map(quote, command)])}"


def _print_plan(planned: RerunPlan, into: Path | None, as_json: bool) -> None:
    from trackers.errors import examples
    from trackers_rerun import environment, restore

    manifest = planned.manifest
    target = restore.directory_for(manifest.run, into)
    python = planned.python.path
    if planned.python.how == "new":
        python = str(environment.where(planned) / "bin" / "python")
    command, variables, cwd = _started(planned, target, python)
    if as_json:
        described: dict[str, Any] = {
            "run": manifest.run, "attempt": manifest.attempt, "own": planned.own, "repository": planned.repository,
            "commit": manifest.git.get("commit", "") if planned.repository else "", "code": str(target / restore.CODE),
            "files": [{"path": file.path, "origin": file.origin} for file in planned.files],
            "environment": planned.python.how, "differences": planned.python.differences,
            "requirements": planned.lock.lines, "command": command, "variables": variables, "cwd": cwd,
            "remarks": planned.remarks,
        }  # fmt: skip
        print(json.dumps(described, indent=2))
        return
    commit = str(manifest.git.get("commit", ""))[:12]
    source = f"commit {commit} of {planned.repository}" if planned.repository else "the recorded files alone"
    rows = [("run", f"{manifest.run}, attempt {manifest.attempt}"), ("code", f"{source}, into {target / restore.CODE}")]
    for origin in ("changed", "untracked", "imported", "deleted"):
        if paths := [file.path for file in planned.files if file.origin == origin]:
            rows.append((origin, examples(paths, 8)))
    if planned.python.how == "new":
        state = (
            "there already" if Path(environment.where(planned)).is_dir() else f"{len(planned.lock.lines)} requirements"
        )
        rows.append(("packages", f"Python {manifest.python_version}, {state}, in {environment.where(planned)}"))
    elif planned.python.how == "given":
        rows.append(("packages", f"those of {python}, as they are"))
    else:
        differ = len(planned.python.differences)
        rows.append(("packages", f"this Python's: {'the same' if not differ else f'{differ} differences'}"))
        rows += [("", line) for line in planned.python.differences[:20]]
    rows.append(("directory", cwd))
    rows += [("variable" if not n else "", f"{name}={text}") for n, (name, text) in enumerate(variables.items())]
    rows.append(("command", shlex.join(command)))
    rows += [("but" if not n else "", line) for n, line in enumerate(planned.remarks)]
    if not planned.own:
        rows.append(("trust", "your own trackers didn't record it: to run its code needs --trust"))
    for name, text in rows:
        print(f"{name:<10} {printable(text, 2000)}")


def _print_message(line: str) -> None:
    print(f"trackers: {printable(line, 1000)}", file=sys.stderr, flush=True)
