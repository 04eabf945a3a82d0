"""``trackers archive``, ``restore`` and ``prune``: runs packed where they lie, unpacked again, and deleted."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from trackers.cli.common import (
    AsJson,
    RunsArgument,
    RunsDir,
    StoreOrDir,
    printable,
    refuse,
    resolve_conditions,
    show_time,
)
from trackers.cli.roots import named_store, runs_root
from trackers.support.progress import counted

Days = Annotated[
    float, typer.Option("--older-than", min=0, metavar="DAYS", help="Only runs older than this number of days.")
]
Yes = Annotated[bool, typer.Option("--yes/--dry-run", help="Carry it out; without it only print what would be done.")]
Count = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="How many runs are meant; asked for where a directory has far more than it says: /, ~."
    ),
]


def archive(
    context: typer.Context,
    runs: RunsArgument = None,
    older_than: Days = 7.0,
    backup: Annotated[
        str,
        typer.Option(
            metavar="KIND", help="A .tar.gz of a directory of results instead of runs; minimal (JSON, report) or full."
        ),
    ] = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The backup's file; default benchmarks_backup_DATE.tar.gz.")
    ] = None,
    yes: Yes = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Compress runs that their trackers have whole. They are read as before; restore gives the same files back.

    Sizes are shown by kind. What is packed is read back and compared before anything is removed. Kept as they are:
    runs that go on, that somebody works on, and those of which a tracker lacks or refused something.

    Example: trackers archive --older-than 7 --yes; trackers archive --backup minimal benchmark_results --yes
    """
    from trackers.journal.run_directory import RunDirectory
    from trackers.retention.archive import archive as work
    from trackers.retention.archive import packable
    from trackers.retention.lock import DAY_S, choose_runs, why_kept
    from trackers.support.seekable_zstd import need_zstd

    def keeps(run: RunDirectory) -> str:
        if run.archived() and not packable(run):
            return "archived already"
        return why_kept(run, older_than * DAY_S)

    def act(run: RunDirectory) -> int:
        change = work(run, older_than * DAY_S)
        return change.before - change.after

    if backup or output is not None:
        refuse(context, "is for runs: a backup has every file of its directory", "older_than")
        _back_up(runs or ["benchmark_results"], backup, output, yes, as_json)
    need_zstd()
    selected = choose_runs(
        resolve_conditions(runs or [], directory), runs_root(directory, change="archived or deleted")
    )
    act_on_each(selected, keeps, act, ("compress", "compressed"), yes=yes, as_json=as_json)


