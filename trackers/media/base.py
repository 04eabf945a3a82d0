"""What all media values share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from trackers.media.store import MediaStore
from trackers.records import Media, MediaFile


class MediaValue:
    """A value that is more than a number or a text.

    ``type`` is its type in the records: image, audio, video, table, histogram or html.
    """

    type: ClassVar[str]

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
        raise ValueError(f"one name takes media of one type, not {' and '.join(types) or 'an empty list'}")
    items = [item for one in values for item in one.items(store)]
    return Media(step=step, time=time, name=name, type=types[0], items=items)


def comes_from(value: Any, package: str) -> bool:
    """True if the value's class, or one it derives from, is of this package. Imports nothing."""
    return any(cls.__module__.partition(".")[0] == package for cls in type(value).__mro__)
