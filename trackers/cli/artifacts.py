"""``trackers artifacts``: versions of artifacts listed, fetched, named and removed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trackers.cli import completion
from trackers.cli.common import (
    AsJson,
    ListedByDefault,
    RunsArgument,
    RunsDir,
    print_table,
    printable,
    resolve_conditions,
    show_time,
)
from trackers.cli.roots import runs_root
from trackers.support.progress import counted

if TYPE_CHECKING:
    from trackers.artifacts.versions import Catalog, Version

Project = Annotated[str, typer.Option(help="Only this project's.", autocompletion=completion.projects)]
Named = Annotated[
    str,
    typer.Argument(
        metavar="NAME:ALIAS", help="name:alias, name:v3 or project/name:alias; without an alias latest.",
        autocompletion=completion.artifacts,
    ),
]  # fmt: skip


app = typer.Typer(
    name="artifacts", cls=ListedByDefault, help="Versions of artifacts: list, get, alias, rm, gc.",
    context_settings={"help_option_names": ["-h", "--help"]},
)  # fmt: skip


@app.command("ls")
def ls(
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME[:ALIAS]]",
            help="An artifact: its versions; a version: its files.",
            autocompletion=completion.artifacts,
        ),
    ] = "",
    project: Project = "",
    type: Annotated[str, typer.Option(help="Only artifacts of this type: model, dataset, …")] = "",
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """List artifacts, each with its newest version; of one its versions; of a version its files.

    Example: trackers artifacts; trackers artifacts digits/model; trackers artifacts model:best
    """
    from trackers.artifacts import names, versions

    root = runs_root(directory)
    if name and (":" in name):
        _print_version(versions.find(root, name, project), as_json)
        return
    readings = names.readings(name) if name else []
    matching = [
        (catalog, listed, all_versions)
        for catalog in versions.catalogs(root, project)
        for listed, all_versions in catalog.names.items()
        if (
            not readings
            or any(reading.name == listed and reading.project in ("", catalog.project) for reading in readings)
        )
        and type in ("", all_versions[-1].type)
    ]
    if name and not matching:
        raise _unknown(name, versions.catalogs(root), root)
    if as_json:
        print(json.dumps([version.to_dict() for _, _, all_versions in matching for version in all_versions], indent=2))
    elif not matching:
        print(f"trackers: no artifacts in {root}: run.log_artifact keeps files with a run", file=sys.stderr)
    elif not readings:
        _list(matching)
    else:
        _list_versions([version for _, _, all_versions in matching for version in all_versions])


def _list(matching: list[tuple[Catalog, str, list[Version]]]) -> None:
    from trackers.analysis.tables import TextTable, format_size

    rows = []
    for catalog, name, all_versions in matching:
        present = [version for version in all_versions if not version.removed]
        newest = next((version for version in reversed(present) if "latest" in version.aliases), all_versions[-1])
        used = {run for version in all_versions for run in version.users.values()}
        rows.append([
            f"{catalog.project}/{name}", newest.type, len(present), f"v{newest.number}", ", ".join(newest.aliases),
            format_size(sum(version.size for version in present)), newest.makers[0].name, ", ".join(sorted(used)),
        ])  # fmt: skip
    heads = ["artifact", "type", "versions", "newest", "aliases", "size", "made by", "used by"]
    print_table(TextTable(heads, rows, texts=2))


def _list_versions(listed: list[Version]) -> None:
    from trackers.analysis.tables import TextTable, format_size

    rows = [
        [
            str(version), ", ".join(version.aliases) if not version.removed else "removed", len(version.files),
            format_size(version.size), show_time(version.time), version.makers[0].name,
            ", ".join(version.users.values()),
        ]
        for version in reversed(listed)
    ]  # fmt: skip
    print_table(TextTable(["version", "aliases", "files", "size", "logged", "made by", "used by"], rows, texts=2))


def _print_version(version: Version, as_json: bool) -> None:
    from trackers.analysis.tables import format_size

    if as_json:
        listed = [{"path": file.path, "size": file.size, "uri": file.uri or None} for file in version.files]
        print(json.dumps({**version.to_dict(), "paths": listed}, indent=2))
        return
    aliases = f" ({', '.join(version.aliases)})" if version.aliases else ""
    makers = ", ".join(dict.fromkeys(f"{maker.name} ({maker.id})" for maker in version.makers))
    print(printable(f"{version}{aliases}: {version.type}, {_files(version)}, {format_size(version.size)}"))
    lines = [f"logged {show_time(version.time)} by {makers}"]
    if version.links:
        lines.append(f"linked to {', '.join(version.links)}")
    if version.users:
        lines.append(f"used by {', '.join(f'{name} ({run})' for run, name in version.users.items())}")
    if version.removed:
        lines.append(f"its files were removed {show_time(version.removed)}")
    if version.description:
        lines.append(version.description)
    lines += [f"{key}: {value}" for key, value in version.metadata.items()]
    lines += [f"{file.path}  {format_size(file.size) if file.file else file.uri}" for file in version.files]
    for line in lines:
        print(f"  {printable(line, 4096)}")


def _files(version: Version) -> str:
    return "1 file" if len(version.files) == 1 else f"{len(version.files):,} files"


@app.command("get")
def get(
    name: Named,
    to: Annotated[
        Path | None, typer.Option("--to", metavar="DIR", help="Directory; default artifacts/NAME:vN; it is made.")
    ] = None,
    project: Project = "",
    directory: RunsDir = None,
) -> None:
    """Write the files of a version into a directory. What is there and differs is replaced.

    Example: trackers artifacts get dataset:latest --to data
    """
    from trackers.analysis.tables import format_size
    from trackers.artifacts.stored import StoredArtifact
    from trackers.artifacts.versions import find

    root = runs_root(directory).absolute()
    version = find(root, name, project)
    where = StoredArtifact(root, version).download(to)
    print(printable(f"Saved {version} to {where} ({_files(version)}, {format_size(version.size)})", 4096))


@app.command("alias")
def alias(
    name: Named,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="As in best, prod.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take it away from the version.")] = False,
    project: Project = "",
    directory: RunsDir = None,
) -> None:
    """Give an alias to a version; the version that has it loses it.

    Example: trackers artifacts alias model:v3 prod
    """
    from trackers.artifacts import names, versions
    from trackers.artifacts.stored import set_aliases
    from trackers.errors import NotFound

    version = versions.find(runs_root(directory, change="given aliases").absolute(), name, project)
    if remove and names.check_alias(alias) not in version.aliases:
        raise NotFound(f"{version} hasn't the alias {alias!r}")
    set_aliases(version, [] if remove else [alias], [alias] if remove else [])
    print(printable(f"{version} {'has no longer' if remove else 'has'} the alias {alias}"))


@app.command("rm")
def rm(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME[:VERSION]…", help="Versions; a name alone with --keep.", autocompletion=completion.artifacts
        ),
    ],
    keep: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Of each name all versions but the newest N.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Also versions with an alias, used ones, and what a tracker lacks.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes/--dry-run", help="Carry it out; without it only print what would be done.")
    ] = False,
    project: Project = "",
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove the files of versions. Their records stay, and their numbers aren't given again.

    Kept: versions with an alias, versions of runs that go on or of which a tracker lacks something, with --keep also
    versions that a run used; files that another version in the run has, too.

    Example: trackers artifacts rm model:v2 --yes; trackers artifacts rm model --keep 3 --yes
    """
    from trackers.analysis.tables import format_size
    from trackers.errors import TrackersError
    from trackers.retention.artifacts import remove, why_version_kept

    root = runs_root(directory, change="removed from" if yes else "")
    chosen = _choose_versions(names, keep, project, root.absolute())
    entries: list[dict[str, Any]] = []
    for version, itself in chosen:
        entry: dict[str, Any] = {"version": str(version), "size": version.size, "freed": 0, "reason": ""}
        try:
            why = why_version_kept(version, named=itself, force=force)
            entry["action"] = "keep" if why else "removed" if yes else "remove"
            entry["reason"] = why
            if yes and not why:
                entry["freed"] = remove(version)
        except (TrackersError, OSError) as error:
            entry.update(action="failed", reason=str(error))
        entries.append(entry)
        if not as_json:
            what = f"{entry['action']}: {entry['reason']}" if entry["reason"] else entry["action"]
            freed = f", {format_size(entry['freed'])} freed" if entry["freed"] else ""
            print(printable(f"{version}  {format_size(version.size)}  {what}{freed}", 1000))
    doable = sum(entry["action"] == "remove" for entry in entries)
    if as_json:
        print(json.dumps(entries, indent=2))
    elif not entries:
        print("nothing to remove")
    elif doable:
        print(f"{doable} to remove; nothing was changed; add --yes to do it")
    raise typer.Exit(1 if any(entry["action"] == "failed" for entry in entries) else 0)


