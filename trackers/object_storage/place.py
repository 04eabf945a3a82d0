"""Addresses of stores, and the directories of this machine that stand for them.

``TRACKER_DIR=s3://bucket/prefix`` means: a run is written to a directory of this machine, and sent to
``<prefix>/<project>/<run id>/`` meanwhile. Who reads the address gets a copy of what was sent.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from trackers.errors import UsageError

SCHEMES = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "abfs", "abfss": "abfss",
    "file": "file",
}  # fmt: skip
"""Schemes of addresses, and how obstore spells them."""
TRACKER = "storage"
"""The tracker that sends runs to a store: the delivery that ends last, for it sends what all others wrote."""
COPY = ".copy-of-a-store"
"""A file in the directory of a copy, which nobody is to change: what is done there isn't sent back."""

MOST_ADDRESS = 4096


def is_address(text: object) -> bool:
    """Whether a directory of runs is a store's address. ``s3:/bucket`` is one, too: ``Path`` makes that of it."""
    return isinstance(text, (str, os.PathLike)) and _parts(os.fspath(text)) is not None


def address(text: str | os.PathLike[str]) -> str:
    """An address as it is compared and shown: one spelling, without a slash at its end.

    Raises:
        UsageError: it names no bucket, or holds a password.
    """
    parts = _parts(os.fspath(text))
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


def _parts(text: str) -> tuple[str, str] | None:
    """Scheme and rest of an address; None for a path of this machine."""
    scheme, separator, rest = text.partition(":/")
    known = SCHEMES.get(scheme.lower())
    return (known, rest.strip("/")) if separator and known is not None else None


def store_of(directory: object) -> str:
    """The address of the store that a directory of runs is; "" for a directory of this machine.

    Raises:
        UsageError: it is meant for one, and can't be: ``s4://bucket`` isn't taken for a directory of that name.
    """
    text = str(directory or "")
    return address(text) if is_address(text) or "://" in text else ""


def written(where: str, base: str = "") -> Path:
    """The directory of this machine in which runs for a store are written.

    Args:
        base: what ``TRACKER_STORE_DIR`` says; default ``trackers/stores`` in the user's cache directory.
    """
    return _beside(where, base, "runs")


def is_written(root: Path, where: str) -> bool:
    """Whether a directory is one in which runs for a store are written, wherever ``TRACKER_STORE_DIR`` has it."""
    return root.resolve().parts[-2:] == written(where, "/").parts[-2:]


def copied(where: str, base: str = "") -> Path:
    """The directory of this machine that holds the copy of a store's runs. base: see :func:`written`."""
    return _beside(where, base, "copy")


def shown(root: Path) -> str:
    """A directory of runs as messages name it: a copy of a store by the store's address."""
    try:
        with open(root / COPY, "rb") as file:
            return address(file.readline(MOST_ADDRESS).decode().strip())
    except (OSError, ValueError, UsageError):
        return str(root)


def _beside(where: str, base: str, what: str) -> Path:
    import hashlib  # not where a run begins in a directory

    base = base or os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "trackers", "stores")
    where = address(where)
    name = re.sub(r"[^A-Za-z0-9.-]+", "-", where.rpartition("/")[2])[:60].strip("-.") or "store"
    digest = hashlib.sha256(where.encode()).hexdigest()[:10]
    return Path(os.path.expanduser(base), f"{name}-{digest}", what).absolute()
