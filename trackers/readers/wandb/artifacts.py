"""The artifacts that a run in W&B logged, with their files."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from trackers.readers.helpers import warn
from trackers.readers.wandb.fetch import listed, patiently
from trackers.records import ArtifactFile, ArtifactRecord
from trackers.support import confined

INTERNAL = ("run_table", "wandb-history", "wandb-run-history", "job")
"""Types that W&B makes by itself: tables and histories are read where they belong."""
FOLDER = "artifacts"
MOST = 100_000
"""Maximum number of artifacts of one run that are read."""
LATEST = "latest"
"""An alias that W&B gives by itself."""


def artifacts(remote: Any, directory: Path, time: float) -> Iterator[ArtifactRecord]:
    """Each artifact of a run, in the order of their making; files are fetched into ``directory``, each once.

    Args:
        remote: the client's run.
        time: Unix seconds for an artifact that doesn't say when it was made.
    """
    for logged in listed(patiently(remote.logged_artifacts), MOST):
        if logged.type not in INTERNAL:
            yield _artifact(logged, directory, time)


def _artifact(logged: Any, directory: Path, time: float) -> ArtifactRecord:
    version = str(logged.name)
    folder = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9._-]+', '-', version)}"
    metadata = dict(logged.metadata or {})
    name = str(metadata.pop("name", "") or version.rpartition(":")[0])
    files = []
    entries: dict[str, Any] = patiently(lambda: dict(logged.manifest.entries))
    for path, entry in sorted(entries.items()):
        if not confined.inside(path):
            warn(f"artifact {version}: {path!r:.200} isn't a path inside of it")
            continue
        if entry.ref:
            files.append(ArtifactFile(path=path, uri=str(entry.ref), size=entry.size or 0))
            continue
        target = directory / folder / path
        if not target.is_file() or (entry.size is not None and target.stat().st_size != entry.size):
            _download(logged, path, directory / folder)
        files.append(ArtifactFile(path=path, file=f"{folder}/{path}", size=target.stat().st_size))
    return ArtifactRecord(
        time=_time(logged.created_at, time),
        name=name,
        type=logged.type,
        files=files,
        aliases=[alias for alias in logged.aliases if alias != LATEST],
        description=logged.description or None,
        metadata=metadata,
    )


def _download(logged: Any, path: str, root: Path) -> None:
    patiently(lambda: logged.get_entry(path).download(root=str(root)))


def _time(text: Any, default: float) -> float:
    with contextlib.suppress(ValueError):
        when = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        return (when if when.tzinfo else when.replace(tzinfo=timezone.utc)).timestamp() or default
    return default
