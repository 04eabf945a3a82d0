"""All versions of a project's artifacts, made of its runs' records.

A run's records are found by their lines, without decoding the others, and kept as long as its files are as they were.
Numbers: what a record says; where two records say one number for different content (runs of two machines that were
brought together), the one that took it here (:mod:`trackers.artifacts.numbers`), else the earlier one. All others, as
those of earlier releases, get the free numbers in the order of time.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from trackers.artifacts import changes, names, numbers
from trackers.artifacts.names import LATEST, Reference
from trackers.artifacts.numbers import NumberHolder
from trackers.errors import NotFound, UsageError, did_you_mean, examples
from trackers.journal.fingerprint_cache import FingerprintCache, fingerprint_of
from trackers.journal.run_directory import RunDirectory, project_folder, run_paths, runs_in
from trackers.records import USED, ArtifactFile, ArtifactRecord, Config, CorruptLine, decode, escaped
from trackers.support.interruption import pass_on
from trackers.support.seekable_zstd import open_file

MOST = 1_000_000_000
"""Versions have lower numbers; a record that says another has none."""
BLOCK_BYTES = 4 * 1024 * 1024
LONGEST_BYTES = 64 * 1024 * 1024
"""No line of an artifact is longer."""
_PATTERNS = (b'{"kind":"artifact"', f'"{USED}"'.encode())
_VERSION = "artifacts 1"


class Use(msgspec.Struct, array_like=True):
    """A version that a run used, as the run named it: ``project/name:v3``. time: Unix seconds."""

    version: str
    time: float


class OfRun(msgspec.Struct, array_like=True):
    """What one run says of artifacts, in the order of its streams."""

    id: str
    name: str
    logged: list[ArtifactRecord] = []
    used: list[Use] = []


@dataclasses.dataclass
class Maker:
    """A run that logged a version. record: the one that it wrote."""

    directory: Path
    id: str
    name: str
    record: ArtifactRecord


@dataclasses.dataclass
class Version:
    """One version. size: bytes of its files. time: when it was first logged, Unix seconds. aliases: sorted.

    makers: runs that logged this content, the earliest first. users: names of runs that used it, by their ids; used_in:
    their directories.
    removed: when its content was removed, or 0.0.
    """

    project: str
    name: str
    number: int
    digest: str
    makers: list[Maker]
    aliases: list[str] = dataclasses.field(default_factory=list)
    users: dict[str, str] = dataclasses.field(default_factory=dict)
    used_in: list[Path] = dataclasses.field(default_factory=list)
    removed: float = 0.0
    described: changes.Change | None = None

    @property
    def record(self) -> ArtifactRecord:
        """The first record of it: the same content logged again changes neither type nor metadata, as in W&B."""
        return self.makers[0].record

    @property
    def description(self) -> str | None:
        """As it was set last."""
        return self.described.description if self.described is not None else self.record.description

    @property
    def metadata(self) -> dict[str, Any]:
        """As it was set last."""
        return self.described.metadata if self.described is not None else self.record.metadata

    @property
    def type(self) -> str:
        return self.record.type

    @property
    def files(self) -> list[ArtifactFile]:
        return self.record.files

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def time(self) -> float:
        return self.makers[0].record.time

    def __str__(self) -> str:
        return f"{self.project}/{self.name}:v{self.number}"

    @property
    def links(self) -> list[str]:
        """Collections of a registry that runs linked it to."""
        return list(dict.fromkeys(maker.record.link for maker in self.makers if maker.record.link))

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "name": self.name, "version": f"v{self.number}", "project": self.project, "type": self.type,
            "aliases": self.aliases, "digest": self.digest, "size": self.size, "files": len(self.files),
            "created": self.time, "removed": self.removed or None, "description": self.description,
            "metadata": self.metadata, "logged_by": list(dict.fromkeys(maker.id for maker in self.makers)),
            "used_by": list(self.users), "links": self.links,
        }  # fmt: skip


def digest_of(files: Iterable[ArtifactFile]) -> str:
    """A digest of names and content: 32 hexadecimal digits."""
    hashed = hashlib.blake2b(digest_size=16)
    for file in sorted(files, key=lambda file: escaped(file.path)):
        # As the journal has it, where a name that isn't UTF-8 is escaped.
        hashed.update(escaped(f"{file.path}\0{file.digest or file.uri or file.file}\n").encode())
    return hashed.hexdigest()


class Catalog:
    """The artifacts of one project.

    Attributes:
        project: its name. folder: of its runs. names: versions by name, the lowest number first.
    """

    def __init__(self, folder: Path, runs: Mapping[str, OfRun]) -> None:
        self.folder = folder
        self.project = unquote(folder.name)
        makers: dict[str, list[Maker]] = {}
        for path, run in runs.items():
            for record in run.logged:
                if record.versioned and record.name:
                    makers.setdefault(record.name, []).append(Maker(Path(path), run.id, run.name, record))
        changes_of: dict[str, list[changes.Change]] = {}
        for change in changes.read(folder):
            changes_of.setdefault(change.name, []).append(change)
        self.names = {
            name: _versions(self.project, name, made, numbers.holders(folder, name), changes_of.get(name, []))
            for name, made in sorted(makers.items())
        }

    def used(self, runs: Mapping[str, OfRun]) -> None:
        """Note which runs used which version.

        Args:
            runs: all, by their directories.
        """
        versions = {str(version): version for versions_of_name in self.names.values() for version in versions_of_name}
        for path, run in runs.items():
            for use in run.used:
                if use.version in versions:
                    versions[use.version].users[run.id] = run.name
                    versions[use.version].used_in.append(Path(path))

    def find(self, reference: Reference) -> Version:
        """The version of that name and alias or number.

        Raises:
            NotFound: there is none, or its content was removed; one line says what there is.
        """
        versions = self.names.get(reference.name)
        if versions is None:
            near = did_you_mean(reference.name, self.names, f"; there is {examples(self.names)}")
            raise NotFound(f"project {self.project!r} has no artifact {reference.name!r}{near}")
        number = reference.number
        for version in versions:
            if version.number == number or reference.alias in version.aliases:
                if version.removed:
                    raise NotFound(f"the content of {version} was removed: {_available(versions)}")
                return version
        if number in numbers.holders(self.folder, reference.name):
            raise NotFound(
                f"{reference.name}:v{number} was logged by a run that is gone from {self.folder}: "
                f"{_available(versions)}"
            )
        raise NotFound(f"{reference.name!r} has no version {reference.alias!r}: {_available(versions)}")


def _available(versions: Iterable[Version]) -> str:
    labels = [
        f"v{version.number}" + (f" ({', '.join(version.aliases)})" if version.aliases else "")
        for version in versions
        if not version.removed
    ]
    return f"there is {examples(reversed(labels))}"


def catalogs(root: Path, project: str = "") -> list[Catalog]:
    """The artifacts of all projects below a directory of runs, or of one; those without any are left out."""
    runs = {path: run for path, run in _of_runs(root, run_paths(root)).items() if run.logged or run.used}
    folders: dict[Path, dict[str, OfRun]] = {}
    for path, run in runs.items():
        folders.setdefault(Path(path).parent, {})[path] = run
    listed = [Catalog(folder, inside) for folder, inside in sorted(folders.items())]
    chosen = [catalog for catalog in listed if catalog.names and project in ("", catalog.project)]
    for catalog in chosen:
        catalog.used(runs)
    return chosen


def find(root: Path, text: str, project: str = "") -> Version:
    """The version that a reference names.

    Args:
        root: the directory of runs. project: where to look if the reference names none.

    Raises:
        NotFound: there is none; the message names what is near, and how W&B's own are had.
        UsageError: the reference can't be read.
    """
    catalog, reference = _having(root, text, project)
    return catalog.find(reference)


def all_of(root: Path, text: str, project: str = "") -> list[Version]:
    """All versions of the name in a reference, the lowest number first; errors as :func:`find`."""
    catalog, reference = _having(root, text, project)
    catalog.used(_of_runs(root, run_paths(root)))
    return catalog.names[reference.name]


def _having(root: Path, text: str, project: str) -> tuple[Catalog, Reference]:
    """The project that has an artifact of that name, and what the reference means there."""
    for reading in names.readings(text):
        of = reading.project or project
        if of and (catalog := _catalog(root, of)) is not None and reading.name in catalog.names:
            return catalog, reading
    reference = names.parse(text)
    sought = reference.project or project
    if not sought or reference.project == "model-registry" or reference.project.startswith("wandb-registry-"):
        having = [catalog for catalog in catalogs(root) if reference.name in catalog.names]
        if len(having) > 1:
            where = examples(f"{catalog.project}/{reference.name}" for catalog in having)
            raise UsageError(f"{text!r} is in {len(having)} projects: name one, as in {where}")
        if having:
            return having[0], reference
    known = [f"{catalog.project}/{name}" for catalog in catalogs(root) for name in catalog.names]
    otherwise = f"; there is {examples(known)}." if known else "."
    near = did_you_mean(f"{sought}/{reference.name}", known, otherwise, most=3)
    raise NotFound(f"no artifact {text!r} in {root}{near} W&B's own: wandb artifact get {text}, then log_artifact it")


def find_in(root: Path, project: str, name: str, number: int | None) -> Version:
    """A version that was just logged; its name may have any characters.

    Args:
        number: None: the last one.

    Raises:
        NotFound: it is gone.
    """
    catalog = _catalog(root, project)
    if catalog is None:
        raise NotFound(f"no project {project!r} in {root}")
    return catalog.find(Reference(project, name, LATEST if number is None else f"v{number}"))


def _catalog(root: Path, project: str) -> Catalog | None:
    try:
        folder = root / project_folder(project)
    except UsageError:
        return None
    return of_project(folder) if folder.is_dir() else None


def of_project(folder: Path) -> Catalog:
    """The artifacts of the project whose runs lie in a folder; which runs used them isn't looked for."""
    return Catalog(folder, _of_runs(folder.parent, runs_in(folder), whole=False))


