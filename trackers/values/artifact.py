"""Artifacts: files and directories kept with a run. See :mod:`trackers.values.file_snapshot` for how they are kept."""

from __future__ import annotations

import base64
import contextlib
import copy
import filecmp
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, NamedTuple, NoReturn
from urllib.parse import unquote, urlparse

from trackers import records
from trackers.errors import UsageError, did_you_mean
from trackers.formats.json_values import text, to_json_values
from trackers.media import MediaStore, as_media
from trackers.media.base import MediaValue
from trackers.records import ArtifactFile
from trackers.support.interruption import pass_on, suppress
from trackers.support.redaction import mask, mask_source, mask_text
from trackers.values import artifact_media
from trackers.values.file_snapshot import inside_name, keep_content, snapshot, walk

CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors", ".pkl", ".h5", ".keras", ".onnx", ".gguf", ".msgpack")
"""Files that are of type "model" where no type is given."""


LOGGED = (
    "commit_hash", "created_at", "download", "file", "get", "get_entry", "get_path", "id", "logged_by", "manifest",
    "new_draft", "project", "qualified_name", "source_name", "state", "updated_at", "used_by", "verify", "delete",
    "unlink", "ttl", "history_step", "linked_artifacts", "use_as",
    "version_index", "collection_name", "source_collection", "source_project", "source_version",
    "entity", "checkout", "is_link", "link", "source_artifact", "source_entity", "source_qualified_name", "tags", "url",
)  # fmt: skip
"""What a logged artifact has, and a new one hasn't (:class:`trackers.artifacts.stored.StoredArtifact`)."""


BEFORE_LOGGING: dict[str, Any] = {"state": "PENDING", "id": None, "use_as": None}
"""What of that a new one has all the same, as in W&B."""

POLICIES = {"mutable": "copy", "immutable": "link", None: "copy", "copy": "copy", "link": "link"}
"""W&B's words for how a file is kept, and this package's."""

NAME = re.compile(r"[a-zA-Z0-9_\-.]{1,128}")
"""Names that W&B takes: https://docs.wandb.ai/models/artifacts/construct-an-artifact"""

RESERVED = {"job": "", "run_table": "run-", "code": "source-"}
"""W&B's own types, and with what a name of one begins that is its own."""


class NotLogged(UsageError, AttributeError):
    """Something of a logged artifact, asked of a new one."""


class Finalized(UsageError, AttributeError):
    """A change of an artifact that is logged."""


class WrongType(UsageError, TypeError):
    """A value to add, or metadata, of a type that an artifact doesn't take."""


class NoSuchFile(UsageError, FileNotFoundError):
    """A file or directory to add that isn't there."""

    __str__ = UsageError.__str__


class Referable:
    """What an artifact has under a name: a file, or an address (``ref``)."""

    path: str
    ref: str | None

    def ref_target(self) -> str:
        """The address.

        Raises:
            UsageError: it is a file.
        """
        if self.ref is None:
            raise UsageError(f"{self.path!r} is a file, no reference")
        return self.ref


class ArtifactManifestEntry(Referable):
    """A file that was added to an artifact, or an address.

    Attributes:
        path: its name in the artifact. local_path: where the file is; None for an address or a media value.
        ref: the address; None for a file. size: bytes; None where it isn't known yet.
    """

    birth_artifact_id = None
    skip_cache = False

    def __init__(self, path: str, local_path: Path | None = None, ref: str | None = None) -> None:
        self.path = self.name = path
        self.local_path = None if local_path is None else str(local_path)
        self.ref = ref
        self.extra: dict[str, Any] = {}

    @property
    def _where(self) -> str | None:
        address = self.ref or ""
        return unquote(urlparse(address).path) if address.startswith("file://") else self.local_path

    @property
    def size(self) -> int | None:
        with suppress(OSError):
            return None if self._where is None else os.stat(self._where).st_size
        return None

    @property
    def digest(self) -> str | None:
        """MD5 of the file as it is now, in base64; of an address that isn't on this machine the address itself."""
        if self._where is None:
            return self.ref
        with suppress(OSError), open(self._where, "rb") as file:
            return base64.b64encode(_md5(file).digest()).decode("ascii")
        return self.ref

    def download(self, *arguments: Any, **more: Any) -> NoReturn:
        """Not yet.

        Raises:
            NotLogged: always.
        """
        raise NotLogged(f"{self.path!r} can be downloaded once its artifact is logged")

    def __repr__(self) -> str:
        return f"<trackers.ArtifactManifestEntry {self.path!r}>"


