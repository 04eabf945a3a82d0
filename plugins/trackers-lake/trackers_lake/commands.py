"""``trackers lake``: runs put into a lake, listed, taken out; its files joined and deleted."""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Annotated

import typer

from trackers.cli import completion
from trackers.cli.common import AsJson, RunsDir, print_table, printable, resolve_conditions
from trackers.cli.retention import Yes
from trackers.cli.roots import runs_root
from trackers.object_storage.addresses import is_address, normalize
from trackers.readers.boundary import boundary

LakePlace = Annotated[str, typer.Argument(metavar="LAKE", help="A directory, or s3://bucket/prefix and the like.")]
Keep = Annotated[
    float,
    typer.Option(
        "--keep", min=1, metavar="DAYS", envvar="TRACKER_LAKE_KEEP", show_envvar=False,
        help="For so long files that were replaced are kept.",
    ),
]  # fmt: skip
app = typer.Typer(
    name="lake", help="A lake of runs: Delta tables for SQL on DuckDB, Spark and others.", no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.command("add")
def add(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SOURCE… LAKE",
            help="Runs, projects, directories or other sources, as for `trackers compare`; then the lake's place.",
            autocompletion=completion.runs,
        ),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Also where the lake has another run of that project and id.")
    ] = False,
    keep: Keep = 7.0,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Have a lake hold these runs as they are now: what is new or has changed is put in.

    Example: trackers lake add runs lake; trackers lake add runs s3://bucket/lake; trackers sql "…" lake:lake
    """
    from trackers.errors import UsageError
    from trackers_lake.into_lake import add as work
    from trackers_lake.tables import DAY_S

    *references, where = sources
    if not references and directory is None:
        raise UsageError("lake add needs runs and a place: trackers lake add runs s3://bucket/lake")
    references = [_copy(source) if is_address(source) else source for source in references]
    found = resolve_conditions(references or [str(directory)], directory)
    with boundary(f"lake:{where}"):
        done = work(found, where, directory, replace=replace, keep_s=keep * DAY_S)
    for reason in done.problems:
        print(f"trackers: left out: {printable(reason)}", file=sys.stderr)
    if as_json:
        print(json.dumps({"added": ["/".join(key) for key in done.added], "unchanged": done.unchanged,
                          "values": done.values, "left_out": done.problems}))  # fmt: skip
    else:
        print(f"runs: {len(done.added):,} added, {done.unchanged:,} unchanged; numbers: {done.values:,} added")
    if done.problems:
        raise typer.Exit(1)


@app.command("collect")
def collect(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="RUNS… LAKE", help="Directories or stores of growing runs; then the lake's place."),
    ],
    every: Annotated[float, typer.Option("--every", min=1, metavar="SECONDS", help="From round to round.")] = 60.0,
    keep: Keep = 7.0,
    as_json: AsJson = False,
) -> None:
    """Have a lake hold growing runs, round after round until it is stopped: one writer instead of one for each run.

    Several collectors, on any machines, share the projects; when one is gone, the others take over its.

    Example: trackers lake collect s3://bucket/runs s3://bucket/lake --every 60
    """
    from trackers.errors import UsageError
    from trackers_lake import collect as collecting
    from trackers_lake.catalogue import copy_beside
    from trackers_lake.tables import DAY_S

    *directories, where = sources
    if not directories:
        raise UsageError("lake collect needs runs and a lake: trackers lake collect s3://bucket/runs s3://bucket/lake")
    for source in directories:
        if not is_address(source) and not Path(source).is_dir():
            raise UsageError(f"{printable(source)} is no directory of runs, and no store's address")
    stopped = _stopped()

    def tell(done: collecting.Round) -> None:
        for reason in done.added.problems:
            print(f"trackers: left out: {printable(reason)}", file=sys.stderr)
        if as_json:
            said = {"projects": done.projects, "of": done.all_projects, "runs": done.runs,
                    "added": ["/".join(key) for key in done.added.added], "values": done.added.values,
                    "seconds": round(done.seconds, 3)}  # fmt: skip
            print(json.dumps(said), flush=True)
        else:
            print(
                f"{done.projects:,} of {done.all_projects:,} projects, {done.runs:,} runs: {len(done.added.added):,} "
                f"added, {done.added.values:,} numbers, {done.seconds:.1f} s",
                flush=True,
            )

    def failed(text: str) -> None:
        print(f"trackers: {printable(text)}: the next round tries again", file=sys.stderr, flush=True)

    places = [
        collecting.Stored(source, copy_beside(normalize(source), "collected")) if is_address(source)
        else collecting.Directory(Path(source)) for source in directories
    ]  # fmt: skip
    collecting.collect(
        places, where.removeprefix("lake:"), every_s=every, keep_s=keep * DAY_S, tell=tell, failed=failed,
        wait=stopped.wait,
    )  # fmt: skip


@app.command("catalogue")
def catalogue(
    store: Annotated[str, typer.Argument(metavar="STORE", help="A store of runs: s3://bucket/prefix and the like.")],
    every: Annotated[
        float | None,
        typer.Option("--every", min=1, metavar="SECONDS", help="Go on, round after round, until it is stopped."),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Also read the runs that are in it: after an update, or changes by hand.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Have a store keep what lists show of its runs that have ended, in few objects: for `trackers ls s3://…`.

    Example: trackers lake catalogue s3://bucket/runs; trackers ls s3://bucket/runs
    """
    from trackers.errors import DeliveryError, NotFound, UsageError
    from trackers_lake.catalogue import Catalogue

    if not is_address(store):
        raise UsageError(f"{printable(store)} is no store's address: trackers lake catalogue s3://bucket/runs")

    def complain(text: str) -> None:
        print(f"trackers: {printable(text)}", file=sys.stderr, flush=True)

    known, stopped, failed = Catalogue(store), _stopped() if every else threading.Event(), False
    while True:
        began = time.monotonic()
        try:
            done = known.gather(again=again)
        except (DeliveryError, NotFound, OSError) as error:
            if not every:
                raise
            complain(f"{error}: the next round tries again")
        else:
            failed = bool(done.problems)
            for reason in done.problems:
                complain(f"left out: {reason}")
            said = f"{done.put_in:,} runs put in; {done.going_on:,} go on; {time.monotonic() - began:.1f} s"
            print(json.dumps(done._asdict()) if as_json else said, flush=True)
        if not every or stopped.wait(max(0.0, began + every - time.monotonic())):
            break
    if failed:
        raise typer.Exit(1)


