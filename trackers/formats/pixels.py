"""Arrays of numbers as pixels, by the rules that media of runs are kept by."""

from __future__ import annotations

import io
from typing import Any


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
    import numpy
    from PIL import Image

    try:
        picture = Image.fromarray(image_pixels(numpy.load(io.BytesIO(content), allow_pickle=False)))
        out = io.BytesIO()
        picture.save(out, format="PNG", compress_level=compress_level)
    except (OSError, ValueError, TypeError, EOFError, MemoryError) as error:
        raise ValueError(f"it is no image: {error}") from error
    return out.getvalue()


FPS = 4
"""Frames per second of a video that doesn't say it."""


def array_frames(content: bytes) -> list[Any]:
    """A video as ``numpy.save`` writes it (frames × height × width × channels, or channels before height), as Pillow's
    pictures.

    Raises:
        ValueError: it is no video. ImportError: NumPy or Pillow isn't installed.
    """
    import numpy
    from PIL import Image

    try:
        array = numpy.load(io.BytesIO(content), allow_pickle=False)
        if array.ndim not in (3, 4) or 0 in array.shape:
            raise ValueError(f"an array of shape {array.shape}")
        return [Image.fromarray(image_pixels(frame)) for frame in array]
    except (OSError, ValueError, TypeError, EOFError, MemoryError) as error:
        raise ValueError(f"it is not a video: {error}") from error


def array_as_gif(content: bytes, fps: float | None = None) -> bytes:
    """A video as :func:`array_frames` takes it as an animated GIF, which needs no ffmpeg.

    Raises:
        ValueError: it is no video. ImportError: NumPy or Pillow isn't installed.
    """
    pictures = [picture.convert("RGB") for picture in array_frames(content)]
    out = io.BytesIO()
    duration_ms = min(max(round(1000 / (fps or FPS)), 10), 60_000)
    pictures[0].save(out, format="GIF", save_all=True, append_images=pictures[1:], duration=duration_ms, loop=0)
    return out.getvalue()