HELD_BYTES = 64 << 20
"""Of files that ``add_file`` is given, held as they are then: a script may write the next one to the same path."""


class _Source(NamedTuple):
    path: Path
    policy: str
    seen: tuple[int, int]
    content: bytes | None = None


class Artifact:
    """Files under one name and type, as ``run.log_artifact`` takes them.

    Files are taken as they are when the artifact is *logged*; one that changed since it was added is said so.

    Args:
        name: its name in every tracker.
        type: "model", "dataset", …
        description: a text that is shown with it.
        metadata: JSON values.
        incremental, use_as, storage_region, digest_algorithm: taken for W&B's sake; without meaning here.

    Raises:
        UsageError: a name or a type that W&B refuses: a name has 1 to 128 letters, digits, "-", "_" and ".".
    """

    incremental = False
    digest_algorithm = "MD5"
    distributed_id = None

    def __init__(
        self,
        name: str,
        type: str = "file",
        description: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        incremental: bool = False,
        use_as: str | None = None,
        storage_region: str | None = None,
        digest_algorithm: str = "MD5",
    ) -> None:
        self.incremental, self.digest_algorithm = incremental, digest_algorithm
        _check_names(name, type)
        self._begin(str(name), str(type), description, metadata)

    @classmethod
    def kept(
        cls, name: str, type: str, description: str | None = None, metadata: Mapping[str, Any] | None = None
    ) -> Artifact:
        """One of any name that a record can have: of a file, of a source that was read, of this package's own."""
        made = cls.__new__(cls)
        made._begin(name, type, description, metadata)
        return made

    def _begin(self, name: str, type: str, description: str | None, metadata: Mapping[str, Any] | None) -> None:
        self.name, self.type, self.description = name, type, description
        self.metadata = metadata
        self._sources: dict[str, _Source] = {}
        self._references: dict[str, str] = {}
        self._seen: dict[str, tuple[int, str]] = {}
        self._room = HELD_BYTES
        self._values: dict[str, MediaValue] = {}
        self._directories: set[str] = set()
        self._made: tempfile.TemporaryDirectory[str] | None = None
        self._version: int | None = None
        self._open: Callable[[], Artifact] | None = None
        self._logged: tuple[list[str], str | None, dict[str, Any]] = ([], None, {})
        self._finalized = False
        self.aliases: list[str] = []

    @property
    def metadata(self) -> dict[str, Any]:
        """JSON values; what is assigned replaces all of them.

        Raises:
            UsageError, TypeError: what is assigned is no mapping.
        """
        return self._metadata

    @metadata.setter
    def metadata(self, value: Mapping[str, Any] | None) -> None:
        if value is not None and not isinstance(value, Mapping):
            raise WrongType(f"an artifact's metadata are a mapping, not {short(value)}")
        self._metadata: dict[str, Any] = to_json_values(value or {})

    def _log(self, record: records.ArtifactRecord, open_it: Callable[[], Artifact]) -> None:
        """It was logged as this record, and can be opened as a stored one."""
        self._version, self._open = record.version, open_it
        self.aliases = list(dict.fromkeys([*record.aliases, "latest"]))
        self._logged = (list(self.aliases), self.description, copy.deepcopy(self.metadata))

    @property
    def version(self) -> str | None:
        """Its number once it is logged: "v3"; None before."""
        return None if self._version is None else f"v{self._version}"

    def __getattr__(self, name: str) -> Any:
        if name not in LOGGED:
            raise AttributeError(f"an artifact has no {name!r}{did_you_mean(name, [*LOGGED, *dir(type(self))], '')}")
        if self._open is None:
            if name == "manifest":
                return SimpleNamespace(entries=self._entries())
            if name in BEFORE_LOGGING or name == "source_name":
                return BEFORE_LOGGING.get(name, self.name)
            raise NotLogged(f"artifact {self.name!r} isn't logged: {name} is there after run.log_artifact")
        return getattr(self._open(), name)

    def _entries(self) -> dict[str, ArtifactManifestEntry]:
        """What was added, by name, as ``manifest.entries`` of a logged one."""
        return {entry.path: entry for entry in map(self._entry, self.files)}

    def _entry(self, name: str) -> ArtifactManifestEntry:
        source = self._sources.get(name)
        return ArtifactManifestEntry(name, source and source.path, self._references.get(name))

    def get_added_local_path_name(self, local_path: str) -> str | None:
        """The name under which a file was added; None if it wasn't."""
        path = Path(local_path).absolute()
        return next((name for name, source in self._sources.items() if source.path == path), None)

    def __getitem__(self, name: str) -> Any:
        return self.get(name)

    def __setitem__(self, name: str, value: Any) -> None:
        self.add(value, name)

    @property
    def digest(self) -> str:
        """A digest of names and content, as the files are now: 32 hexadecimal digits."""
        hashed = hashlib.md5(usedforsecurity=False)
        for name in sorted({*self._sources, *self._references, *self._values}):
            hashed.update(name.encode("utf-8", "surrogatepass") + b"\0")
            source = self._sources.get(name)
            if source is None:
                hashed.update(self._references.get(name, "").encode("utf-8", "surrogatepass"))
            else:
                with suppress(OSError), open(source.path, "rb") as file:
                    _md5(file, hashed)
        return hashed.hexdigest()

    @property
    def size(self) -> int:
        """Bytes of the files that were added."""
        return sum(source.seen[0] for source in self._sources.values())

    @property
    def file_count(self) -> int:
        """Number of files that were added."""
        return len(self._sources)

    def finalize(self) -> None:
        """Let nothing be added any more; ``run.log_artifact`` does so, too."""
        self._finalized = True

    def _changeable(self) -> None:
        if self._finalized or self._open is not None:
            raise Finalized(f"artifact {self.name!r} is logged or finalized: change new_draft() of it, and log that")

    def is_draft(self) -> bool:
        """Whether it isn't logged."""
        return self._version is None

    def save(self, project: str | None = None, settings: Any = None) -> None:
        """Have changes of ``aliases``, ``description`` and ``metadata`` count after it was logged; before, nothing.

        Raises:
            UsageError: as of a stored artifact.
        """
        if self._open is None:
            return
        stored, (aliases, description, metadata) = self._open(), self._logged
        remaining = [alias for alias in stored.aliases if alias in self.aliases or alias not in aliases]
        stored.aliases = [*remaining, *(alias for alias in self.aliases if alias not in (*aliases, *remaining))]
        if (self.description, self.metadata) != (description, metadata):
            stored.description, stored.metadata = self.description, self.metadata
        stored.save()
        self._logged = (list(self.aliases), self.description, copy.deepcopy(self.metadata))

    def remove(self, item: Any) -> None:
        """Take a file out again, or all files of a directory.

        Raises:
            FileNotFoundError: there is no such file in the artifact. Finalized: it is logged.
        """
        self._changeable()
        name = str(getattr(item, "path", item)).strip("/")
        names = {*self._sources, *self._references, *self._values}
        gone = {file for file in names if file == name or file.startswith(name + "/")}
        if not gone:
            raise FileNotFoundError(f"no such file in the artifact: {name}")
        for file in gone:
            for entries in (self._sources, self._references, self._values):
                entries.pop(file, None)
        self._directories = {above for file in self.files for above in _folders(file)}

    def add_file(
        self,
        local_path: str | os.PathLike[str],
        name: str | None = None,
        is_tmp: bool | None = False,
        skip_cache: bool | None = False,
        policy: str | None = "copy",
        overwrite: bool = False,
    ) -> ArtifactManifestEntry:
        """Add a file under ``name`` (default its own).

        Args:
            policy: "copy" (W&B's "mutable") or "link" (its "immutable"); see :mod:`trackers.values.file_snapshot`.

        Returns:
            its entry: ``path``, ``size``, ``digest``, ``local_path``.

        Raises:
            FileNotFoundError: no such file. UsageError: a name that leads out of the artifact, or is taken; an
                unknown policy. Finalized: it is logged.
        """
        path = _path(local_path)
        if not path.is_file():
            raise NoSuchFile(f"no such file: {path}")
        name = inside_name(name if name is not None else path.name)
        self._add(name, path, policy, overwrite)
        source = self._sources[name]
        if source.policy == "copy" and source.content is None and source.seen[0] <= self._room:
            self._sources[name] = source._replace(content=path.read_bytes())
            self._room -= source.seen[0]
        return self._entry(name)

    def add_dir(
        self,
        local_path: str | os.PathLike[str],
        name: str | None = None,
        skip_cache: bool | None = False,
        policy: str | None = "copy",
        merge: bool = False,
    ) -> None:
        """Add all files below a directory, with their relative paths, perhaps below ``name``.

        Raises:
            FileNotFoundError: no such directory. UsageError: as :meth:`add_file`.
        """
        directory = _path(local_path)
        if not directory.is_dir():
            raise NoSuchFile(f"no such directory: {directory}")
        prefix = inside_name(name) + "/" if name and name not in (".", "./") else ""
        for relative, path in walk(directory):
            self._add(inside_name(prefix + relative), path, policy, merge)

    def add_reference(
        self, uri: Any, name: str | None = None, checksum: bool = True, max_objects: int | None = None
    ) -> list[ArtifactManifestEntry]:
        """Add an address (s3://…, https://…, file://…) that is named, not fetched; of an entry its own.

        A directory of this machine is one address for each of its files.

        Returns:
            an entry for each address.

        Raises:
            UsageError: no address. FileNotFoundError: no such file on this machine. Finalized: it is logged.
        """
        uri = str(getattr(uri, "ref", None) or uri)
        scheme, separator, rest = uri.partition("://")
        if not separator or not scheme or not rest:
            raise UsageError(f"{uri!r} isn't an address: give one like s3://bucket/key, or use add_file")
        path = Path(unquote(urlparse(uri).path)) if scheme == "file" else None
        if path is not None and not path.exists():
            raise NoSuchFile(f"no such file or directory: {path}")
        if path is not None and path.is_dir():
            prefix = inside_name(name) + "/" if name and name not in (".", "./") else ""
            found = {inside_name(prefix + relative): file.as_uri() for relative, file in walk(path)}
        else:
            shown = mask_text(uri).partition("://")[2]
            found = {inside_name(name if name is not None else shown.rstrip("/").rpartition("/")[2] or shown): uri}
        for place, address in found.items():
            if self._references.get(place) != address:
                self._free(place, overwrite=False)
            self._references[place] = address
            entry = self._entry(place)
            self._seen[place] = entry.size or 0, f"md5:{entry.digest}" if checksum and path is not None else ""
        return [self._entry(place) for place in found]

    def add(self, obj: Any, name: str, overwrite: bool = False) -> ArtifactManifestEntry:
        """Add a media value under ``name``, which ``get`` of the logged artifact gives back.

        Returns:
            its entry; the size isn't known before the artifact is logged.

        Raises:
            UsageError: not media (a TypeError, too), or the name is taken. Finalized: the artifact is logged.
        """
        value = as_media(obj)
        if not isinstance(value, MediaValue):
            raise WrongType(f"{type(obj).__name__} can't be added: give an Image, Audio, Video, Table or Html")
        name = artifact_media.path_of(inside_name(os.fspath(name)), value.type)
        self._free(name, overwrite)
        self._values[name] = value
        return self._entry(name)

    @contextlib.contextmanager
    def new_file(
        self, name: str, mode: str = "x", encoding: str | None = None, policy: str = "link"
    ) -> Iterator[IO[Any]]:
        """Open a new file and add it under ``name`` when it is closed.

        Raises:
            UsageError: a bad name, or one that is taken.
        """
        name = inside_name(name)
        self._free(name, overwrite="w" in mode)
        if self._made is None:
            self._made = tempfile.TemporaryDirectory(prefix="trackers-artifact-")
        path = Path(self._made.name, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, mode, encoding=encoding or (None if "b" in mode else "utf-8")) as file:
            yield file
        self._add(name, path, policy, overwrite=True)

    @property
    def files(self) -> list[str]:
        """Names of all that was added."""
        return [*self._sources, *self._references, *self._values]

    def wait(self, timeout: float | None = None) -> Artifact:
        """Itself: what was logged is safe already; trackers get it when they can."""
        return self

    def _add(self, name: str, path: Path, policy: str | None, overwrite: bool) -> None:
        if policy not in POLICIES:
            raise UsageError(f"policy={policy!r}: known are {', '.join(filter(None, POLICIES))}")
        status = path.stat()
        if name in self._sources and _same(self._sources[name], path, status):
            return
        self._free(name, overwrite)
        self._sources[name] = _Source(path, POLICIES[policy], (status.st_size, status.st_mtime_ns))

    def _free(self, name: str, overwrite: bool) -> None:
        self._changeable()
        kinds = (self._sources, self._references, self._values)
        if any(name in kind for kind in kinds) and not overwrite:
            raise UsageError(f"the artifact {self.name!r} has a file {name!r} already")
        above = _folders(name)
        file = next((folder for folder in above if any(folder in kind for kind in kinds)), "")
        if file or name in self._directories:
            raise UsageError(f"artifact {self.name!r}: {file or name!r} can't be a file and a directory")
        for kind in kinds:
            kind.pop(name, None)
        self._directories.update(above)

    def _store_files(self, store: MediaStore, say: Callable[[str], object] | None) -> list[ArtifactFile]:
        missing = [str(one.path) for one in self._sources.values() if one.content is None and not one.path.is_file()]
        if missing:
            raise FileNotFoundError(f"gone since they were added to {self.name!r}: {', '.join(missing[:5])}")
        files = []
        for name, source in self._sources.items():
            if source.content is not None and len(source.content) <= (store.max_bytes or HELD_BYTES):
                files.append(keep_content(source.content, store, name, source.path))
                continue
            status = source.path.stat()
            if say is not None and (status.st_size, status.st_mtime_ns) != source.seen:
                say(f"{source.path} changed after it was added to the artifact {self.name!r}: logged as it is now")
            files.append(snapshot(source.path, store, source.policy, name, say))
        for name, uri in self._references.items():
            size, digest = self._seen.get(name, (0, ""))
            files.append(ArtifactFile(path=name, uri=mask_text(uri), size=size, digest=digest))
        self._sources = {name: source._replace(content=None) for name, source in self._sources.items()}
        media = {file.path: file for name, value in self._values.items()
                 for file in artifact_media.files(name, value, store)}  # fmt: skip
        return [*files, *media.values()]


