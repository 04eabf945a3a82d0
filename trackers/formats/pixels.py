"""Arrays of numbers as pixels, by the rules that media of runs are kept by."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

from trackers.support.interruption import pass_on

PIXELS_MOST = 100_000_000
"""Maximum number of pixels of a picture that is unpacked: a file of some hundred bytes can hold billions."""


@contextlib.contextmanager
def refusing(what: str = "") -> Iterator[None]:
    """Errors of NumPy and Pillow, which raise all kinds of them for damaged files, as a ValueError of one line.

    Args:
        what: the beginning of that line.
    """
    try:
        yield
    except ImportError:
        raise
    except Exception as error:
        pass_on(error)
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise ValueError(f"{what}: {reason}" if what else reason) from error


def load_array(content: bytes) -> Any:
    """An array of numbers as ``numpy.save`` writes it; objects aren't unpickled.

    Raises:
        ValueError: it is none. ImportError: NumPy isn't installed.
    """
    import numpy

    with refusing():
        array = numpy.load(io.BytesIO(content), allow_pickle=False)
        if not isinstance(array, numpy.ndarray):  # an archive of several
            raise ValueError("it holds several")
        if array.dtype.kind not in "biufc":
            raise ValueError(f"an array of {array.dtype.str}, not of numbers")
        return array


def array_as_picture(content: bytes) -> Any:
    """An array as :func:`load_array` takes it as a ``PIL.Image.Image``; errors as there, also for another shape."""
    from PIL import Image

    with refusing():
        return Image.fromarray(image_pixels(load_array(content)))


def open_picture(content: bytes, formats: list[str] | None = None, pixels: int = PIXELS_MOST) -> Any:
    """An encoded picture as a ``PIL.Image.Image``, decoded.

    Args:
        formats: Pillow's names of those that are taken; None for all. pixels: their maximum number.

    Raises:
        ValueError: it is none, or has more pixels. ImportError: Pillow isn't installed.
    """
    from PIL import Image

    with refusing():
        picture = Image.open(io.BytesIO(content), formats=formats)
        if picture.width * picture.height > pixels:  # before load() unpacks it
            raise ValueError(f"{picture.width} × {picture.height} pixels; at most {pixels:,} are unpacked")
        picture.load()
        if picture.mode != "F":
            return picture
        import numpy

        return Image.fromarray(image_pixels(numpy.asarray(picture)))


def image_pixels(pixels: Any) -> Any:
    """An array as uint8 pixels of height × width (× channels).

    Integers are 0 to 255; floats are 0 to 1, or -1 to 1 where some are negative, or else taken as 0 to 255. NaN is
    black.

    Raises:
        ValueError: it has another shape.
    """
    import numpy

    if pixels.ndim == 3 and pixels.shape[2] not in (1, 2, 3, 4) and pixels.shape[0] in (1, 2, 3, 4):
        pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim not in (2, 3) or 0 in pixels.shape:
        raise ValueError(f"an array of shape {pixels.shape}")
    if pixels.dtype.kind == "b":
        return pixels.astype("uint8") * 255
    if pixels.dtype.kind == "f":
        pixels = numpy.nan_to_num(pixels.astype("float32"), nan=0.0)
        low, high = float(pixels.min()), float(pixels.max())
        if low < 0 and low >= -1 and high <= 1:
            pixels = (pixels + 1) * 127.5
        elif low >= 0 and high <= 1:
            pixels = pixels * 255
        pixels = pixels.round()
    return numpy.ascontiguousarray(pixels.clip(0, 255).astype("uint8"))


def array_as_png(content: bytes, compress_level: int = 6) -> bytes:
    """An array as ``numpy.save`` writes it, as a PNG picture.

    Args:
        compress_level: 1 (quick) to 9 (small).

    Raises:
        ValueError: it is no image. ImportError: NumPy or Pillow isn't installed.
    """
    out = io.BytesIO()
    with refusing("it is no image"):
        array_as_picture(content).save(out, format="PNG", compress_level=compress_level)
    return out.getvalue()


FPS = 4
"""Frames per second of a video that doesn't say it."""


def array_frames(content: bytes) -> list[Any]:
    """A video as ``numpy.save`` writes it (frames × height × width × channels, or channels before height), as Pillow's
    pictures.

    Raises:
        ValueError: it is no video. ImportError: NumPy or Pillow isn't installed.
    """
    from PIL import Image

    with refusing("it is no video"):
        array = load_array(content)
        if array.ndim not in (3, 4) or 0 in array.shape:
            raise ValueError(f"an array of shape {array.shape}")
        return [Image.fromarray(image_pixels(frame)) for frame in array]


def array_as_gif(content: bytes, fps: float | None = None) -> bytes:
    """A video as :func:`array_frames` takes it as an animated GIF, which needs no ffmpeg.

    Raises:
        ValueError: it is no video. ImportError: NumPy or Pillow isn't installed.
    """
    frames, out = array_frames(content), io.BytesIO()
    with refusing("it is no video"):
        pictures = [picture.convert("RGB") for picture in frames]
        duration_ms = min(max(round(1000 / (fps or FPS)), 10), 60_000)
        pictures[0].save(out, format="GIF", save_all=True, append_images=pictures[1:], duration=duration_ms, loop=0)
    return out.getvalue()
