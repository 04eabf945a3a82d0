"""Base of all media values.

Where a run keeps media and snapshots of files: by content, each content once.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import stat
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from trackers.errors import UsageError
from trackers.records import Media, MediaFile
from trackers.support import confined
from trackers.support.backlog import Backlog, Content
from trackers.support.interruption import pass_on, suppress
from trackers.support.redaction import mask_text


class MediaValue:
    """A value that is more than a number or a text.

    ``type`` is its type in the records: image, audio, video, table, histogram or html.
    """

    type: ClassVar[str]

    @property
    def _caption(self) -> Any:
        """``caption``, under the name that W&B's have."""
        return getattr(self, "caption", None)

    @_caption.setter
    def _caption(self, value: Any) -> None:
        self.caption = value

    def items(self, store: MediaStore) -> list[MediaFile]:
        """Put the content into the run's store and say where it lies.

        Raises:
            ValueError: too large, or not what it was said to be.
            OSError: a file can't be read, or the store can't be written.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<trackers.{type(self).__name__}>"


def record(
    name: str, value: MediaValue | Sequence[MediaValue], step: int | None, time: float, store: MediaStore
) -> Media:
    """The record of one media value, or of several of one type under one name.

    Raises:
        ValueError: no value at all, values of different types, or what :meth:`MediaValue.items` raises.
        OSError: as :meth:`MediaValue.items`.
    """
    values = [value] if isinstance(value, MediaValue) else list(value)
    types = sorted({item.type for item in values})
    if len(types) != 1:
        raise UsageError(
            f"media logged under one name must have one type, not {' and '.join(types) or 'an empty list'}"
        )
    items = [item for value in values for item in value.items(store)]
    for item in items:
        item.caption = mask_text(item.caption) if isinstance(item.caption, str) else item.caption
    listed = len(items) == 1 and not isinstance(value, MediaValue)
    return Media(step=step, time=time, name=name, type=types[0], items=items, listed=listed)


@contextlib.contextmanager
def made_from(name: str, value: Any) -> Iterator[None]:
    """While ``name`` is made from a value: what the value's own methods, NumPy or torch raise becomes a UsageError.

    Raises:
        UsageError: it can't be made. OSError: a file can't be read.
    """
    try:
        yield
    except (UsageError, OSError) as error:
        pass_on(error)
        raise
    except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RuntimeError, struct.error) as error:
        pass_on(error)
        why = " ".join(str(error).split())
        raise UsageError(f"{name} can't be made from {kind_of(value)}: {why[:200] or type(error).__name__}") from error


def positive(name: str, value: Any, most: float) -> float:
    """A number above 0 and at most ``most``; texts of numbers are taken.

    Raises:
        UsageError: it is none. Its message calls it ``name``.
    """
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        pass_on(error)
        number = math.nan
    if not 0 < number <= most:
        raise UsageError(f"{name} is a number above 0 and at most {most:,.0f}, not {value!r:.60}")
    return number


def kind_of(value: Any) -> str:
    """The name of a value's type, with its article."""
    kind = type(value).__name__
    return f"an {kind}" if kind[:1] in "aeiouAEIOU" or kind == "ndarray" else f"a {kind}"


def comes_from(value: Any, package: str) -> bool:
    """True if the value's class, or one it derives from, is of this package. Imports nothing."""
    return any(cls.__module__.partition(".")[0] == package for cls in type(value).__mro__)


FOLDER = "media"

_counter = itertools.count()


class MediaStore:
    """The ``media`` folder of one run. Made without I/O; several processes may write into the same folder.

    Args:
        directory: the run's directory.
        max_bytes: the largest single media value; larger ones are refused. 0: no limit.
        backlog: takes what the disk refuses. Default: that is an error.

    Attributes:
        held: paths of what the backlog took.
    """

    def __init__(self, directory: Path, max_bytes: int = 0, backlog: Backlog | None = None) -> None:
        self.directory = Path(directory)
        self.max_bytes = max_bytes
        self.backlog = backlog
        self.held: list[str] = []

    def media_of(self, value: Any) -> MediaValue | None:
        """What is kept of a table's cell as media; None where it is none."""
        return value if isinstance(value, MediaValue) else None

    def put(self, data: bytes, suffix: str) -> str:
        """Keep ``data`` and return its path relative to the run's directory.

        The same data with the same suffix is kept once. A file appears whole or not at all; nothing waits for
        the disk, so a machine that loses power can lose it.

        Raises:
            ValueError: larger than ``max_bytes``.
            OSError: it can't be written, and isn't held either.
        """
        import hashlib

        self.check_size(len(data))
        name = self.name(hashlib.blake2b(data, digest_size=20).hexdigest(), suffix)
        if not holds(self.directory / name, len(data)):
            try:
                self.place(name, data)
            except OSError as error:
                pass_on(error)
                self.hold(name, data, error)
        return name

    def place(self, name: str, content: Content) -> None:
        """Write a content to its path, relative to the run's directory, whatever is there.

        Raises:
            OSError: it can't be written.
        """
        temporary = self.temporary()
        try:
            if callable(content):
                content(temporary)
            else:
                confined.write_new(temporary, content)
            move(temporary, self.directory / name)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def hold(self, name: str, content: Content, error: OSError) -> None:
        """Leave a content that the disk refused to the backlog.

        Raises:
            OSError: there is none, or it has no room.
        """
        if self.backlog is None:
            raise error
        self.backlog.take(name, content, error)
        self.held.append(name)

    def put_file(self, path: Path) -> tuple[str, bytes]:
        """Keep a media file as it is now: its path relative to the run's directory, and its content.

        Raises:
            ValueError: larger than ``max_bytes``.
            OSError: it can't be read or written.
        """
        self.check_size(path.stat().st_size)
        data = path.read_bytes()
        return self.put(data, path.suffix.lstrip(".").lower()), data

    def check_size(self, size: int) -> None:
        """Raises ValueError where a media value of ``size`` bytes is too large."""
        if self.max_bytes and size > self.max_bytes:
            allowed = f"the {self.max_bytes / 1e6:g} MB allowed"
            raise UsageError(f"{size / 1e6:.1f} MB is more than {allowed}: raise TRACKER_MEDIA_MAX_MB")

    def name(self, digest: str, suffix: str) -> str:
        """The path, relative to the run's directory, of what has this digest."""
        return f"{FOLDER}/{digest[:2]}/{digest}" + (f".{suffix}" if suffix else "")

    def temporary(self) -> Path:
        """A path of its own for this call, beside where it will be moved to; the folder exists."""
        folder = self.directory / FOLDER
        self.directory.mkdir(parents=True, exist_ok=True)
        confined.make_folder(folder)
        # Another host may have the same pid on a shared filesystem, hence the random part.
        return folder / f".tmp-{os.getpid()}-{next(_counter)}-{os.urandom(4).hex()}"


def holds(target: Path, size: int) -> bool:
    """True if ``target`` is there with ``size`` bytes (a power cut can leave a shorter one behind)."""
    with suppress(OSError):
        status = target.lstat()
        return stat.S_ISREG(status.st_mode) and status.st_size == size
    return False


def move(temporary: Path, target: Path) -> None:
    """Give a finished file its name. Whoever else wrote the same content first, or at the same time, is no matter."""
    confined.make_folder(target.parent)
    confined.replace(temporary, target)