def record(
    artifact: Artifact | str | os.PathLike[str],
    *,
    store: MediaStore,
    time: float,
    step: int | None = None,
    name: str | None = None,
    type: str | None = None,
    aliases: Sequence[str] | str | None = None,
    policy: str = "copy",
    metadata: Mapping[str, Any] | None = None,
    tags: list[Any] | None = None,
    say: Callable[[str], object] | None = None,
) -> records.ArtifactRecord:
    """The record of an artifact, or of the file or directory at a path; its files are kept as they are now.

    ``metadata["path"]`` is where a path pointed.

    Raises:
        FileNotFoundError: something is missing; nothing is recorded then.
        UsageError: neither an artifact nor a path, or a bad policy.
        OSError: a file can't be read, or the store can't be written.
    """
    known = mask({**(artifact.metadata if isinstance(artifact, Artifact) else {}), **(metadata or {})})
    names = [aliases] if isinstance(aliases, str) else [str(alias) for alias in aliases or ()]
    if isinstance(artifact, Artifact) and artifact.is_draft():
        names = list(dict.fromkeys([*names, *map(str, artifact.aliases)]))
        if tags is None and isinstance(given := vars(artifact).get("tags"), (list, tuple)):
            tags = [str(tag) for tag in given]
    told = {} if tags is None else mask({"tags": tags})
    known = {**told, **known}
    if isinstance(artifact, Artifact):
        return records.ArtifactRecord(
            step=step,
            time=time,
            name=name or artifact.name,
            type=type or artifact.type,
            files=artifact._store_files(store, say),
            aliases=names,
            description=artifact.description and mask_source(artifact.description),
            metadata=known,
            **told,
        )
    if not isinstance(artifact, (str, os.PathLike)):
        raise UsageError(f"log_artifact takes a path or an Artifact, not {artifact!r:.80}")
    path = Path(artifact).absolute()
    if path.is_dir():
        # The run's own directory may lie inside: it grows while it is copied.
        own = store.directory.absolute()
        members = [(relative, file) for relative, file in walk(path) if not file.is_relative_to(own)]
        files = [snapshot(file, store, policy, relative, say) for relative, file in members]
    else:
        files = [snapshot(path, store, policy, None, say)]
    guessed = "model" if path.suffix.lower() in CHECKPOINTS else "file"
    return records.ArtifactRecord(
        step=step,
        time=time,
        name=name or path.name or "files",
        type=type or guessed,
        files=files,
        aliases=names,
        metadata={"path": str(path), **known},
        **told,
    )