def known_numbers(folder: Path, name: str) -> dict[int, NumberHolder]:
    """The numbers that the records of a project's runs say, for :func:`trackers.artifacts.numbers.assign`."""
    return {
        version.number: NumberHolder("" if version.removed else version.digest, version.makers[0].id, version.time)
        for version in of_project(folder).names.get(name, [])
    }


def _versions(
    project: str,
    name: str,
    made: list[Maker],
    number_holders: dict[int, NumberHolder],
    said_changes: list[changes.Change],
) -> list[Version]:
    made = sorted(made, key=lambda maker: (maker.record.time, maker.id))
    gone = {(change.number, change.digest): change.time for change in said_changes if change.what == "removed"}
    numbered: dict[int, Version] = {}

    def add(number: int, digest: str, maker: Maker) -> None:
        version = numbered.setdefault(number, Version(project, name, number, digest, []))
        version.makers.append(maker)
        version.removed = gone.get((number, digest), 0.0)

    loose = []
    for maker in made:
        digest, number = digest_of(maker.record.files), maker.record.version
        if number is None or not 0 <= number < MOST:
            loose.append((maker, digest))
            continue
        entry = number_holders.get(number, NumberHolder())
        holder = numbered[number].digest if number in numbered else entry.digest or digest
        if holder == digest:
            add(number, digest, maker)
        else:
            loose.append((maker, digest))
    by_digest = {entry.digest: number for number, entry in number_holders.items() if entry.digest}
    by_digest.update({version.digest: number for number, version in numbered.items() if not version.removed})
    removed = {digest: (number, time) for (number, digest), time in gone.items()}
    free = (number for number in itertools.count() if number not in numbered and number not in number_holders)
    for maker, digest in loose:
        if digest not in by_digest and digest in removed and maker.record.time <= removed[digest][1]:
            add(removed[digest][0], digest, maker)
            continue
        if digest not in by_digest:
            by_digest[digest] = next(free)
        add(by_digest[digest], digest, maker)
    for version in numbered.values():
        version.makers.sort(key=lambda maker: (maker.record.time, maker.id))
    _set_aliases(numbered, said_changes)
    return [numbered[number] for number in sorted(numbered)]