def restore(
    context: typer.Context,
    runs: Annotated[list[str], typer.Argument(metavar="RUN…", help="Ids, names, latest, or directories.")],
    into: Annotated[Path, typer.Option(help="Directory to restore a backup to.")] = Path(),
    yes: Yes = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Put archived runs back as they were, byte for byte, so that they can be resumed or delivered elsewhere.

    A backup (.tar.gz) is put back, too; files that are there stay.

    Example: trackers restore latest --yes
    """
    from trackers.journal.run_directory import RunDirectory
    from trackers.retention.archive import is_backup
    from trackers.retention.archive import restore as work
    from trackers.retention.lock import choose_runs
    from trackers.support.seekable_zstd import need_zstd

    def act(run: RunDirectory) -> int:
        change = work(run)
        return change.before - change.after

    if any(is_backup(reference) for reference in runs):
        _put_back(runs, into, yes, as_json)
    refuse(context, "is for backups: a run goes back where it lies", "into")
    need_zstd()
    selected = choose_runs(resolve_conditions(runs, directory), runs_root(directory, change="archived or deleted"))
    act_on_each(
        selected,
        lambda run: "" if run.archived() else "not archived",
        act,
        ("restore", "restored"),
        yes=yes,
        as_json=as_json,
    )


def _back_up(folders: list[str], kind: str, output: Path | None, yes: bool, as_json: bool) -> NoReturn:
    from trackers.analysis.tables import format_size
    from trackers.errors import UsageError
    from trackers.retention.archive import default_name, make, members

    if not kind:
        raise UsageError("--output works only with --backup minimal or --backup full")
    if len(folders) > 1:
        raise UsageError(f"{len(folders)} directories: a backup is of one")
    folder = Path(folders[0]).expanduser()
    files = members(folder, kind)
    target = output if output is not None else default_name(kind)
    size = sum(length for _, length in files)
    try:
        written = make(folder, kind, target) if yes else 0
    except OSError as error:
        raise UsageError(f"{target} can't be written: {error.strerror or error}") from None
    if as_json:
        print(json.dumps({"file": str(target), "files": len(files), "size": size, "written": written}))
    elif yes:
        print(f"Saved {target}: {len(files):,} files, {format_size(size)} in {format_size(written)}")
    else:
        print(f"{target}: {len(files):,} files, {format_size(size)}; nothing was written; add --yes to do it")
    raise typer.Exit


def _put_back(sources: list[str], into: Path, yes: bool, as_json: bool) -> NoReturn:
    from trackers.errors import UsageError
    from trackers.retention.archive import is_backup, put_back

    if not all(is_backup(source) for source in sources):
        raise UsageError("restore runs and backups in separate calls")
    failed = False
    for source in sources:
        done = put_back(Path(source).expanduser(), into, yes=yes)
        failed = failed or bool(done.differ)
        if as_json:
            print(json.dumps({"file": source, **done._asdict(), "done": yes}))
        else:
            word = "restored" if yes else "to restore; nothing was changed; add --yes to do it"
            print(f"{source}: {len(done.files):,} files {word}; {len(done.same):,} are there already")
        for path in done.differ:
            print(f"trackers: {printable(path)} differs from the backup's: it stays", file=sys.stderr)
    raise typer.Exit(1 if failed else 0)


def act_on_each(
    runs: Iterable[Any],
    keeps: Callable[[Any], str],
    act: Callable[[Any], int],
    words: tuple[str, str],
    *,
    yes: bool,
    as_json: bool,
) -> None:
    """Call ``act`` for each run, or print what it would do; end with exit code 1 if it failed for one.

    Args:
        keeps: why a run stays as it is. act: does it, and returns the bytes freed. words: "compress", "compressed".
    """
    from trackers.analysis.run_list import forks_of
    from trackers.analysis.tables import format_size
    from trackers.errors import TrackersError
    from trackers.retention.sizes import run_sizes, together, total

    entries: list[dict[str, Any]] = []
    gone: list[Any] = []
    failed = False
    for run in counted(list(runs), words[0], "runs"):
        sizes = run_sizes(run.path)
        entry: dict[str, Any] = {"run": str(run.path), "size": total(sizes), "sizes": sizes, "freed": 0}
        try:
            reason = keeps(run)
        except (TrackersError, OSError) as error:
            reason = f"it can't be read ({error})"
        if reason:
            entry.update(action="keep", reason=reason)
        elif not yes:
            entry.update(action=words[0], reason="")
        else:
            try:
                entry.update(freed=act(run), action=words[1], reason="")
            except (TrackersError, OSError) as error:
                entry.update(action="failed", reason=str(error))
                failed = True
        entries.append(entry)
        if entry["action"] in ("delete", "deleted"):
            gone.append(run)
        if not as_json:
            what = f"keep: {entry['reason']}" if entry["action"] == "keep" else entry["action"]
            more = f", {format_size(abs(entry['freed']))} {'freed' if entry['freed'] >= 0 else 'more'}"
            more = more if entry["freed"] else ""
            print(f"{printable(str(run.path))}  {format_size(entry['size'])}  {printable(what)}{more}")
            if entry["action"] == "failed":
                print(f"trackers: {printable(entry['reason'])}", file=sys.stderr)
    for line in forks_of(gone):
        print(f"trackers: {printable(line)}", file=sys.stderr)
    if as_json:
        for entry in entries:
            entry["sizes"] = {kind: size._asdict() for kind, size in entry["sizes"].items()}
        print(json.dumps(entries, indent=2))
    else:
        show_sizes(together(run_sizes(Path(entry["run"])) for entry in entries))
        doable = sum(entry["action"] == words[0] for entry in entries)
        if doable and not yes:
            print(f"{doable} to {words[0]}; nothing was changed; add --yes to do it")
    raise typer.Exit(1 if failed else 0)


def show_sizes(sizes: dict[str, Any]) -> None:
    """A line for each kind of file."""
    from trackers.analysis.tables import format_size

    for kind, (files, size) in sizes.items():
        print(f"  {kind:<18} {files:>7,} files  {format_size(size):>9}")


DONE = {"compress": "compressed", "delete": "deleted", "extract": "extracted and deleted"}


def prune(
    context: typer.Context,
    runs: RunsArgument = None,
    older_than: Days = 30.0,
    logs: Annotated[
        bool, typer.Option("--logs", help="Loose logs below directories instead of runs; default benchmark_results.")
    ] = False,
    compress_after: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="With --logs: compress *.log older than this to *.log.gz.")
    ] = 7.0,
    extract: Annotated[
        bool, typer.Option("--extract", help="With --logs: write a log's benchmark result before the log is deleted.")
    ] = False,
    delete_after: Annotated[
        float, typer.Option(min=0, metavar="DAYS", help="With --logs: delete older *.log.gz whose results are kept.")
    ] = 30.0,
    count: Count = None,
    yes: Yes = False,
    directory: StoreOrDir = None,
    as_json: AsJson = False,
) -> None:
    """Delete runs of which a tracker has everything, outside of the run's own directory.

    Without RUN, runs that trackers rm removed so long ago go, too. Sizes are shown by kind. Kept: runs that go on, that
    somebody works on, of which a tracker lacks or refused something, and those that no tracker has elsewhere (the JSON
    log in the run's own directory would go with it).

    Example: trackers prune --older-than 90 --yes; trackers prune --logs benchmark_results --yes
    """
    from trackers.analysis.tables import format_size
    from trackers.errors import TrackersError
    from trackers.object_storage.addresses import STORAGE
    from trackers.retention.lock import DAY_S, choose_runs, need_meant, why_not_deleted
    from trackers.retention.prune import delete, delete_stored, finish, unfinished_deletions

    if logs:
        refuse(context, "is for runs: logs have --compress-after and --delete-after", "older_than")
        refuse(context, "is for runs", "count")
        _prune_logs(runs or ["benchmark_results"], compress_after * DAY_S, delete_after * DAY_S, extract, yes, as_json)
    refuse(context, "belongs to --logs; runs have --older-than", "compress_after", "delete_after", "extract")
    store, own = named_store(directory)
    root = runs_root(directory, follow=False) if store else runs_root(directory, change="archived or deleted")
    asked = resolve_conditions(runs or [], root if store else directory)
    need_meant(asked, root, count)
    if store:
        if not runs:
            _empty_trash(own, older_than * DAY_S, yes)
        act_on_each(
            choose_runs(asked, root),
            lambda run: why_not_deleted(run, older_than * DAY_S, but=STORAGE),
            lambda run: delete_stored(run, store, older_than * DAY_S),
            ("delete", "deleted"),
            yes=yes,
            as_json=as_json,
        )
    for path in unfinished_deletions(root) if yes else ():
        try:
            freed = finish(path)
            print(f"trackers: {printable(str(path))}: deletion ended, {format_size(freed)} freed", file=sys.stderr)
        except (TrackersError, OSError) as error:
            print(f"trackers: {printable(str(error))}", file=sys.stderr)
    if not runs:
        _empty_trash(root, older_than * DAY_S, yes)
    act_on_each(
        choose_runs(asked, root),
        lambda run: why_not_deleted(run, older_than * DAY_S),
        lambda run: delete(run, older_than * DAY_S),
        ("delete", "deleted"),
        yes=yes,
        as_json=as_json,
    )


def _empty_trash(root: Path, older_than_s: float, yes: bool) -> None:
    """Delete for good what ``trackers rm`` removed so long ago, and say so on stderr."""
    from trackers.analysis.tables import format_size
    from trackers.editing import trash

    for removal in trash.in_trash(root):
        if time.time() - removal.note.time < older_than_s:
            continue
        size, label = format_size(removal.size()), printable(trash.label(removal.note))
        try:
            if yes:
                trash.empty(removal)
            done = "deleted for good" if yes else "would be deleted for good"
            print(f"trackers: {label}, removed {show_time(removal.note.time)}: {done}, {size}", file=sys.stderr)
        except OSError as error:
            print(f"trackers: {label}: {printable(str(error))}", file=sys.stderr)


def _prune_logs(
    folders: list[str], compress_after_s: float, delete_after_s: float, extract: bool, yes: bool, as_json: bool
) -> NoReturn:
    from trackers.analysis.tables import format_size
    from trackers.errors import TrackersError
    from trackers.retention.prune import benchmark_results, carry_out, due_logs
    from trackers.retention.sizes import loose_sizes, together

    directories = [Path(folder).expanduser() for folder in folders]
    entries = [
        entry
        for directory in directories
        for entry in due_logs(directory, compress_after_s, delete_after_s, extract=extract)
    ]
    sizes = together(loose_sizes(directory) for directory in directories)
    lines: list[dict[str, Any]] = []
    for entry in entries:
        line = {"file": str(entry.path), "size": entry.size, "freed": 0, **entry._asdict()}
        del line["path"], line["folder"], line["written"]
        if yes and entry.action != "keep":
            try:
                line.update(freed=carry_out(entry), action=DONE[entry.action])
            except (TrackersError, OSError) as error:
                line.update(action="failed", reason=str(error))
                print(f"trackers: {printable(str(error))}", file=sys.stderr)
        lines.append(line)
        if not as_json:
            why = f": {line['reason']}" if line["action"] == "keep" else ""
            print(f"{printable(line['file'])}  {format_size(entry.size)}  {line['action']}{why}")
    results = sum(benchmark_results(directory) for directory in directories)
    if as_json:
        kinds = {kind: size._asdict() for kind, size in sizes.items()}
        print(json.dumps({"logs": lines, "sizes": kinds, "benchmark_results": results}, indent=2))
    else:
        show_sizes(sizes)
        if yes:
            print("Cleaned up old training logs")
        elif entries:
            print("nothing was changed; add --yes to do it")
        print(f"Benchmark JSONs retained: {results}")
    raise typer.Exit(1 if any(line["action"] == "failed" for line in lines) else 0)
