"""A version as a script gets it: W&B's names for what it is, its files, and the runs that made and used it."""

from __future__ import annotations

import copy
import functools
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, NoReturn

from trackers.artifacts import changes, versions
from trackers.artifacts.names import LATEST, check_alias
from trackers.artifacts.versions import Version
from trackers.errors import Damaged, NotFound, UsageError, did_you_mean, examples
from trackers.media.base import MediaStore
from trackers.records import ArtifactFile, check_depth
from trackers.support import confined
from trackers.support.interruption import pass_on, suppress
from trackers.support.progress import counted
from trackers.support.redaction import mask, mask_source
from trackers.support.terminal import one_line
from trackers.values import artifact_media
from trackers.values.artifact import Artifact, Referable

logger = logging.getLogger("trackers")

COPIED_BYTES = 1024 * 1024


class RunName(NamedTuple):
    """A run that made or used a version: ``id``, ``name``, ``project``."""

    id: str
    name: str
    project: str

    @property
    def path(self) -> list[str]:
        """As W&B's: entity, project and id; the entity is empty."""
        return ["", self.project, self.id]


class Entry(Referable):
    """One file of a version. path: its name in it. size: bytes. digest: of its content. ref: a reference's address."""

    def __init__(self, artifact: StoredArtifact, file: ArtifactFile) -> None:
        self._artifact, self._file = artifact, file
        self.path = self.name = file.path
        self.size, self.digest = file.size, file.digest
        self.ref = file.uri or None

    def download(self, root: str | os.PathLike[str] | None = None, skip_cache: bool | None = None) -> str:
        """Write the file below ``root``, default the version's own directory; its path.

        Raises:
            NotFound: it is a reference, or its content is gone. UsageError: it can't be written.
        """
        return str(self._artifact._write(self._file, self._artifact._root(root)))

    def __repr__(self) -> str:
        return f"<trackers.Entry {self.path!r}>"