def _set_aliases(numbered: dict[int, Version], said_changes: list[changes.Change]) -> None:
    events: list[tuple[float, int, str, int]] = []
    for version in numbered.values():
        if not version.removed:
            for maker in version.makers:
                for alias in [LATEST, *maker.record.aliases]:
                    events.append((maker.record.time, 0, alias, version.number))
    for order, change in enumerate(said_changes, 1):
        version_of = numbered.get(change.number)
        if change.what in ("alias", "unalias") and version_of is not None and not version_of.removed:
            events.append((change.time, order, change.alias, change.number if change.what == "alias" else -1))
        elif change.what == "described" and version_of is not None:
            version_of.described = change
    holders = {alias: number for _, _, alias, number in sorted(events, key=lambda event: event[:2])}
    for alias, number in sorted(holders.items()):
        if number in numbered and names.number_of(alias) is None:
            numbered[number].aliases.append(alias)


def _of_runs(root: Path, paths: Iterable[str], *, whole: bool = True) -> dict[str, OfRun]:
    """What each run says, by its absolute directory; runs whose identity can't be read are left out.

    Args:
        root: the directory of runs. whole: these are all runs that there are.
    """
    cache = FingerprintCache(f"artifacts of {root.resolve()}", _VERSION)
    runs: dict[str, OfRun] = {}
    for path in map(os.path.abspath, paths):
        fingerprint = fingerprint_of(path)
        run = cache.get(path, fingerprint, OfRun)
        if not isinstance(run, OfRun):
            try:
                run = _read(RunDirectory(path))
            except (OSError, NotFound, ValueError) as error:
                pass_on(error)
                continue
            cache.put(path, fingerprint, run)
        runs[path] = run
    if whole:
        cache.keep_only(set(runs))
    cache.save()
    return runs


