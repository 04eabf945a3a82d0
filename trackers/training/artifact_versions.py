"""Artifacts of a run among the versions of its project: numbered when they are logged, found when they are used."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from trackers.artifacts import names, numbers, versions
from trackers.artifacts.stored import StoredArtifact
from trackers.backends import registry
from trackers.errors import DeliveryError, NotFound, Unavailable, UsageError
from trackers.readers.journal import in_store
from trackers.records import ArtifactRecord, escaped
from trackers.support.interruption import pass_on
from trackers.training.wandb_arguments import warn
from trackers.values.artifact import Artifact


class NoSuchVersion(NotFound, Unavailable):
    """A version that isn't in the directory of runs: scripts written for W&B catch ``wandb.errors.CommError``."""


def number(
    record: ArtifactRecord, run: Path, run_id: str, say: Callable[[str], object], seen: dict[tuple[str, int], str]
) -> None:
    """Give a record its number among the project's versions of that name; where none can be taken, it is said.

    Args:
        run: the run's directory. seen: see :func:`trackers.artifacts.numbers.assign`.
    """
    project, name = run.absolute().parent, escaped(record.name)
    if not names.can_name(name):
        say(f"log_artifact: {name!r:.200} is kept, but use_artifact can't name it: no '..' and line ends in names")
    holder = numbers.NumberHolder(versions.digest_of(record.files), run_id, record.time)
    try:
        record.version = numbers.assign(project, name, holder, lambda: versions.known_numbers(project, name), seen)
    except (OSError, ValueError) as error:
        pass_on(error)
        say(f"log_artifact: {name} is kept without a number of its own ({error}): it is counted when read")


def usable(aliases: list[str] | None, say: Callable[[str], object]) -> list[str]:
    """The aliases that a version can have; each other one is said and left out."""
    accepted = []
    for alias in dict.fromkeys(aliases or ()):
        try:
            accepted.append(alias if alias in ("", names.LATEST) else names.check_alias(alias))
        except UsageError as error:
            say(f"log_artifact: {error}; it is left out")
    return [alias for alias in accepted if alias]


def link(
    run: Any,
    what: str,
    artifact: Any,
    target: Any,
    aliases: Any = None,
    name: str | None = None,
    type: str | None = None,
) -> Artifact:
    """Log an artifact unless it is, and keep it as a version of a registry's collection, too.

    See ``Run.link_artifact``.

    Args:
        what: the method that the script called. name, type: what to log a path as.
    """
    is_logged = isinstance(artifact, StoredArtifact) or (isinstance(artifact, Artifact) and artifact._open is not None)
    source: Artifact = artifact if is_logged else run.log_artifact(artifact, name=name, type=type)
    if run.disabled or (source._open is None and not isinstance(source, StoredArtifact)):
        return source  # nothing is recorded, or it couldn't be kept, which was said
    made: list[Artifact] = []
    run._recorder.guard(what, _link, run, what, source, target, aliases, made)
    return made[0] if made else source


def _link(run: Any, what: str, source: Artifact, target: Any, aliases: Any, made: list[Artifact]) -> None:
    stored = source if isinstance(source, StoredArtifact) else cast("StoredArtifact", source._open())  # type: ignore
    path, _, alias = str("" if target is None else target).strip().partition(":")
    parts = path.split("/")
    if not 1 <= len(parts) <= 3 or not all(parts):
        raise UsageError(
            f"{target!r:.200} is no collection: give 'wandb-registry-NAME/COLLECTION', 'PROJECT/COLLECTION' or "
            f"'ENTITY/PROJECT/COLLECTION'; the artifact is kept as {stored.qualified_name}"
        )
    if "wandb" in run._info.trackers and registry.precheck("wandb").place(run._info) == "offline":
        warn(f"{what}: W&B links online only, and 'wandb sync' doesn't: TRACKER_MODE=offline and 'trackers sync' do")
    listed = [aliases] if isinstance(aliases, str) else list(aliases or ())
    all_aliases = [*listed, *([alias] if alias else [])]
    link_of = (path, stored.collection_name)
    run._log_artifact(stored, parts[-1], None, all_aliases, "copy", None, None, made, link=link_of)


def logged(artifact: Any, record: ArtifactRecord, run: Path, project: str) -> Artifact:
    """The artifact of a record that was written: what was given, if that is one."""
    made = artifact if isinstance(artifact, Artifact) else Artifact.kept(record.name, record.type)
    if isinstance(made, StoredArtifact):
        made = Artifact.kept(record.name, record.type, record.description, record.metadata)
    root, name = run.absolute().parent.parent, escaped(record.name)
    made._log(record, functools.partial(_find_stored, root, project, name, record.version))
    return made