class StoredArtifact(Artifact):
    """A version of an artifact in the directory of runs, to read; ``new_draft`` gives one to change.

    Attributes:
        name: with its number, ``dataset:v3``; ``collection_name`` without. project: of the runs that made it.
    """

    def __init__(self, root: Path, version: Version) -> None:
        record = version.record
        own = {key: value for key, value in version.metadata.items() if key != "tags" or value != record.tags}
        self._begin(version.name, record.type, version.description, own)
        self.name = f"{version.name}:v{version.number}"
        self.collection_name = self.source_collection = version.name
        self.source_name, self.source_project = self.name, version.project
        self.project, self.entity, self.state = version.project, "", "COMMITTED"
        self.id = self.source_qualified_name = str(version)
        self.source_entity, self.source_artifact = "", self
        self.linked_artifacts: list[StoredArtifact] = []
        self.ttl = self.url = self.use_as = None
        self.tags = [str(tag) for tag in record.tags]
        self.history_step = record.step
        self.aliases = list(version.aliases)
        self.version_index = version.number
        self._runs, self._stored = root, version
        self._relative_paths: dict[str, str] | None = None
        self._saved_aliases = list(version.aliases)
        self._saved_fields = (self.description, copy.deepcopy(self.metadata))

    @property
    def version(self) -> str:
        """Its number: "v3"."""
        return f"v{self._stored.number}"

    source_version = version

    @property
    def qualified_name(self) -> str:
        """``project/name:v3``, by which every project's runs can use it."""
        return str(self._stored)

    @property
    def digest(self) -> str:
        """A digest of names and content: 32 hexadecimal digits."""
        return self._stored.digest

    commit_hash = digest

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return self._stored.size

    @property
    def file_count(self) -> int:
        """Number of its files, references included."""
        return len(self._stored.files)

    @property
    def logged_time(self) -> float:
        """When it was logged last, Unix seconds."""
        return self._stored.makers[-1].record.time

    @property
    def created_at(self) -> str:
        """When it was first logged, ISO 8601, UTC."""
        import datetime

        return datetime.datetime.fromtimestamp(self._stored.time, datetime.timezone.utc).isoformat()

    updated_at = created_at

    def is_draft(self) -> bool:
        """False."""
        return False

    def is_link(self) -> bool:
        """False."""
        return False

    @property
    def manifest(self) -> Any:
        """Its files by name, as ``manifest.entries``."""
        return _Manifest({file.path: Entry(self, file) for file in self._stored.files})

    def files(  # type: ignore[override]
        self, names: Sequence[str] | None = None, per_page: int = 50, start: str | None = None
    ) -> list[Entry]:
        """Its files, or those of these names; each has ``name``, ``size`` and ``download``."""
        return [Entry(self, file) for file in self._stored.files if not names or file.path in names]

    def get_entry(self, name: str | os.PathLike[str]) -> Entry:
        """One file.

        Raises:
            NotFound: there is no such file; the message names what is near.
        """
        path = os.fspath(name)
        for file in self._stored.files:
            if file.path == path:
                return Entry(self, file)
        known = [file.path for file in self._stored.files]
        raise NotFound(
            f"{self.name} has no file {path!r:.200}{did_you_mean(path, known, f'; there is {examples(known)}')}"
        )

    get_path = get_entry

    def get(self, name: str) -> Any:
        """The media value that was added under this name; None where there is none of that name.

        Raises:
            Damaged: what describes it isn't whole. NotFound: its content is gone.
        """
        entries = {file.path: file for file in self._stored.files}
        path = next((path for path in artifact_media.names(name) if path in entries), None)
        if path is None:
            return None
        with self._open_file(entries[path]) as file:
            content = file.read(confined.READ_BYTES)
        return artifact_media.value(
            content, f"{self.name}: {path}", lambda of: self.get_entry(of).download(), self._tables_below
        )

    def _tables_below(self, folder: str) -> list[Callable[[], Any]]:
        """What reads each table below a directory, by their paths."""
        paths = sorted(file.path for file in self._stored.files if file.path.startswith(f"{folder.rstrip('/')}/"))
        suffix = artifact_media.path_of("", "table")
        return [functools.partial(self.get, path) for path in paths if path.endswith(suffix)]

    def download(
        self,
        root: str | os.PathLike[str] | None = None,
        allow_missing_references: bool = False,
        skip_cache: bool | None = None,
        path_prefix: str | os.PathLike[str] | None = None,
        multipart: bool | None = None,
    ) -> str:
        """Write all files into a directory, which is made; what is there and the same is left, what differs replaced.

        Args:
            root: default ``artifacts/NAME:vN`` in the working directory, or in ``WANDB_ARTIFACT_DIR``.
            path_prefix: only files whose names begin so.

        Returns:
            the directory.

        Raises:
            NotFound: the content of a file is gone, or damaged. UsageError: the directory can't be written.
        """
        folder = self._root(root)
        prefix = os.fspath(path_prefix) if path_prefix is not None else ""
        chosen = [file for file in self._stored.files if file.path.startswith(prefix)]
        for file in counted([file for file in chosen if file.file], f"download {self.name}", "files"):
            self._write(file, folder)
        references = [file.uri for file in chosen if not file.file]
        if references and not allow_missing_references:
            logger.warning(f"{self.name}: references are named, not fetched: {examples(references, 3)}")
        return str(folder)

    checkout = download

    def file(self, root: str | os.PathLike[str] | None = None) -> str:
        """Write its only file; the path.

        Raises:
            UsageError: it has several, or none.
        """
        if len(self._stored.files) != 1:
            raise UsageError(f"{self.name} has {len(self._stored.files)} files: use download, or get_entry(name)")
        return Entry(self, self._stored.files[0]).download(root)

    def verify(self, root: str | os.PathLike[str] | None = None) -> None:
        """See that a directory has what ``download`` wrote there.

        Raises:
            Damaged: a file is missing or differs.
        """
        folder = self._root(root)
        for file in self._stored.files:
            if file.file and not self._is_there(file, folder.resolve(), folder.resolve() / self._relative_path(file)):
                raise Damaged(f"{folder / file.path} isn't what {self.name} has: download it again")

    def logged_by(self) -> RunName:
        """The run that logged it first."""
        maker = self._stored.makers[0]
        return RunName(maker.id, maker.name, self.project)

    def used_by(self) -> list[RunName]:
        """The runs that used it."""
        for catalog in versions.catalogs(self._runs, self.project):
            for version in catalog.names.get(self.collection_name, []):
                if version.number == self._stored.number:
                    return [RunName(run, name, self.project) for run, name in version.users.items()]
        return []

    def wait(self, timeout: float | None = None) -> StoredArtifact:
        """Itself."""
        return self

    def new_draft(self) -> Artifact:
        """An artifact of the same name with the same files, to change and log as the next version."""
        draft = Artifact.kept(self.collection_name, self.type, self.description, self.metadata)
        draft._made = tempfile.TemporaryDirectory(prefix="trackers-artifact-")
        self.download(draft._made.name, allow_missing_references=True)
        if any(file.file for file in self._stored.files):
            draft.add_dir(draft._made.name)
        draft._references.update({file.path: file.uri for file in self._stored.files if file.uri})
        return draft

    def save(self, project: str | None = None, settings: Any = None) -> None:
        """Have changes of ``aliases``, ``description`` and ``metadata`` count.

        Raises:
            UsageError: a name that can't be an alias, metadata that aren't JSON values, or the project's folder can't
                be written.
        """
        if (self.description, self.metadata) != self._saved_fields:
            tags = self._stored.record.tags
            describe(self._stored, self.description, {**({"tags": tags} if tags else {}), **self.metadata})
            self._saved_fields = (self.description, copy.deepcopy(self.metadata))
        added = [alias for alias in self.aliases if alias not in self._saved_aliases]
        set_aliases(self._stored, added, [alias for alias in self._saved_aliases if alias not in self.aliases])
        self._saved_aliases = list(self.aliases)

    def delete(self, delete_aliases: bool = False) -> NoReturn:
        """Not from a script.

        Raises:
            UsageError: always; it names the command.
        """
        raise UsageError(f"a script removes no version: trackers artifacts rm {self.qualified_name}")

    def link(self, target_path: str, aliases: Sequence[str] | None = None) -> NoReturn:
        """Not without a run.

        Raises:
            UsageError: always; it names the call.
        """
        raise UsageError(f"a link is a run's: run.link_artifact(artifact, {target_path!r})")

    def unlink(self) -> None:
        """Nothing: what was linked is a version of its own."""

    def _refuse(self) -> NoReturn:
        raise UsageError(f"{self.name} is logged and stays as it is: change new_draft() of it, and log that")

    def _add(self, name: str, path: Path, policy: str | None, overwrite: bool) -> None:
        self._refuse()

    def _free(self, name: str, overwrite: bool) -> None:
        self._refuse()

    def remove(self, item: Any) -> None:
        """Not from a version.

        Raises:
            UsageError: always.
        """
        self._refuse()

    def _store_files(self, store: MediaStore, say: Callable[[str], object] | None) -> list[ArtifactFile]:
        return self.new_draft()._store_files(store, say)

    def _root(self, root: str | os.PathLike[str] | None) -> Path:
        if root is not None:
            return Path(root).expanduser()
        name = "".join(char if confined.is_plain_name(char) and char.isprintable() else "_" for char in self.name)
        folder = Path(os.environ.get("WANDB_ARTIFACT_DIR") or "artifacts", name)
        if folder.is_symlink():  # nobody named it: it may have come with a repository, and lead into the user's home
            raise UsageError(f"{folder} is a link, which isn't followed: name a directory (--to DIR, download(root=…))")
        return folder

    def _open_file(self, file: ArtifactFile) -> BinaryIO:
        """Open the content of a file, from any run that logged it.

        Raises:
            NotFound: no run has it any more.
        """
        if not file.file:
            raise NotFound(f"{self.name}: {file.path!r} is a reference to {file.uri}, which isn't fetched")
        why = ""
        for maker in reversed(self._stored.makers):
            same = next((candidate for candidate in maker.record.files if candidate.path == file.path), None)
            if same is None or not confined.is_inside(same.file):
                continue
            try:
                directory = maker.directory.absolute()
                return confined.open_file(directory / same.file, root=directory)
            except OSError as error:
                pass_on(error)
                why = why or f"{maker.directory / same.file}: {error.strerror or error}"
        raise NotFound(f"{self.name}: the content of {file.path!r} is gone ({why or 'it lies outside of its run'})")

    def _write(self, file: ArtifactFile, folder: Path) -> Path:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            base = folder.resolve()
            path = base / self._relative_path(file)
            if not self._is_there(file, base, path):
                self._copy(file, base, path)
        except OSError as error:
            pass_on(error)
            where = folder if error.filename == str(folder) else folder / self._relative_path(file)
            raise UsageError(f"{where} can't be written: {error.strerror or error}") from None
        return folder / self._relative_path(file)

    def _relative_path(self, file: ArtifactFile) -> str:
        """Where a file of the version is written, below the directory: its name, and one that no other file has."""
        if self._relative_paths is None:
            self._relative_paths = _safe_paths(self._stored.files)
            odd = [
                entry for entry in self._stored.files if entry.file and self._relative_paths[entry.path] != entry.path
            ]
            if odd:
                renamed = examples([f"{entry.path!r} as {self._relative_paths[entry.path]!r}" for entry in odd], 3)
                logger.warning(f"{self.name}: names that not every system can have are written otherwise: {renamed}")
        return self._relative_paths[file.path]

    def _copy(self, file: ArtifactFile, base: Path, path: Path) -> None:
        with self._open_file(file) as source:
            if path.parent != base:
                confined.make_folder(path.parent, root=base)
            partial = confined.temporary(path)
            try:
                with confined.open_file(partial, "xb", root=base) as target:
                    digest = _hashed(source, target)
                if _is_content(file) and digest != file.digest:
                    raise Damaged(f"{self.name}: the content of {file.path!r} isn't what was logged: {source.name}")
                confined.replace(partial, path, root=base)
            except BaseException:
                with suppress(OSError):
                    confined.remove(partial, root=base)
                raise

    def _is_there(self, file: ArtifactFile, base: Path, path: Path) -> bool:
        """Whether the directory has this content already."""
        with suppress(OSError), confined.open_file(path, root=base) as stored_file:
            if os.fstat(stored_file.fileno()).st_size == file.size:
                if _is_content(file):
                    return _hashed(stored_file, None) == file.digest
                with self._open_file(file) as source:
                    return _hashed(stored_file, None) == _hashed(source, None)
        return False

    def __repr__(self) -> str:
        return one_line(f"<trackers.Artifact {self.qualified_name}>")