def _read(directory: RunDirectory) -> OfRun:
    info = directory.read_info()
    run = OfRun(id=info.id, name=info.name)
    for name in directory.stream_names():
        if name.writer != "rank":
            continue
        for line in _artifact_lines(directory.stream(name)):
            try:
                record = decode(line)
            except CorruptLine:
                continue
            if isinstance(record, ArtifactRecord):
                run.logged.append(record)
            elif isinstance(record, Config):
                used = record.values.get(USED)
                if isinstance(used, dict):
                    run.used.extend(Use(text, record.time) for text in used.values() if isinstance(text, str))
    return run


def _artifact_lines(path: Path) -> Iterator[bytes]:
    """The lines of a stream that may be about artifacts."""
    with open_file(path) as file:
        rest = b""
        while block := file.read(BLOCK_BYTES):
            block = rest + block
            end = block.rfind(b"\n") + 1
            if not end and len(block) > LONGEST_BYTES:
                return
            rest = block[end:]
            starts = {
                block.rfind(b"\n", 0, offset) + 1 for pattern in _PATTERNS for offset in _offsets(block, pattern, end)
            }
            for start in sorted(starts):
                yield block[start : block.index(b"\n", start)]


def _offsets(block: bytes, pattern: bytes, end: int) -> Iterator[int]:
    offset = block.find(pattern, 0, end)
    while offset >= 0:
        yield offset
        offset = block.find(pattern, offset + 1, end)