def _find_stored(root: Path, project: str, name: str, number: int | None) -> StoredArtifact:
    return StoredArtifact(root, versions.find_in(root, project, name, number))


def use(run: Any, artifact_or_name: Any, type: str | None, use_as: str | None, *, is_model: bool = False) -> Artifact:
    """The version that a script uses; see ``Run.use_artifact``.

    Args:
        is_model: its type must say that it is a model.
    """
    match artifact_or_name:
        case StoredArtifact():
            artifact = _of_type(artifact_or_name, type)
        case Artifact():
            made = artifact_or_name if artifact_or_name._open is not None else run.log_artifact(artifact_or_name)
            if run.disabled or made._open is None:
                return made  # it couldn't be kept, which was said
            artifact = _of_type(made._open(), type)
        case _:
            artifact = find(run, artifact_or_name, type)
    if is_model and "model" not in artifact.type:
        raise UsageError(f"{artifact.name} is of type {artifact.type!r}, no model: use_artifact takes it")
    run._note_use(use_as or artifact.collection_name, artifact.qualified_name)
    return artifact


def find(run: Any, name: str | os.PathLike[str], type: str | None = None, project: str = "") -> StoredArtifact:
    """The version of that name.

    Args:
        run: whose directory of runs and project count; None: the configuration's.
        project: where to look if the name has none; default the run's.

    Raises:
        NotFound: there is none. UsageError: it is of another type, or the name can't be read.
    """
    if not isinstance(name, (str, os.PathLike)):
        raise UsageError(f"{name!r:.200} can't name an artifact: give a text, as in 'name:alias'")
    roots, own = search_roots(run)
    copies: list[StoredArtifact] = []
    missing: list[NotFound] = []
    for root in roots:
        try:
            copies.append(StoredArtifact(root, versions.find(root, os.fspath(name), project or own)))
        except NotFound as error:
            missing.append(error)
    if not copies:
        raise NoSuchVersion(str(missing[0]))
    # A store's copy may lack what this machine has just logged, and has what others have.
    by_number = names.number_of(os.fspath(name).rpartition(":")[2]) is not None
    return _of_type(copies[0] if by_number else max(copies, key=lambda copy: copy.logged_time), type)


def of_name(name: str, type: str, project: str = "") -> list[StoredArtifact]:
    """All versions of a name that are of a type and weren't removed, the newest first.

    Raises:
        NotFound: there is no such name. UsageError: the name can't be read.
    """
    roots, own = search_roots()
    try:
        of_type = versions.all_of(roots[0], name, project or own)
    except NotFound as error:
        raise NoSuchVersion(str(error)) from None
    return [
        StoredArtifact(roots[0], version)
        for version in reversed(of_type)
        if not version.removed and version.type == type
    ]


def _of_type(artifact: Any, type: str | None) -> StoredArtifact:
    assert isinstance(artifact, StoredArtifact)
    if type is not None and artifact.type != type:
        raise UsageError(f"{artifact.qualified_name} is of type {artifact.type!r}, not {type!r}")
    return artifact


def use_model(run: Any, name: str) -> str:
    """The path of a model's file or directory; see ``Run.use_model``."""
    artifact = use(run, name, None, None, is_model=True)
    folder = str(artifact.download())
    return os.path.join(folder, artifact.files()[0].path) if artifact.file_count == 1 else folder  # type: ignore[operator]


def search_roots(run: Any = None) -> tuple[list[Path], str]:
    """Directories of runs, and the project: a run's, else what the configuration says.

    Where runs are sent to a store: the copy of its runs, and those of this machine.

    Raises:
        UsageError: the store can't be read, and there is no copy.
    """
    from trackers import configuration

    made = run is not None and bool(run.path)
    options: Any = run._options if made else configuration.resolve()
    where, base, project = (_text(options, name) for name in ("TRACKER_DIR", "TRACKER_STORE_DIR", "TRACKER_PROJECT"))
    project = getattr(run, "project", "") or project
    own = Path(run.path).parent.parent if made else Path(where).expanduser()
    try:
        copy = in_store(where, base)
    except (DeliveryError, OSError) as error:
        pass_on(error)
        raise UsageError(f"artifacts of {where} can't be read: {error}") from None
    if copy is None:
        return [own.absolute()], project
    return [copy, own.absolute()] if made else [copy], project


def _text(options: Any, name: str) -> str:
    try:
        return str(options[name] or "")
    except KeyError:  # a run that another release began
        return ""
