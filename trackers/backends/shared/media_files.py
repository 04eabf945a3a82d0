"""Media as training stored them, in the shapes that the vendors' clients take.

Training stores media raw; a delivery turns them into pictures and tables here.
Files are only read, and a file that is missing or broken rejects the one record that names it. What a machine or a
network's filesystem refuses for now is tried again.
"""

from __future__ import annotations

import errno
import io
import json
import wave
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from trackers.errors import DeliveryError, Rejected, Unavailable
from trackers.formats import conversations, float_names
from trackers.formats.pixels import array_as_gif, array_as_picture, array_frames, load_array, open_picture, refusing
from trackers.records import ArtifactFile, Media, MediaFile
from trackers.support import confined
from trackers.tracker import RunInfo

FOR_NOW = frozenset({
    errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ECONNRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH,
    errno.ENETDOWN, errno.ENETUNREACH, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN,
})  # fmt: skip
"""Errors that say nothing of the file: it may well be read later."""


def path(info: RunInfo, item: MediaFile | ArtifactFile) -> Path:
    """The file that holds an item, for a vendor's client that opens it itself; else :func:`content`.

    Raises:
        Rejected: the item has no file, it isn't a regular one in the run's directory, is far longer than any that was
            logged (a sparse file can have any length), or is gone.
        Unavailable: it can't be read for now.
    """
    _open_file(info, item).close()
    return Path(info.directory).absolute() / item.file


def content(info: RunInfo, item: MediaFile) -> bytes:
    """What the file of an item holds.

    Raises:
        Rejected, Unavailable: as :func:`path`.
    """
    with _open_file(info, item) as file:
        try:
            return file.read()
        except OSError as error:
            raise _unread(info, item, error) from error


def _open_file(info: RunInfo, item: MediaFile | ArtifactFile) -> BinaryIO:
    if not item.file:
        raise Rejected(f"a {getattr(item, 'format', 'file')} without a file")
    relative = Path(item.file)
    if relative.is_absolute() or ".." in relative.parts:
        raise Rejected(f"{item.file!r} lies outside the run's directory")
    root = Path(info.directory).absolute()
    logged = getattr(item, "size", None)
    most = int(info.option("TRACKER_MEDIA_MAX_MB", 50)) * 1_000_000 if logged is None else logged
    try:
        return confined.open_file(root / relative, root=root, most=max(confined.READ_BYTES, most))
    except FileNotFoundError:
        raise Rejected(f"{item.file} is gone from {info.directory}") from None
    except (OSError, ValueError) as error:
        raise _unread(info, item, error) from None


def _unread(info: RunInfo, item: MediaFile | ArtifactFile, error: OSError | ValueError) -> DeliveryError:
    first, *below = Path(item.file).parts
    folder = Path(info.directory, first)
    if isinstance(error, OSError) and error.errno in FOR_NOW:
        return Unavailable(f"{item.file} can't be read for now ({error.strerror}); without it, delivery goes on")
    if below and folder.exists() and not folder.is_dir():  # training waits for it, too
        return Unavailable(f"{folder} is no directory: put the run's files back there")
    # A link, a pipe, a device.
    return Rejected(f"{item.file!r} can't be read as a file of {info.directory}: {error}")


def image(info: RunInfo, item: MediaFile) -> Any:
    """An image item as a ``PIL.Image.Image``, decoded (mode L, LA, RGB or RGBA for arrays).

    Arrays are height × width, with an optional last axis of 1 to 4 channels (or a first one, as torch has it).
    Integers are 0 to 255; floats are 0 to 1, or -1 to 1 where some are negative, or else taken as 0 to 255.
    NaN is black.

    Raises:
        Rejected: the file is missing or isn't an image.
    """
    stored = content(info, item)
    try:
        return array_as_picture(stored) if item.format == "npy" else open_picture(stored)
    except ValueError as error:
        raise Rejected(f"{item.file} is not an image: {error}") from error


def png(info: RunInfo, item: MediaFile) -> bytes:
    """An image item as the bytes of a PNG file.

    Raises:
        Rejected: as :func:`image`.
    """
    if item.format == "png":
        return content(info, item)
    picture = image(info, item)
    out = io.BytesIO()
    try:
        with refusing():
            if picture.mode not in ("1", "L", "LA", "P", "RGB", "RGBA", "I", "I;16"):  # PNG has no other (CMYK, F)
                picture = picture.convert("RGB")
            picture.save(out, format="PNG")
    except ValueError as error:
        raise Rejected(f"{item.file} can't be written as PNG: {error}") from error
    return out.getvalue()


