"""Proof that a user's own trackers wrote the instructions in a ``run.json``: a keyed digest, by a key at home.

A directory says who made it, but not who wrote what is in it: whoever unpacks a colleague's tar file, or clones a
repository, owns every file of it. The key never leaves its owner's home, so nobody else can write a valid seal.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from pathlib import Path

import msgspec

from trackers.records import storable
from trackers.support import confined, user_directories
from trackers.tracker import RunInfo

FIELDS = ("id", "options", "cwd", "program")
"""Fields of a run's identity that can name programs, addresses and directories; all others are plain data."""
CARRIER = "TRACKER_TRUSTED"
"""Environment variable by which a process tells its helpers the digest of the instructions that they may follow."""
KEY_BYTES = 32  # as SHA-256's digest has: RFC 2104 discourages fewer

_written: set[str] = set()


def digest(info: RunInfo) -> str:
    """Digest of the instructions, independent of the file's layout."""
    instructions = {name: getattr(info, name) for name in FIELDS}
    try:
        content = msgspec.json.encode(instructions)
    except UnicodeError:  # a path that isn't UTF-8 is stored as text that is
        content = msgspec.json.encode(storable(instructions))
    fields = msgspec.json.decode(content)
    return hashlib.sha256(msgspec.json.encode(fields, order="deterministic")).hexdigest()


def sign(info: RunInfo) -> str:
    """The seal for instructions that this process writes; "" where no key can be kept.

    This process follows them in any case.
    """
    content = digest(info)
    _written.add(content)
    key = _key(make=True)
    return _seal(key, content) if key else ""


def approved(info: RunInfo) -> bool:
    """Whether the process that started this one approved these instructions (:data:`CARRIER`)."""
    return os.environ.get(CARRIER) == digest(info)


def valid(info: RunInfo) -> bool:
    """Whether this process wrote the instructions, or this process's user sealed them."""
    content = digest(info)
    return content in _written or sealed(content, info.seal)


def seal(content: str) -> str:
    """The seal for any other content that this user's trackers write; "" where no key can be kept.

    Args:
        content: begins with what it is, so that no seal is good for something else.
    """
    key = _key(make=True)
    return _seal(key, content) if key else ""


def sealed(content: str, seal: str) -> bool:
    """Whether this process's user sealed it."""
    key = _key() if seal else b""
    # As bytes: compare_digest refuses a text that isn't ASCII, which a planted seal may be.
    return bool(key) and hmac.compare_digest(_seal(key, content).encode(), seal.encode("utf-8", "replace"))


def _seal(key: bytes, content: str) -> str:
    return hmac.new(key, content.encode(), "sha256").hexdigest()


def key_path() -> Path:
    """Where the key lies: ``trackers/seal.key`` in the user's configuration directory."""
    return user_directories.of("CONFIG") / "seal.key"


def _key(make: bool = False) -> bytes:
    """The user's key; b"" where there is none, or where others could have read or written it."""
    path = key_path()
    with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: there is no home
        with contextlib.suppress(FileNotFoundError):
            return _read(path)
        if make:
            confined.make_private(path.parent)
            new = path.with_name(f".seal.{secrets.token_hex(8)}")
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                os.write(fd, secrets.token_bytes(KEY_BYTES))
            finally:
                os.close(fd)
            try:
                with contextlib.suppress(FileExistsError):  # another process was quicker
                    os.link(new, path)
            except OSError:  # a filesystem without hard links
                if not path.exists():
                    os.replace(new, path)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(new)
            return _read(path)
    return b""


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(fd)
        private = not hasattr(os, "geteuid") or (status.st_uid == os.geteuid() and not status.st_mode & 0o077)
        key = os.read(fd, KEY_BYTES + 1) if private and stat.S_ISREG(status.st_mode) else b""
    finally:
        os.close(fd)
    return key if len(key) == KEY_BYTES else b""