@app.command("gc")
def gc(
    runs: RunsArgument = None,
    yes: Annotated[
        bool, typer.Option("--yes/--dry-run", help="Carry it out; without it only print what would be done.")
    ] = False,
    directory: RunsDir = None,
    as_json: AsJson = False,
) -> None:
    """Remove files that no record names: what was being kept when a process was killed. Younger than a day they stay.

    Example: trackers artifacts gc --yes
    """
    from trackers.analysis.tables import format_size
    from trackers.errors import TrackersError
    from trackers.retention.artifacts import remove_strays, strays, why_strays_kept
    from trackers.retention.lock import choose_runs

    root = runs_root(directory, change="removed from" if yes else "")
    entries: list[dict[str, Any]] = []
    for run in counted(choose_runs(resolve_conditions(runs or [], directory), root), "look", "runs"):
        entry: dict[str, Any] = {"run": str(run.path), "files": 0, "size": 0, "freed": 0, "reason": ""}
        try:
            stray_files = strays(run)
            entry.update(
                files=len(stray_files),
                size=sum(stray_files.values()),
                reason=why_strays_kept(run) if stray_files else "",
            )
            entry["action"] = "keep" if entry["reason"] or not stray_files else "removed" if yes else "remove"
            if entry["action"] == "removed":
                entry["freed"] = remove_strays(run)
        except (TrackersError, OSError) as error:
            entry.update(action="failed", reason=str(error))
        if entry["files"] or entry["action"] == "failed":
            entries.append(entry)
    doable = sum(entry["action"] == "remove" for entry in entries)
    if as_json:
        print(json.dumps(entries, indent=2))
    else:
        for entry in entries:
            what = f"{entry['action']}: {entry['reason']}" if entry["reason"] else entry["action"]
            print(printable(f"{entry['run']}  {entry['files']:,} files  {format_size(entry['size'])}  {what}", 1000))
        if not entries:
            print("nothing to remove: records name every file")
        elif doable:
            print("nothing was changed; add --yes to do it")
    raise typer.Exit(1 if any(entry["action"] == "failed" for entry in entries) else 0)