def unlogged(source: Any, name: Any, type: Any) -> Artifact:
    """What ``log_artifact`` gives where nothing was kept: the artifact itself, of anything else one without files."""
    if isinstance(source, Artifact):
        return source
    path = os.path.basename(os.fsdecode(source)) if isinstance(source, (str, bytes, os.PathLike)) else ""
    return Artifact.kept(text(name or path) or "files", text(type or "file"))


class NullArtifact(Artifact):
    """What a run that records nothing uses: without files, false, and each call works."""

    version = "v0"

    def __init__(self, name: Any = "", type: Any = "") -> None:
        self._begin(text(name or "") or "files", text(type or "") or "file", None, None)

    @property
    def files(self) -> Any:
        """None, also as W&B's ``files()``."""
        return _Nothing()

    def __bool__(self) -> bool:
        return False

    def download(self, root: Any = None, *arguments: Any, **more: Any) -> str:
        """An empty directory: ``root``, or one that is removed when the process ends."""
        if root is None:
            self._made = self._made or tempfile.TemporaryDirectory(prefix="trackers-artifact-")
            return self._made.name
        Path(root).mkdir(parents=True, exist_ok=True)
        return str(root)

    def file(self, root: Any = None) -> str:
        """A path in that directory; there is no such file."""
        return os.path.join(self.download(root), os.path.basename(self.name))

    def get_entry(self, name: Any) -> NullArtifact:
        """One like this."""
        return NullArtifact(name, self.type)

    def __getattr__(self, name: str) -> Any:
        if name not in LOGGED and name not in ("delete", "unlink"):
            raise AttributeError(f"an artifact has no {name!r}")
        if name in ("get", "logged_by", "used_by", "verify", "link", "is_link", "delete", "unlink"):
            return lambda *arguments, **more: None
        known = {
            "checkout": self.download, "get_path": self.get_entry, "new_draft": lambda: self, "tags": [],
            "linked_artifacts": [], "manifest": SimpleNamespace(entries={}), "version_index": 0,
            "ttl": None, "history_step": None, "use_as": None, "state": "COMMITTED",
        }  # fmt: skip
        return known.get(name, f"{self.name.partition(':')[0]}:v0" if name.endswith("_name") else "")


