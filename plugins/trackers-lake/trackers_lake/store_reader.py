"""Runs in a store, by its catalogue: ``store:s3://bucket/runs`` is all of them, ``…#PROJECT/RUN`` one run.

What lists and comparisons need of a run that has ended comes from the catalogue (:mod:`trackers_lake.catalogue`). A run
that goes on, or that the catalogue lacks, is copied to this machine, as is each whose curves, media or files are asked
for.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

from trackers.errors import NotFound
from trackers.journal.fingerprint_cache import fingerprint_of
from trackers.journal.run_directory import RunDirectory, is_run
from trackers.object_storage import mirror
from trackers.object_storage.addresses import normalize
from trackers.object_storage.mirror import StoredRun
from trackers.readers import helpers
from trackers.readers.boundary import bounded
from trackers.readers.journal import JournalReader, source_run
from trackers.readers.reader import Reader, SourceRun
from trackers.records import Record
from trackers.support import sightings
from trackers_lake.catalogue import Catalogue, Head, copy_beside, runs_of
from trackers_lake.reader import choose_runs, split


@bounded
class StoreReader(Reader):
    """Reads the runs of a store."""

    scheme = "store"
    needs: ClassVar[tuple[str, ...]] = ("obstore", "pyarrow", "numpy")

    def __init__(self) -> None:
        self._catalogues: dict[str, Catalogue] = {}
        self._heads: dict[str, dict[str, Head]] = {}

    def runs(self, where: str) -> list[SourceRun]:
        """See :class:`trackers.readers.reader.Reader`."""
        text, selection = split(where)
        store = normalize(text)
        if store not in self._catalogues:
            self._catalogues[store] = Catalogue(store)
        catalogue = self._catalogues[store]
        look = catalogue.look()
        self._heads[store] = look.heads
        homes = {_key(home): home for home in look.names}
        chosen = [homes[key] for key in choose_runs(list(homes), selection, store)] if selection else look.names
        runs = [_by_head(store, look.heads[home]) for home in chosen if home in look.heads]
        try:
            runs += _copied(catalogue, [home for home in chosen if home not in look.heads], look.names)
        except NotFound as error:  # none of these can be read
            if not runs:
                raise
            helpers.warn(str(error))
        if not runs:
            raise NotFound(f"no runs in {store}")
        return sorted(runs, key=lambda run: run.created, reverse=True)

    def version(self, run: SourceRun) -> str:
        """See :class:`trackers.readers.reader.Reader`."""
        return str(run.native.get("word") or "") or fingerprint_of(run.directory)

    def facts(self, run: SourceRun, version: str) -> bytes | None:
        """What the catalogue has of a run; None where that is of another version.

        Args:
            version: of what is kept: see :mod:`trackers.analysis.collect`.
        """
        head = self._heads.get(run.native["store"], {}).get(run.native["home"])
        known = head is not None and "word" in run.native and head.version == version
        return head.facts if head is not None and known else None

    def columns(self, run: SourceRun) -> Any:
        """The run's metrics as blocks, and its other records."""
        return JournalReader().columns(_opened(run))

    def read(self, run: SourceRun, *, files: Path | None = None) -> Iterator[Record]:
        """See :class:`trackers.readers.reader.Reader`."""
        yield from JournalReader().read(_opened(run), files=files)


def _by_head(store: str, head: Head) -> SourceRun:
    return SourceRun(
        source=f"store:{store}#{'/'.join(_key(head.home))}", id=head.id, name=head.name or head.id,
        project=head.project, group=head.group, tags=list(head.tags), notes=head.notes, created=head.created,
        status=head.status,
        native={"store": store, "home": head.home, "word": head.word()},
    )  # fmt: skip


def _copied(catalogue: Catalogue, homes: list[str], names: list[str]) -> list[SourceRun]:
    """Runs that are read, from copies that are brought up to date; copies of what isn't there any more go."""
    if not homes:
        return []
    store, root = catalogue.store.where, copy_beside(catalogue.store.where, "opened")
    began = sightings.now()
    wanted = runs_of(catalogue.store, homes)
    asked = set(homes)
    there = [StoredRun(*_parts(name), {}, {}) for name in names if name not in asked]
    mirror.refresh_runs(catalogue.store, root, [*wanted, *there], began, lambda run: bool(run.whole or run.pieces))
    directories = [RunDirectory(root / run.project / run.id) for run in wanted]
    found = [directory for directory in directories if is_run(directory.path)]
    return helpers.those_of(found, partial(_by_copy, store)) if found else []


def _by_copy(store: str, directory: RunDirectory) -> SourceRun:
    run, home = source_run(directory), "/".join(directory.path.parts[-2:])
    run.source = f"store:{store}#{'/'.join(_key(home))}"
    run.native = {**run.native, "store": store, "home": home}
    return run


def _parts(home: str) -> tuple[str, str]:
    project, _, run = home.partition("/")
    return project, run


def _key(home: str) -> tuple[str, str]:
    """A run's project and id, as users give them: its folders have some signs encoded."""
    project, run = _parts(home)
    return unquote(project), run


def _opened(run: SourceRun) -> SourceRun:
    """The run with the directory of its copy, made where there is none."""
    if not run.directory:
        store, home = run.native["store"], run.native["home"]
        root = copy_beside(store, "opened")
        if not mirror.copy(store, root, home):
            raise NotFound(f"{run.source} has gone")
        run.directory = str(root / home)
    return run
