"""The artifacts of an offline run: named in its ``.wandb`` file, their files staged elsewhere on the machine that ran.

wandb 0.31 copies files into ``WANDB_DATA_DIR/artifacts/staging`` (``~/.local/share/wandb``), or names the original
where the caller said ``policy="immutable"``; ``wandb sync`` takes them from there. A file counts only with the MD5
that its manifest has: so what was changed isn't taken for what was logged, and a strange ``.wandb`` file can't have
other files of this machine copied.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trackers.readers.wandb.artifacts import FOLDER, INTERNAL, LATEST
from trackers.records import ArtifactFile, ArtifactRecord
from trackers.support import confined

SHOWN = 3


class StagedArtifacts:
    """The artifacts of one reading.

    Args:
        directory: where their files are put. near: where relative paths may begin: the directories around the run's.

    ``missing``: files that aren't there, as ``artifact/path``.
    """

    def __init__(self, directory: Path, near: list[Path]) -> None:
        self._directory = directory
        self._near = near
        self._seen: set[tuple[str, str]] = set()
        self.missing: list[str] = []

    def artifact(self, logged: Any, time: float) -> Iterator[ArtifactRecord]:
        """The artifact of an ``ArtifactRecord``; none where it is W&B's own, or came before."""
        if logged.type in INTERNAL or (logged.name, logged.digest) in self._seen:
            return
        self._seen.add((logged.name, logged.digest))
        metadata = dict(json.loads(logged.metadata or "{}"))
        name = str(metadata.pop("name", "") or logged.name)
        folder = f"{FOLDER}/{re.sub(r'[^A-Za-z0-9._-]+', '-', logged.name)}-{len(self._seen)}"
        files = []
        for entry in sorted(_entries(logged.manifest), key=lambda entry: str(entry["path"])):
            path, size = str(entry["path"]), int(entry.get("size") or 0)
            if entry.get("ref"):
                files.append(ArtifactFile(path=path, uri=str(entry["ref"]), size=size))
            elif self._place(entry, self._directory / folder):
                files.append(ArtifactFile(path=path, file=f"{folder}/{path}", size=size))
            else:
                self.missing.append(f"{name}/{path}")
        yield ArtifactRecord(
            time=time,
            name=name,
            type=logged.type,
            files=files,
            aliases=[alias for alias in logged.aliases if alias != LATEST],
            description=logged.description or None,
            metadata=metadata,
        )

    @property
    def note(self) -> str:
        """What is missing, in one line; "" if nothing."""
        if not self.missing:
            return ""
        shown = ", ".join(self.missing[:SHOWN]) + (", …" if len(self.missing) > SHOWN else "")
        what = "1 file isn't" if len(self.missing) == 1 else f"{len(self.missing):,} files aren't"
        return (
            f"artifacts: {what} on this machine as logged ({shown}): "
            "read the run where it was written, or `wandb sync` it there and read it from the server"
        )

    def _place(self, entry: dict[str, Any], folder: Path) -> bool:
        path = str(entry["path"])
        if not confined.inside(path):
            return False
        target = folder / path
        for source in self._candidates(str(entry.get("local_path") or "")):
            if source.is_file() and _md5(source) == entry.get("digest"):
                target.parent.mkdir(parents=True, exist_ok=True)
                temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
                shutil.copyfile(source, temporary)
                os.replace(temporary, target)
                return True
        return False

    def _candidates(self, local: str) -> Iterator[Path]:
        if not local:
            return
        if os.path.isabs(local):
            yield Path(local)
        else:
            yield from (place / local for place in self._near)


def _entries(manifest: Any) -> list[dict[str, Any]]:
    """The files of a manifest; one of more than 100,000 lies in a file of its own."""
    if not manifest.manifest_file_path:
        names = ("path", "digest", "ref", "size", "local_path")
        return [{name: getattr(entry, name) for name in names} for entry in manifest.contents]
    try:
        with gzip.open(manifest.manifest_file_path, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]
    except (OSError, EOFError, ValueError):
        return [{"path": manifest.manifest_file_path}]


def _md5(path: Path) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return base64.b64encode(digest.digest()).decode()
