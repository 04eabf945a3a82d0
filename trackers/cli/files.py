"""``trackers files`` and ``trackers get``: media, texts and artifacts of a run, listed and fetched."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trackers.cli import completion
from trackers.cli.common import AsJson, OneRun, RunsDir, SourceArgument, opened, print_table, printable

if TYPE_CHECKING:
    from trackers.analysis.run_files import Kept

Step = Annotated[int | None, typer.Option("--step", help="Only what was logged at this step.")]


def files(
    source: SourceArgument = "latest",
    name: Annotated[str, typer.Option(help="Only these names: a,b; patterns as in samples/*.")] = "",
    kind: Annotated[str, typer.Option(help="Only these kinds: image, table, text, model, file, …; a,b.")] = "",
    step: Step = None,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """List what a run keeps beside numbers: media, texts, artifacts; each with kind, name, step and size.

    Example: trackers files latest --kind image
    """
    from trackers.analysis.choosing import words
    from trackers.analysis.tables import TextTable, show_size
    from trackers.errors import did_you_mean

    with _opened(source, directory, fetch=False) as (found, _):
        chosen = [
            one for one in found
            if (not name or any(_fits(one.name, word) for word in words(name)))
            and (not kind or one.kind in words(kind)) and (step is None or one.step == step)
        ]  # fmt: skip
    if as_json:
        print(json.dumps([one.to_dict() for one in chosen], indent=2))
        return
    if not chosen:
        what = "keeps no media, texts or artifacts"
        if found:
            given = [*words(name), *words(kind)]
            known = dict.fromkeys([*(one.name for one in found), *(one.kind for one in found)])
            near = did_you_mean(given[0], known, "") if len(given) == 1 else ""
            what = f"keeps nothing of this kind; {len(found)} others{near}"
        print(f"trackers: {printable(source)} {printable(what)}", file=sys.stderr)
        return
    # What lies on a server has a size only there.
    rows = [[one.kind, one.name, one.step, one.files, show_size(one.size) if one.size else None] for one in chosen]
    print_table(TextTable(["kind", "name", "step", "files", "size"], rows, texts=2))


def get(
    source: OneRun,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME…",
            help="Names that `trackers files` lists, patterns as in samples/*, or files: model/best.pt.",
            autocompletion=completion.files,
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory to write to; it is made.")] = Path("."),
    step: Step = None,
    every: Annotated[bool, typer.Option("--all", help="Every step and version, not only the last.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="As kept: otherwise image arrays become PNG, tables CSV.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there and differ.")] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Fetch media, texts and files of artifacts: the last of each name, unless --step or --all is given.

    Nothing is written outside of the output directory, whatever the run calls its files. A second call writes nothing
    that is there.

    Example: trackers get latest samples/misread mistakes -o pictures; trackers get latest model/best.pt
    """
    from trackers.analysis import run_files as work
    from trackers.analysis.tables import show_size

    with _opened(source, directory, fetch=True) as (found, root):
        choices = [choice for name in dict.fromkeys(names) for choice in work.chosen(found, name, step, every)]
        fetched, lost = work.fetch(choices, root, output, numbered=every or step is not None, raw=raw, force=force)
    for reason in lost:
        print(f"trackers: {printable(reason)}", file=sys.stderr)
    if as_json:
        listed = [
            {"file": str(one.path), "kind": one.kept.kind, "name": one.kept.name, "step": one.kept.step,
             "size": one.size, "written": one.made}
            for one in fetched
        ]  # fmt: skip
        print(json.dumps(listed, indent=2))
    else:
        base = output.resolve()
        for one in fetched:
            shown = printable(str(output / one.path.relative_to(base)), 4096)
            print(f"Saved {shown} ({show_size(one.size)})" if one.made else f"{shown} is there")
    raise typer.Exit(1 if lost else 0)


def _fits(name: str, pattern: str) -> bool:
    import fnmatch

    return name == pattern or fnmatch.fnmatchcase(name, pattern)


@contextlib.contextmanager
def _opened(source: str, directory: Path | None, *, fetch: bool) -> Iterator[tuple[list[Kept], Path | None]]:
    """What a run keeps, and where its files lie: those on a server in a directory that is gone afterwards.

    Args:
        fetch: have files that aren't on this machine.
    """
    from trackers.analysis.run_files import kept
    from trackers.readers.run_data import RunData

    reader, runs = opened(source, directory, one=True)
    data = RunData(reader, runs[0])
    with tempfile.TemporaryDirectory(prefix="trackers-get-") as staging:
        if fetch:
            records = [*data.media(staging), *data.texts(), *data.artifacts(staging)]
        else:
            records = [*data.every_media(Path(staging)), *data.texts(), *data.artifacts()]
        root = Path(data.run.directory) if data.run.directory else None
        found = kept(records, root)
        found.sort(key=lambda one: one.time)
        yield found, root