def _stopped() -> threading.Event:
    """What is set when this process is asked to end."""
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    return stopped


def _copy(store: str) -> str:
    """The copy of a store's runs on this machine."""
    from trackers.errors import NotFound
    from trackers.journal.run_directory import find_runs

    root = runs_root(Path(store))
    if next(iter(find_runs(root)), None) is None:
        raise NotFound(f"no runs in {store}")
    return str(root)


def _folder(directory: Path) -> Path:
    """A directory of runs; of a store's address the directory of its copy."""
    return runs_root(directory) if is_address(directory) else directory


@app.command("ls")
def ls(location: LakePlace, as_json: AsJson = False) -> None:
    """List a lake's tables: rows, files, size, version, and how many runs.

    Example: trackers lake ls lake
    """
    from trackers.analysis.tables import TextTable, format_size
    from trackers_lake.tables import Lake

    tables = []
    with boundary(f"lake:{location}"):
        lake = Lake(location)
        for name in lake.tables:
            at = lake.snapshot(name)
            files = at.files.values()
            rows, size = sum(file.rows or 0 for file in files), sum(file.size for file in files)
            runs = len(lake.fingerprints(name))
            tables.append({"table": name, "runs": runs, "rows": rows, "files": len(files), "bytes": size,
                          "version": at.version})  # fmt: skip
    if as_json:
        print(json.dumps(tables, indent=2))
    else:
        lines = [
            [*list(table.values())[:4], format_size(int(str(table["bytes"]))), table["version"]] for table in tables
        ]
        print_table(TextTable(["table", "runs", "rows", "files", "size", "version"], lines, texts=1))


@app.command("rm")
def rm(
    location: LakePlace,
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN…]", help="Runs: PROJECT/RUN, ids, projects, patterns.")
    ] = None,
    gone: Annotated[
        Path | None, typer.Option("--gone", metavar="DIR", help="Runs from this directory that aren't there now.")
    ] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Take runs out of a lake's tables. `trackers lake vacuum` deletes the files that held their rows.

    Example: trackers lake rm lake digits/r1 --yes; trackers lake rm lake --gone runs --yes
    """
    from trackers.errors import UsageError, examples
    from trackers_lake import into_lake
    from trackers_lake.reader import choose_runs
    from trackers_lake.tables import Lake

    if not runs and gone is None:
        raise UsageError("lake rm needs runs, or --gone DIR: trackers lake rm LAKE PROJECT/RUN")
    with boundary(f"lake:{location}"):
        lake = Lake(location)
        known = list(lake.all_runs())
        keys = dict.fromkeys(key for run in runs or [] for key in choose_runs(known, run, f"lake:{location}"))
        keys.update(dict.fromkeys(into_lake.missing_runs(location, _folder(gone)) if gone is not None else []))
        names = ["/".join(key) for key in keys]
        if yes:
            lake.remove(keys)
    if as_json:
        print(json.dumps({"runs": names, "removed": yes}))
    elif not names:
        print("no such runs in the lake")
    elif yes:
        print(f"{len(names):,} runs removed: {printable(examples(names, 5))}")
        print(f"their rows lie in old files until `trackers lake vacuum {printable(location)}` deletes these")
    else:
        some = printable(examples(names, 5))
        print(f"{len(names):,} runs to remove: {some}; nothing was changed; add --yes to do it")


@app.command("compact")
def compact(location: LakePlace, as_json: AsJson = False) -> None:
    """Join short files into longer ones, and sum up the log: after many calls of `lake add` everything is quicker.

    Readers and writers go on meanwhile.

    Example: trackers lake compact lake
    """
    from trackers_lake.tables import Lake

    with boundary(f"lake:{location}"):
        lake = Lake(location)
        running = lake.running()
        results = {name: lake.compact(name, running) for name in lake.tables}
    if as_json:
        print(json.dumps({name: result._asdict() for name, result in results.items()}))
    else:
        print("; ".join(f"{name}: {result.before:,} files, now {result.after:,}" for name, result in results.items()))


@app.command("vacuum")
def vacuum(
    location: LakePlace,
    older_than: Annotated[
        float,
        typer.Option("--older-than", min=0, metavar="DAYS", help="Files that were unused for longer; 0: all, at once."),
    ] = 7.0,
    as_json: AsJson = False,
) -> None:
    """Delete files that no table uses any more, and the log that a checkpoint sums up.

    With --older-than 0 nothing is left of removed runs; who reads meanwhile may miss a file. Writers go on.

    Example: trackers lake vacuum lake
    """
    from trackers.analysis.tables import format_size
    from trackers_lake.tables import DAY_S, Lake

    with boundary(f"lake:{location}"):
        deleted = Lake(location).vacuum(older_than * DAY_S)
    if as_json:
        print(json.dumps({"files": [name for name, _ in deleted], "bytes": sum(size for _, size in deleted)}))
    else:
        print(f"{len(deleted):,} files deleted, {format_size(sum(size for _, size in deleted))}")
