"""Artifacts of a run among the versions of its project: numbered when they are logged, found when they are used."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackers.artifacts import numbers, versions
from trackers.artifacts.stored import StoredArtifact
from trackers.errors import NotFound, Unavailable, UsageError
from trackers.records import ArtifactRecord
from trackers.values.artifact import Artifact


class NoSuchVersion(NotFound, Unavailable):
    """A version that isn't in the directory of runs: scripts written for W&B catch ``wandb.errors.CommError``."""


def number(record: ArtifactRecord, run: Path, run_id: str, problem: Callable[[str], object]) -> None:
    """Give a record its number among the project's versions of that name; where none can be taken, it is said.

    Args:
        run: the run's directory.
    """
    project = run.absolute().parent
    claim = numbers.Claim(versions.digest_of(record.files), run_id, record.time)
    try:
        record.version = numbers.take(project, record.name, claim, lambda: versions.known_numbers(project, record.name))
    except OSError as error:
        problem(f"log_artifact: {record.name} is kept without a number of its own ({error}): it is counted when read")


def logged(artifact: Any, record: ArtifactRecord, run: Path, project: str) -> Artifact:
    """The artifact of a record that was written: what was given, if that is one."""
    made = artifact if isinstance(artifact, Artifact) else Artifact(record.name, record.type)
    if isinstance(made, StoredArtifact):
        made = Artifact(record.name, record.type, record.description, record.metadata)
    reference = f"{record.name}:v{record.version}" if record.version is not None else record.name
    root = run.absolute().parent.parent
    made._log(record, lambda: StoredArtifact(root, versions.find_in(root, project, reference)))
    return made


def use(run: Any, artifact_or_name: Any, type: str | None, use_as: str | None, *, is_model: bool = False) -> Artifact:
    """The version that a script uses; see ``Run.use_artifact``.

    Args:
        is_model: its type must say that it is a model.
    """
    if isinstance(artifact_or_name, Artifact) and not isinstance(artifact_or_name, StoredArtifact):
        made = artifact_or_name if artifact_or_name._open is not None else run.log_artifact(artifact_or_name)
        if run.disabled or made._open is None:
            return made  # it couldn't be kept, which was said
        found = made._open()
    elif isinstance(artifact_or_name, StoredArtifact):
        found = artifact_or_name
    else:
        root, project = place(run)
        try:
            found = StoredArtifact(root, versions.find(root, os.fspath(artifact_or_name), project))
        except NotFound as error:
            raise NoSuchVersion(str(error)) from None
    assert isinstance(found, StoredArtifact)
    if type is not None and found.type != type:
        raise UsageError(f"{found.qualified_name} is of type {found.type!r}, not {type!r}")
    if is_model and "model" not in found.type:
        raise UsageError(f"{found.name} is of type {found.type!r}, no model: use_artifact takes it")
    run._note_use(use_as or found.collection_name, found.qualified_name)
    return found


def use_model(run: Any, name: str) -> str:
    """The path of a model's file or directory; see ``Run.use_model``."""
    found = use(run, name, None, None, is_model=True)
    folder = str(found.download())
    return os.path.join(folder, found.files()[0].path) if found.file_count == 1 else folder  # type: ignore[operator]


def place(run: Any = None) -> tuple[Path, str]:
    """Where runs lie, and the project: a run's, else what the configuration says."""
    if run is not None and run.path:
        return Path(run.path).absolute().parent.parent, run.project
    from trackers import configuration

    options = configuration.resolve()
    project = getattr(run, "project", "") or str(options["TRACKER_PROJECT"] or "")
    return Path(str(options["TRACKER_DIR"])).expanduser().absolute(), project