class _Manifest:
    def __init__(self, entries: dict[str, Entry]) -> None:
        self.entries = entries


def set_aliases(version: Version, added: Sequence[str], removed: Sequence[str] = ()) -> None:
    """Have a version get aliases, from others that have them, and lose some.

    Raises:
        UsageError: a name that can't be an alias, or the project's folder can't be written.
    """
    additions = [check_alias(alias) for alias in added]
    for what, names in (("alias", additions), ("unalias", [alias for alias in removed if alias != LATEST])):
        for alias in names:
            _add_change(version, changes.Change(what, version.name, version.number, time.time(), alias))


def describe(version: Version, description: str | None, metadata: Mapping[str, Any]) -> None:
    """Have a version get another description and other metadata.

    Raises:
        UsageError: metadata that aren't JSON values, or the project's folder can't be written.
    """
    known, told = mask(dict(metadata)), description and mask_source(description)
    try:
        check_depth(known)
        change = changes.Change(
            "described", version.name, version.number, time.time(), description=told, metadata=known
        )
        changes.check(change)
    except (TypeError, ValueError, RecursionError) as error:
        pass_on(error)
        raise UsageError(f"metadata of {version} must be JSON values: {error}") from None
    _add_change(version, change)


def _add_change(version: Version, change: changes.Change) -> None:
    folder = version.makers[0].directory.parent
    try:
        changes.add(folder, change)
    except OSError as error:
        pass_on(error)
        raise UsageError(f"{folder} can't be written: {error.strerror or error}") from None


