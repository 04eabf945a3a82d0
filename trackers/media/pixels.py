"""Arrays of any library as uint8 pixels.

Range of values. W&B 0.31 takes integers and floats as 0…255 and cuts off the fraction; so do we, clipping where
it wraps around. Floats that all lie in 0…1 or in -1…1, which it shows black, are scaled to 0…255, as earlier W&B
versions and TensorBoard do; floats with other negative values are scaled from their minimum to their maximum.
``normalize=False`` leaves all that out. NaN is black. bool is 0 or 255.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from trackers.media.base import comes_from

CHANNELS = (1, 3, 4)


class Pixels(NamedTuple):
    """uint8 values, the last axis running fastest."""

    shape: tuple[int, ...]
    data: bytes

    def npy(self) -> bytes:
        """The same as the content of a .npy file (format version 1.0)."""
        # https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
        header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {self.shape}, }}"
        header += " " * (-(10 + len(header) + 1) % 64) + "\n"
        return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + self.data


def is_array(value: Any) -> bool:
    """True for an array or a tensor of any library."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__array__")


def as_numpy(value: Any) -> Any:
    """The value as a NumPy array, perhaps sharing memory. A tensor on a GPU is copied here and waited for."""
    if comes_from(value, "torch"):
        value = value.detach()
        if value.is_floating_point() and value.element_size() < 4:
            value = value.float()  # NumPy knows no bfloat16 and no 8-bit floats
        return value.cpu().numpy()
    if comes_from(value, "cupy"):
        return value.get()
    if hasattr(value, "numpy") and callable(value.numpy):
        value = value.numpy()
    import numpy

    return numpy.asarray(value)


def to_uint8(array: Any, normalize: bool = True) -> Any:
    """A NumPy array as uint8, by the rules of this module. Always a copy."""
    import numpy as np

    if array.dtype == np.uint8:
        return array.copy()
    if array.dtype == np.bool_:
        return array.astype(np.uint8) * np.uint8(255)
    if array.dtype.kind in "iu":
        return array.clip(0, 255).astype(np.uint8)
    if array.dtype.kind != "f":
        raise ValueError(f"pixels are numbers, not {array.dtype}")
    if array.dtype.itemsize < 4:
        array = array.astype(np.float32)
    finite = array[np.isfinite(array)]
    if finite.size and normalize:
        scale, shift = scaling(float(finite.min()), float(finite.max()))
        if (scale, shift) != (1.0, 0.0):
            array = (array - array.dtype.type(shift)) * array.dtype.type(scale)
    return np.nan_to_num(array, nan=0.0, posinf=255.0, neginf=0.0).clip(0, 255).astype(np.uint8)


def scaling(low: float, high: float) -> tuple[float, float]:
    """scale and shift, so that ``(value - shift) * scale`` lies in 0…255, for floats from ``low`` to ``high``."""
    if low >= 0:
        return (255.0, 0.0) if high <= 1 else (1.0, 0.0)
    if low >= -1 and high <= 1:
        return 127.5, -1.0
    return 255.0 / ((high - low) or 1.0), low


def image_pixels(value: Any, normalize: bool = True) -> Pixels:
    """An array, tensor or nested list as one image.

    Args:
        value: height x width; height x width x 1, 3 or 4, or with the channels first (the torch way, looked for
            first in tensors). Leading axes of length 1 are dropped.

    Raises:
        ValueError: some other shape.
    """
    if not is_array(value):
        return _from_lists(value, normalize)
    array = as_numpy(value)
    given = array.shape
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    array = _channels_last(array, first=0 if comes_from(value, "torch") else -1) if array.ndim == 3 else array
    if array is None or array.ndim != 2 + (array.ndim == 3) or 0 in array.shape:
        raise ValueError(_shape_message(given))
    array = to_uint8(array, normalize)
    return Pixels(array.shape, array.tobytes())


def video_pixels(value: Any, normalize: bool = True) -> Pixels:
    """Frames x channels x height x width (or channels last) as frames x height x width x 3 or 4.

    Five axes (batch first) become one video with the batch side by side, in W&B's order.

    Raises:
        ValueError: some other shape.
    """
    import numpy as np

    array = as_numpy(value) if is_array(value) else np.asarray(value)
    if array.ndim == 5:
        array = _tile(array)
    if array.ndim != 4 or 0 in array.shape or (array.shape[1] not in CHANNELS and array.shape[3] not in CHANNELS):
        raise ValueError(f"a video is frames x channels (1, 3 or 4) x height x width, not {tuple(array.shape)}")
    if array.shape[1] in CHANNELS:
        array = np.moveaxis(array, 1, 3)
    array = to_uint8(array, normalize)
    if array.shape[3] == 1:
        array = array.repeat(3, axis=3)
    return Pixels(array.shape, array.tobytes())


def _channels_last(array: Any, first: int) -> Any:
    import numpy as np

    for axis in (first, -1 - first):
        if array.shape[axis] in CHANNELS:
            array = np.moveaxis(array, axis, -1)
            return array[..., 0] if array.shape[-1] == 1 else array
    return None


def _tile(array: Any) -> Any:
    import numpy as np

    if array.shape[2] not in CHANNELS:
        array = np.moveaxis(array, 4, 2)
    batch, frames, channels, height, width = array.shape
    full = 1 << max(batch - 1, 0).bit_length()
    rows = 1 << ((batch.bit_length() - 1) // 2)
    array = np.concatenate([array, np.zeros((full - batch, *array.shape[1:]), array.dtype)])
    array = array.reshape(rows, full // rows, frames, channels, height, width)
    return array.transpose(2, 3, 0, 4, 1, 5).reshape(frames, channels, rows * height, full // rows * width)


def _from_lists(value: Any, normalize: bool) -> Pixels:
    shape: list[int] = []
    flat: Any = value
    level = value
    while isinstance(level, Sequence) and not isinstance(level, (str, bytes)):
        shape.append(len(level))
        if not level:
            break
        level = level[0]
    if is_array(level) and getattr(level, "shape", ()) != ():
        import numpy

        return image_pixels(numpy.stack([as_numpy(item) for item in value]), normalize)
    if len(shape) == 3 and shape[2] in CHANNELS:
        final = tuple(shape if shape[2] != 1 else shape[:2])
    elif len(shape) == 2:
        final = tuple(shape)
    else:
        raise ValueError(_shape_message(tuple(shape)) if shape else f"an image can't be made from {type(value)!r}")
    for length in shape[1:]:
        if any(len(item) != length for item in flat):
            raise ValueError("the rows of an image have one length")
        flat = [item for row in flat for item in row]
    if 0 in shape:
        raise ValueError(_shape_message(tuple(shape)))
    if all(isinstance(item, bool) for item in flat):
        return Pixels(final, bytes(255 if item else 0 for item in flat))
    if all(isinstance(item, int) for item in flat):
        return Pixels(final, bytes(min(max(item, 0), 255) for item in flat))
    numbers = [float(item) for item in flat]
    finite = [item for item in numbers if math.isfinite(item)]
    scale, shift = scaling(min(finite), max(finite)) if finite and normalize else (1.0, 0.0)
    return Pixels(final, bytes(_byte((item - shift) * scale) for item in numbers))


def _byte(value: float) -> int:
    return 0 if value != value else int(min(max(value, 0.0), 255.0))


def _shape_message(shape: tuple[int, ...]) -> str:
    form = "height x width, perhaps with 1, 3 or 4 channels"
    return f"an image is {form}, not {tuple(shape)}: log several as a list of Image"
