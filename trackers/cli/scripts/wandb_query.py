"""Code shared by the scripts that query W&B: flags, selection of runs, and the head of the output."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from trackers.analysis.tables import plain
from trackers.errors import NotFound, UsageError
from trackers.readers import registry
from trackers.readers.reader import SourceRun
from trackers.records import Record

RULE = "-" * 80


def parser(name: str, text: str) -> argparse.ArgumentParser:
    """A parser with the flags that all of them have."""
    made = argparse.ArgumentParser(
        prog=f"{name}.py",
        description=text,
        epilog=f"Example: {name}.py --entity my-team --project gpt2 --run-name baseline",
    )
    add = made.add_argument
    add("--entity", help="user or team; default that of your login")
    add("--project", help="W&B's project; required except with --offline")
    add("--offline", metavar="DIR", help="read W&B's offline files there, without a server")
    add("--json", action="store_true", help="print JSON")
    return made


class Query:
    """Reads runs as the flags say.

    Raises:
        UsageError: neither --project nor --offline. MissingPackage: wandb isn't installed.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        if not options.project and not options.offline:
            raise UsageError("give --project (and --entity), or --offline DIR")
        self._reader: Any = registry.load(registry.WANDB_FILE if options.offline else "wandb")()

    def run(self, name: str | None, id: str | None) -> SourceRun:
        """One run: by id, by name, or the newest where neither is given.

        Raises:
            NotFound: there is no such run, or several have that name.
        """
        options, reader = self._options, self._reader
        if options.offline:
            return self._offline(name, id)
        entity, project, _ = reader.address(
            f"{options.entity}/{options.project}" if options.entity else options.project
        )
        if not name and not id:
            newest: SourceRun = reader.newest(entity, project)
            return newest
        wanted = id or name or ""
        filters = {"name": id} if id else {"$or": [{"display_name": name}, {"config.run_name": name}]}
        found: list[SourceRun] = reader.find(entity, project, filters, wanted)
        return found[0]

    def newest(self, count: int) -> list[SourceRun]:
        """The newest runs, at most ``count``."""
        options, reader = self._options, self._reader
        if options.offline:
            return self._local()[:count]
        entity, project, _ = reader.address(
            f"{options.entity}/{options.project}" if options.entity else options.project
        )
        found: list[SourceRun] = reader.find(entity, project, {})
        return found[:count]

    def records(self, run: SourceRun) -> Iterator[Record]:
        """All records of a run: its complete history, and its system metrics."""
        found: Iterator[Record] = self._reader.read(run)
        return found

    def system(self, run: SourceRun) -> Iterator[Record]:
        """The system metrics; of an offline run, all records."""
        found: Iterator[Record] = self._reader.read(run) if self._options.offline else self._reader.system(run)
        return found

    def keys(self, run: SourceRun) -> list[str] | None:
        """Names of everything in a run, where that can be had without its history; else None."""
        if self._options.offline:
            return None
        found: list[str] = self._reader.keys(run)
        return found

    def _place(self) -> tuple[str, str]:
        entity, project = self._options.entity, self._options.project
        found: tuple[str, str, str] = self._reader.address(f"{entity}/{project}" if entity else project)
        return found[0], found[1]

    def _local(self) -> list[SourceRun]:
        project = self._options.project
        found: list[SourceRun] = self._reader.runs(self._options.offline)
        return [run for run in found if not project or run.project == project]

    def _offline(self, name: str | None, id: str | None) -> SourceRun:
        runs = self._local()
        found = [run for run in runs if (run.id == id if id else not name or run.name == name)]
        there = ", ".join(f"{run.name} ({run.id})" for run in runs) or "none"
        if not found:
            raise NotFound(f"{self._options.offline}: no run {id or name or 'of that project'!r}; there are {there}")
        if name and not id and len(found) > 1:
            listed = ", ".join(run.id for run in found)
            raise NotFound(f"{len(found)} runs are called {name!r}: {listed}; name one by --run-id")
        return found[0]


def choose_one(made: argparse.ArgumentParser) -> None:
    """Add the flags that name one run."""
    made.add_argument("--run-name", help="by its name; default the newest run")
    made.add_argument("--run-id", help="by its id")


def head(run: SourceRun) -> str:
    """The first lines of what is printed of a run."""
    lines = [f"Run: {run.name} ({run.id})", f"State: {run.native.get('state') or run.status}"]
    where = run.native.get("url")
    lines.append(f"URL: {where}" if where else f"File: {', '.join(run.native['paths'])}")
    if run.note:
        lines.append(f"Note: {run.note}")
    return "\n".join([*map(plain, lines), RULE])


def described(run: SourceRun) -> dict[str, Any]:
    """The same for machines."""
    state = run.native.get("state") or run.status
    return {"id": run.id, "name": run.name, "state": state, "url": run.native.get("url")}