def _safe_paths(files: Sequence[ArtifactFile]) -> dict[str, str]:
    """Relative paths by name in the version: below the directory whatever the names are, and each a path of its own."""
    relative: dict[str, str] = {}
    exact = {file.path for file in files if file.path and all(map(confined.is_plain_name, file.path.split("/")))}
    used: set[str] = set(exact)
    for file in files:
        if file.path in exact:
            relative[file.path] = os.path.join(*file.path.split("/"))
            continue
        parts = [_safe_part(part) for part in file.path.split("/") if part not in ("", ".", "..")] or ["file"]
        whole = "/".join(parts)
        if whole in used:
            of_name = hashlib.blake2b(file.path.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
            whole = "/".join([*parts[:-1], f"{parts[-1][:50]}-{of_name}"])
        used.add(whole)
        relative[file.path] = os.path.join(*whole.split("/"))
    return relative


def _safe_part(name: str) -> str:
    safe = "".join("_" if char in "\\\0\n\r" else char for char in name)
    return safe if confined.is_plain_name(safe) else safe.encode("utf-8", "replace")[:200].decode("utf-8", "replace")


def _is_content(file: ArtifactFile) -> bool:
    return file.digest.startswith("blake2b:")


def _hashed(source: IO[bytes], target: IO[bytes] | None) -> str:
    digest = hashlib.blake2b(digest_size=20)
    while block := source.read(COPIED_BYTES):
        digest.update(block)
        if target is not None:
            target.write(block)
    return f"blake2b:{digest.hexdigest()}"