def _choose_versions(words: list[str], keep: int | None, project: str, root: Path) -> list[tuple[Version, bool]]:
    """The versions that words name, each with whether it was named by its own number."""
    from trackers.artifacts import names, versions
    from trackers.errors import UsageError
    from trackers.retention.artifacts import out_of_date

    chosen: list[tuple[Version, bool]] = []
    for word in words:
        if ":" in word:
            if keep is not None:
                raise UsageError(f"--keep is for names: {word!r} is a version")
            candidates = versions.all_of(root, word, project)
            number = names.parse(word).number
            # A removed one, too: its removal may have been cut short.
            chosen += [(version, True) for version in candidates if version.number == number] or [
                (versions.find(root, word, project), True)
            ]
        elif keep is None:
            raise UsageError(f"which versions of {word!r}? Name one ({word}:v2), or give --keep N")
        else:
            reference = names.parse(word)
            having = [
                catalog
                for catalog in versions.catalogs(root, reference.project or project)
                if reference.name in catalog.names
            ]
            if not having:
                raise _unknown(word, versions.catalogs(root), root)
            chosen += [
                (version, False) for catalog in having for version in out_of_date(catalog.names[reference.name], keep)
            ]
    return chosen


def _unknown(name: str, catalogs: list[Catalog], root: Path) -> Exception:
    from trackers.errors import NotFound, did_you_mean, examples

    known = [
        word for catalog in catalogs for listed in catalog.names for word in (listed, f"{catalog.project}/{listed}")
    ]
    otherwise = (
        f"; there is {examples(f'{catalog.project}/{listed}' for catalog in catalogs for listed in catalog.names)}"
    )
    return NotFound(f"no artifact {name!r} in {root}{did_you_mean(name, known, otherwise)}")