class _Nothing(list[Any]):
    """An empty list that can be called."""

    def __call__(self, *arguments: Any, **more: Any) -> _Nothing:
        return self


def _check_names(name: Any, type: Any) -> None:
    """See that W&B takes a name and a type.

    Raises:
        UsageError: it doesn't.
    """
    if not NAME.fullmatch(str(name)):
        raise UsageError(
            f"an artifact's name has 1 to 128 letters, digits, '-', '_' and '.', not {short(name)}: "
            f"take {_safe(str(name))!r}"
        )
    word = str(type)
    own = RESERVED.get(word)
    if type is None or word.startswith("wandb-") or (own is not None and str(name).startswith(own)):
        raise UsageError(f"an artifact of type {short(type)} can't be named {name!r}: that is W&B's own")


def _safe(name: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_\-.]", "_", name)[:128] or "data"


def short(value: Any) -> str:
    """A value in a message."""
    return f"{value!r:.80}"


def _path(local_path: Any) -> Path:
    """Raises UsageError where it is no path."""
    try:
        return Path(local_path).absolute()
    except TypeError as error:
        pass_on(error)
        raise UsageError(f"{short(local_path)} is no path") from None


def _md5(file: IO[bytes], hashed: Any = None) -> Any:
    hashed = hashed or hashlib.md5(usedforsecurity=False)
    while block := file.read(1 << 20):
        hashed.update(block)
    return hashed


def _folders(name: str) -> list[str]:
    """The directories that a file's name leads through."""
    return [name[:index] for index, sign in enumerate(name) if sign == "/"]


def _same(known: _Source, path: Path, status: os.stat_result) -> bool:
    """Whether a file that is added again is what was added before: as in W&B, that is no error."""
    if known.content is not None:
        return known.content == path.read_bytes()
    if known.path == path:
        return known.seen == (status.st_size, status.st_mtime_ns)
    return known.path.is_file() and filecmp.cmp(known.path, path, shallow=False)
