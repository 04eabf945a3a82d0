"""Addresses of object stores, and the local directories that belong to them.

With ``TRACKER_DIR=s3://bucket/prefix`` a run is written to a local directory and sent to
``<prefix>/<project>/<run id>/`` meanwhile. Commands that read the address get a local copy of what was sent.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE, UsageError
from trackers.support import user_directories
from trackers.support.sightings import Moment

SCHEMES = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "abfs", "abfss": "abfss",
    "file": "file",
}  # fmt: skip
"""Accepted schemes, and how obstore spells them."""
STORAGE = "storage"
"""Name of the tracker that sends runs to a store. Its delivery ends last, since it sends what all others wrote."""
COPY_MARKER = ".copy-of-a-store"
"""Name of the file that marks a copy of a store; it holds the store's address and when the copy was as new as that, a
line each. Changes to a copy aren't sent back."""

MOST_ADDRESS_BYTES = 4096


def is_address(text: object) -> bool:
    """Whether a directory of runs is a store's address. So is ``s3:/bucket``, which ``Path`` makes of ``s3://bucket``."""
    return isinstance(text, (str, os.PathLike)) and _split(os.fspath(text)) is not None


def normalize(text: str | os.PathLike[str]) -> str:
    """An address as it is compared and shown: scheme as obstore spells it, no slash at the end.

    Raises:
        UsageError: it is no store's, names no bucket, holds credentials, or has signs that a prefix can't have.
    """
    parts = _split(os.fspath(text))
    if parts is None:
        raise UsageError(f"{os.fspath(text)!r} is no store: give s3://, gs://, az:// or file:// and a path")
    scheme, rest = parts
    if scheme == "file":
        return f"file:///{rest}"
    if not rest:
        raise UsageError(f"{scheme}:// names no bucket: give {scheme}://bucket/prefix")
    if "@" in rest.split("/", 1)[0] and not scheme.startswith("abfs"):
        raise UsageError(
            f"an address of a store holds no keys: give {scheme}://bucket/prefix; the environment has them"
        )
    if any(sign in rest for sign in "?#\n\r\0") or ".." in rest.split("/"):
        raise UsageError(f"{scheme}://{rest[:200]!r}: give a prefix without '?', '#', '..' and line ends")
    return f"{scheme}://{rest}"


def _split(text: str) -> tuple[str, str] | None:
    """Scheme and rest of an address; None for a local path."""
    scheme, separator, rest = text.partition(":/")
    known = SCHEMES.get(scheme.lower())
    return (known, rest.strip("/")) if separator and known is not None else None


def store_of(directory: object) -> str:
    """The store's normalized address if a directory of runs is a store; "" for a local directory.

    Raises:
        UsageError: an address of no known store: ``s4://bucket`` isn't taken for a directory of that name.
    """
    text = str(directory or "")
    return normalize(text) if is_address(text) or "://" in text else ""


def local_directory(where: str, base: str = "") -> Path:
    """The local directory in which runs for a store are written.

    Args:
        base: what ``TRACKER_STORE_DIR`` says; default ``trackers/stores`` in the user's cache directory.
    """
    return _store_directory(where, base, "runs")


def is_local_directory(root: Path, where: str) -> bool:
    """Whether a directory is a store's :func:`local_directory`, wherever ``TRACKER_STORE_DIR`` puts it."""
    return root.resolve().parts[-2:] == local_directory(where, "/").parts[-2:]


def copy_directory(where: str, base: str = "") -> Path:
    """The local directory that holds the copy of a store's runs. base: see :func:`local_directory`."""
    return _store_directory(where, base, "copy")


def display_name(root: Path) -> str:
    """A directory of runs as messages name it: its path, or the store's address if it is the copy of a store."""
    try:
        with open(root / COPY_MARKER, "rb") as file:
            return normalize(file.readline(MOST_ADDRESS_BYTES).decode().strip())
    except (OSError, ValueError, UsageError):
        return str(root)


def copied_at(run: Path) -> Moment | None:
    """When a run's directory was as new as the store that it is the copy of; None where it is no copy."""
    for folder in run.resolve().parents[:2]:
        try:
            with open(folder / COPY_MARKER, "rb") as file:
                return msgspec.json.decode(file.read(2 * MOST_ADDRESS_BYTES).partition(b"\n")[2], type=Moment)
        except (OSError, *UNDECODABLE):
            continue
    return None


def _store_directory(where: str, base: str, what: str) -> Path:
    import hashlib  # not imported for runs without a store

    base = base or str(user_directories.of("CACHE") / "stores")
    where = normalize(where)
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", where.rpartition("/")[2])[:60].strip("-.") or "store"
    digest = hashlib.sha256(where.encode()).hexdigest()[:10]
    return Path(os.path.expanduser(base), f"{name}-{digest}", what).absolute()