def wav(info: RunInfo, item: MediaFile) -> bytes:
    """A sound as the bytes of a 16-bit WAV file: arrays are samples, or samples × channels, floats from -1 to 1.

    Raises:
        Rejected: the file is missing, or an array isn't one of samples.
    """
    stored = content(info, item)
    if item.format != "npy":
        return stored
    import numpy

    try:
        with refusing():
            samples = load_array(stored)
            if samples.dtype.kind == "f":
                samples = numpy.clip(numpy.nan_to_num(samples), -1, 1) * 32767  # NaN as an integer is undefined
            samples = samples.astype("<i2")
            out = io.BytesIO()
            with wave.open(out, "wb") as sound:
                sound.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
                sound.setsampwidth(2)
                sound.setframerate(item.sample_rate or 44100)
                sound.writeframes(samples.tobytes())
    except ValueError as error:
        raise Rejected(f"{item.file} is not a sound: {error}") from error
    return out.getvalue()


def table(info: RunInfo, item: MediaFile, exact: bool = False) -> tuple[list[str], list[list[Any]]]:
    """A table item as its column names and rows. exact: tell texts from floats, by :func:`float_names.rows_of`.

    Raises:
        Rejected: the file is missing or isn't a table.
    """
    data = payload(info, item)
    if (
        not isinstance(data, dict)
        or not isinstance(data.get("columns"), list)
        or not isinstance(data.get("rows"), list)
    ):
        raise Rejected(f"{item.file or 'a table'} has no columns and rows")
    rows = float_names.rows_of(data) if exact else [list(row) for row in data["rows"]]
    return [str(column) for column in data["columns"]], rows


def samples(info: RunInfo, record: Media) -> Iterator[tuple[Sequence[str], Sequence[Sequence[Any]]]]:
    """The tables of a record whose rows are samples of a language model: names and rows, one for each sample.

    Raises:
        Rejected: as :func:`table`.
    """
    for item in record.items:
        if record.type == "table" and item.meta.get(conversations.SAMPLES):
            yield conversations.unfolded(*table(info, item))


def is_medium(cell: dict[str, Any]) -> bool:
    """Whether a mapping in a cell has a medium's content, and isn't a script's own with keys like a medium's."""
    return "format" in cell and (bool(cell.get("file")) or isinstance(cell.get("data"), dict))


def cell(value: Any) -> tuple[str, list[MediaFile]] | None:
    """What kind of media a table's cell holds, and its items; None for a cell of another kind."""
    items = value if isinstance(value, list) else [value]
    if not items or not all(isinstance(item, dict) and "_type" in item and is_medium(item) for item in items):
        return None
    kinds = {item["_type"] for item in items}
    try:
        return (str(kinds.pop()), msgspec.convert(items, list[MediaFile])) if len(kinds) == 1 else None
    except msgspec.ValidationError:
        return None


def each(value: Any, convert: Callable[[Any, Any], Any]) -> Any:
    """A list or a mapping with what is in it, and its place there, converted; anything else as it is."""
    if isinstance(value, dict):
        return {str(key): convert(item, key) for key, item in value.items()}
    return [convert(item, place) for place, item in enumerate(value)] if isinstance(value, (list, tuple)) else value


def histogram(info: RunInfo, item: MediaFile) -> tuple[list[float], list[float]]:
    """A histogram item as its n counts and n + 1 edges.

    Raises:
        Rejected: the file is missing, or the numbers don't fit together.
    """
    data = payload(info, item)
    try:
        counts = [float(count) for count in data["counts"]]
        edges = [float(edge) for edge in data["edges"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Rejected(f"{item.file or 'a histogram'} has no counts and edges") from error
    if len(edges) != len(counts) + 1:
        raise Rejected(f"a histogram of {len(counts)} counts needs {len(counts) + 1} edges, not {len(edges)}")
    return counts, edges


def payload(info: RunInfo, item: MediaFile) -> Any:
    """What an item holds as JSON: inline, or in its file.

    Raises:
        Rejected: the file is missing or isn't JSON.
    """
    if not item.file:
        return item.data
    stored = content(info, item)
    try:
        return json.loads(stored)
    except (OSError, ValueError, RecursionError) as error:
        raise Rejected(f"{item.file} is not JSON: {error}") from error


def frames(info: RunInfo, item: MediaFile) -> list[Any]:
    """A video stored as an array (frames × height × width × channels, or channels before height) as PIL images.

    Raises:
        Rejected: the file is missing, or isn't such an array.
    """
    stored = content(info, item)
    try:
        return array_frames(stored)
    except ValueError as error:
        raise Rejected(f"{item.file}: {error}") from error


def gif(info: RunInfo, item: MediaFile) -> bytes:
    """A video stored as an array as the bytes of an animated GIF, which needs no ffmpeg.

    Raises:
        Rejected: as :func:`frames`.
    """
    stored = content(info, item)
    try:
        return array_as_gif(stored, item.fps)
    except ValueError as error:
        raise Rejected(f"{item.file}: {error}") from error
