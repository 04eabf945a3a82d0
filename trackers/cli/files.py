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
from trackers.cli.common import AsJson, OneRun, RunsDir, SourceArgument, open_runs, print_table, printable

if TYPE_CHECKING:
    from trackers.analysis.run_files import LoggedItem

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
    from trackers.analysis.tables import TextTable, format_size
    from trackers.errors import did_you_mean
    from trackers.formats.word_list import split_words

    with _open_run(source, directory, fetch=False) as (items, _):
        chosen = [
            item for item in items
            if (not name or any(_matches(item.name, word) for word in split_words(name)))
            and (not kind or item.kind in split_words(kind)) and (step is None or item.step == step)
        ]  # fmt: skip
    if as_json:
        print(json.dumps([item.to_dict() for item in chosen], indent=2))
        return
    if not chosen:
        what = "keeps no media, texts or artifacts"
        if items:
            asked = [*split_words(name), *split_words(kind)]
            known = dict.fromkeys([*(item.name for item in items), *(item.kind for item in items)])
            near = did_you_mean(asked[0], known, "") if len(asked) == 1 else ""
            what = f"keeps nothing of this kind; {len(items)} others{near}"
        print(f"trackers: {printable(source)} {printable(what)}", file=sys.stderr)
        return
    # What lies on a server has a size only there.
    rows = [
        [item.kind, item.name, item.step, item.files, format_size(item.size) if item.size else None] for item in chosen
    ]
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
    from trackers.analysis.tables import format_size

    with _open_run(source, directory, fetch=True) as (items, root):
        choices = [choice for name in dict.fromkeys(names) for choice in work.choose(items, name, step, every)]
        fetched, problems = work.fetch(choices, root, output, numbered=every or step is not None, raw=raw, force=force)
    for reason in problems:
        print(f"trackers: {printable(reason)}", file=sys.stderr)
    if as_json:
        listed = [
            {"file": str(file.path), "kind": file.item.kind, "name": file.item.name, "step": file.item.step,
             "size": file.size, "written": file.created}
            for file in fetched
        ]  # fmt: skip
        print(json.dumps(listed, indent=2))
    else:
        base = output.resolve()
        for file in fetched:
            shown = printable(str(output / file.path.relative_to(base)), 4096)
            print(f"Saved {shown} ({format_size(file.size)})" if file.created else f"{shown} is there")
    raise typer.Exit(1 if problems else 0)


def _matches(name: str, pattern: str) -> bool:
    import fnmatch

    return name == pattern or fnmatch.fnmatchcase(name, pattern)


@contextlib.contextmanager
def _open_run(source: str, directory: Path | None, *, fetch: bool) -> Iterator[tuple[list[LoggedItem], Path | None]]:
    """What a run has logged, and the directory of its files: for those of a server a temporary one.

    Args:
        fetch: have files that aren't on this machine.
    """
    from trackers.analysis.run_files import logged_items
    from trackers.readers.run_data import RunData

    reader, runs = open_runs(source, directory, one=True)
    data = RunData(reader, runs[0])
    with tempfile.TemporaryDirectory(prefix="trackers-get-") as staging:
        if fetch:
            records = [*data.media(staging), *data.texts(), *data.artifacts(staging)]
        else:
            records = [*data.every_media(Path(staging)), *data.texts(), *data.artifacts()]
        root = Path(data.run.directory) if data.run.directory else None
        items = logged_items(records, root)
        items.sort(key=lambda item: item.time)
        yield items, root
