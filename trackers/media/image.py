"""Images, and the pixels that arrays of numbers become."""

from __future__ import annotations

import io
import logging
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from trackers.errors import UsageError
from trackers.media.base import MediaStore, MediaValue, comes_from, kind_of, made_from
from trackers.records import MediaFile, name_floats
from trackers.support.interruption import pass_on

CHANNELS = (1, 3, 4)
OVERSHOOT = 0.2
"""How far bicubic and Lanczos resizing of an edge lead beyond the range of the values, as a part of it."""
BRIGHT = 2.0
"""Floats up to it are of 0 to 1: as 0 to 255 they would be all but black."""
BYTE_OVERSHOOT = 0.1 * 255
"""How far beyond 0 to 255 values are taken for it."""

logger = logging.getLogger("trackers.media")


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
    if array.dtype.kind in "iu" and array.size and normalize:
        scale, shift = whole_scaling(int(array.min()), int(array.max()))
        if (scale, shift) != (1.0, 0.0):
            array = (array.astype(np.float64) - shift) * scale
    if array.dtype.kind in "iu":
        return array.clip(0, 255).astype(np.uint8)
    if array.dtype.kind != "f":
        raise UsageError(f"pixels must be numbers, not {array.dtype}")
    if array.dtype.itemsize < 4:
        array = array.astype(np.float32)
    finite = array[np.isfinite(array)]
    if finite.size and normalize:
        scale, shift = scaling(float(finite.min()), float(finite.max()))
        if (scale, shift) != (1.0, 0.0):
            array = (array - array.dtype.type(shift)) * array.dtype.type(scale)
    return np.nan_to_num(array, nan=0.0, posinf=255.0, neginf=0.0).clip(0, 255).astype(np.uint8)


def scaling(low: float, high: float) -> tuple[float, float]:
    """scale and shift, so that ``(value - shift) * scale`` lies in 0…255, for floats from ``low`` to ``high``.

    Floats are of 0 to 1, of -1 to 1, or of 0 to 255; any others are stretched from the lowest to the highest. What is a
    little beyond these is taken for them, and clipped. Both are said once.
    """
    if low >= -0.1 * high and high > BRIGHT:
        return whole_scaling(low, high)
    if low >= 0 or (low >= -OVERSHOOT and 1 < high <= 1 + OVERSHOOT) or (low >= -OVERSHOOT / 2 and 0.9 <= high <= 1):
        if low < 0 or high > 1:
            _assume(f"floats from {low:.3g} to {high:.3g} are taken as 0 to 1, and clipped", "0 to 1")
        return 255.0, 0.0
    if low >= -1 - 2 * OVERSHOOT and high <= 1 + 2 * OVERSHOOT:
        if low < -1 or high > 1:
            _assume(f"floats from {low:.3g} to {high:.3g} are taken as -1 to 1, and clipped", "-1 to 1")
        return 127.5, -1.0
    return _stretched(low, high)


def whole_scaling(low: float, high: float) -> tuple[float, float]:
    """:func:`scaling` of whole numbers, which are of 0 to 255, or stretched (16-bit images)."""
    if low >= 0 and high <= 255:
        return 1.0, 0.0
    if low >= -BYTE_OVERSHOOT and high <= 255 + BYTE_OVERSHOOT:
        _assume(f"values from {low:.6g} to {high:.6g} are taken as 0 to 255, and clipped", "0 to 255")
        return 1.0, 0.0
    return _stretched(low, high)


def _stretched(low: float, high: float) -> tuple[float, float]:
    _assume(f"values from {low:.6g} to {high:.6g} are stretched to 0 to 255", "stretched")
    return 255.0 / ((high - low) or 1.0), low


def _assume(what: str, kind: str) -> None:
    """Say once what was assumed of an image's values."""
    if kind not in _assumed:
        _assumed.add(kind)
        logger.warning("image: %s; give uint8, or floats of 0 to 1, to say it yourself", what)


_assumed: set[str] = set()
"""What was said."""


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
    shape = array.shape
    while array.ndim > 3 and array.shape[0] == 1:
        array = array[0]
    array = _channels_last(array, first=0 if comes_from(value, "torch") else -1) if array.ndim == 3 else array
    if array is None or array.ndim != 2 + (array.ndim == 3) or 0 in array.shape:
        raise UsageError(_shape_message(shape))
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
    if array.ndim == 5 and 0 not in array.shape:
        array = _tile(array)
    if array.ndim != 4 or 0 in array.shape or (array.shape[1] not in CHANNELS and array.shape[3] not in CHANNELS):
        raise UsageError(f"a video is frames x channels (1, 3 or 4) x height x width, not {tuple(array.shape)}")
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
    level = value
    while isinstance(level, Sequence) and not isinstance(level, (str, bytes)):
        shape.append(len(level))
        if not level:
            break
        level = level[0]
    if is_array(level) and getattr(level, "shape", ()) != ():
        import numpy

        return image_pixels(numpy.stack([as_numpy(item) for item in value]), normalize)
    if not shape:
        raise UsageError(f"Image can't be made from {kind_of(value)}")
    final, flat = _final_shape(shape), _flattened(value, shape)
    if all(isinstance(item, bool) for item in flat):
        return Pixels(final, bytes(255 if item else 0 for item in flat))
    if all(isinstance(item, int) for item in flat):
        scale, shift = whole_scaling(min(flat), max(flat)) if normalize else (1.0, 0.0)
        return Pixels(final, bytes(_byte((item - shift) * scale) for item in flat))
    numbers = [float(item) for item in flat]
    finite = [item for item in numbers if math.isfinite(item)]
    scale, shift = scaling(min(finite), max(finite)) if finite and normalize else (1.0, 0.0)
    return Pixels(final, bytes(_byte((item - shift) * scale) for item in numbers))


def _final_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """Height and width, and of colours their number."""
    if len(shape) == 3 and shape[2] in CHANNELS:
        return tuple(shape if shape[2] != 1 else shape[:2])
    if len(shape) == 2:
        return tuple(shape)
    raise UsageError(_shape_message(tuple(shape)))


def _flattened(value: Any, shape: Sequence[int]) -> Any:
    """The numbers of nested lists, whose lengths the first ones tell."""
    flat = value
    for length in shape[1:]:
        if any(len(item) != length for item in flat):
            raise UsageError("all rows of an image must have the same length")
        flat = [item for row in flat for item in row]
    if 0 in shape:
        raise UsageError(_shape_message(tuple(shape)))
    return flat


def _byte(value: float) -> int:
    return 0 if value != value else int(min(max(value, 0.0), 255.0))


def _shape_message(shape: tuple[int, ...]) -> str:
    form = "height x width, perhaps with 1, 3 or 4 channels"
    return f"an image is {form}, not {tuple(shape)}: log several as a list of Image"


FILE_TYPES = ("png", "jpg", "jpeg", "bmp")
"""File types for an image made from pixels, as in W&B."""

_CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}


class Classes:
    """Names of class ids, for boxes and masks.

    Args:
        class_set: mappings with ``id`` and ``name``.
    """

    def __init__(self, class_set: Iterable[Mapping[str, Any]]) -> None:
        self.class_set = [dict(item) for item in class_set]


class Image(MediaValue):
    """One image.

    Args:
        data_or_path: an array or tensor (height x width, with 1, 3 or 4 channels last or, as in torch, first), a
            nested list, a Pillow image, a matplotlib figure (drawn at once), the bytes of an image file, or the
            path of one. The range of values is taken as :mod:`trackers.media.image` says. A tensor on a GPU is
            copied to the host, which waits for the GPU.
        mode: Pillow's mode to convert to.
        caption: text shown with it.
        grouping, classes, boxes, masks: as in W&B; kept with the image for the trackers that can show them.
        file_type: png (default), jpg or bmp: what trackers encode pixels to.
        normalize: False takes floats as 0…255 whatever their range.

    Raises:
        UsageError: not an image.
        FileNotFoundError: no such file.
    """

    type = "image"

    def __init__(
        self, data_or_path: Any, mode: str | None = None, caption: str | None = None, grouping: int | None = None,
        classes: Any = None, boxes: Mapping[str, Any] | None = None, masks: Mapping[str, Any] | None = None,
        file_type: str | None = None, normalize: bool = True,
    ) -> None:  # fmt: skip
        if file_type is not None and file_type not in FILE_TYPES:
            raise UsageError(f"file_type must be one of {', '.join(FILE_TYPES)}, not {file_type!r}")
        self.caption = caption
        self.format = file_type or "png"
        self.width: int | None = None
        self.height: int | None = None
        self._path: Path | None = None
        self._content = b""
        self._shape: tuple[int, ...] | None = None
        self._suffix = ""
        self._mask_layers: dict[str, tuple[Pixels | None, dict[str, Any]]] = {}
        with made_from("Image", data_or_path):
            self._set_data(data_or_path, mode, normalize)
        for name, layers in (("boxes", boxes), ("masks", masks)):
            if layers is not None and not isinstance(layers, Mapping):
                raise UsageError(f"{name} of an image are a mapping by name, as in W&B, not {type(layers).__name__}")
        with made_from("a mask", masks):
            self._meta = self._annotations(grouping, classes, boxes, masks)
        if file_type is not None:
            self._meta["file_type"] = file_type

    @property
    def image(self) -> Any:
        """The image that is recorded, as Pillow has it: uint8 where it was made from numbers."""
        from PIL import Image as pillow

        if self._path is not None:
            image = pillow.open(self._path)
        elif self._suffix != "npy":
            image = pillow.open(io.BytesIO(self._content))
        else:
            assert self._shape is not None
            mode = "L" if len(self._shape) == 2 else {3: "RGB", 4: "RGBA"}[self._shape[2]]
            return pillow.frombytes(mode, self._shape[1::-1], self._content[-math.prod(self._shape) :])
        image.load()
        return image

    _image = image

    @property
    def _width(self) -> int | None:
        return self.width if self._path is None else self.image.size[0]

    @property
    def _height(self) -> int | None:
        return self.height if self._path is None else self.image.size[1]

    @property
    def _grouping(self) -> Any:
        return self._meta.get("grouping")

    @property
    def _boxes(self) -> Any:
        return self._meta.get("boxes")

    @property
    def _masks(self) -> Any:
        return {key: rest for key, (_, rest) in self._mask_layers.items()} or None

    def items(self, store: MediaStore) -> list[MediaFile]:
        width, height = self.width, self.height
        if self._path is not None:
            file, content = store.put_file(self._path)
            width, height = dimensions(content)
        else:
            file = store.put(self._content, self._suffix)
        meta = dict(self._meta)
        if self._mask_layers:
            meta["masks"] = {
                key: {
                    **rest,
                    **(
                        {"mask_data": {"file": store.put(pixels.npy(), "npy"), "format": "npy"}}
                        if pixels is not None
                        else {}
                    ),
                }
                for key, (pixels, rest) in self._mask_layers.items()
            }
        suffix = file.rpartition(".")[2]
        return [MediaFile(format=suffix, file=file, caption=self.caption, width=width, height=height, meta=meta)]

    def _set_data(self, data: Any, mode: str | None, normalize: bool) -> None:
        if isinstance(data, Image):
            self.width, self.height, self._path = data.width, data.height, data._path
            self._content, self._suffix, self.format = data._content, data._suffix, data.format
            self._shape = data._shape
            self.caption = self.caption if self.caption is not None else data.caption
        elif isinstance(data, (str, os.PathLike)):
            self._path = existing(data, "an image")
            self.format = self._path.suffix.lstrip(".").lower()
        elif isinstance(data, (bytes, bytearray)):
            self._file(bytes(data))
        elif comes_from(data, "matplotlib") or getattr(data, "__name__", "") == "matplotlib.pyplot":
            self._file(render(data, self.format))
        elif comes_from(data, "PIL") and data.mode != "F":
            self._take_pillow(data.convert(mode) if mode else data)
        else:
            if comes_from(data, "PIL"):  # floats, which Pillow would cut to 0 to 255: those from 0 to 1 would be black
                data = as_numpy(data)
            pixels = image_pixels(data, normalize)
            channels = pixels.shape[2] if len(pixels.shape) == 3 else 1
            if mode is None or _CHANNELS.get(mode) == channels:
                self._pixels(pixels)
            else:
                from PIL import Image as pillow

                source = {1: "L", 3: "RGB", 4: "RGBA"}[channels]
                self._take_pillow(pillow.frombytes(source, pixels.shape[1::-1], pixels.data).convert(mode))

    def _take_pillow(self, image: Any) -> None:
        if image.mode in ("1", "P", "PA", "LA", "La", "RGBa"):
            grey = image.mode == "1"
            clear = image.mode not in ("1", "P") or "transparency" in image.info
            image = image.convert("L" if grey else "RGBA" if clear else "RGB")
        if image.mode in _CHANNELS:
            width, height = image.size
            channels = _CHANNELS[image.mode]
            shape = (height, width) if channels == 1 else (height, width, channels)
            self._pixels(Pixels(shape, image.tobytes()))
        else:
            # 16-bit and other modes have no place in uint8 pixels; PNG keeps what it can of them.
            buffer = io.BytesIO()
            (image if image.mode.startswith("I") else image.convert("RGB")).save(buffer, "png")
            self._file(buffer.getvalue())

    def _pixels(self, pixels: Pixels) -> None:
        self.height, self.width = pixels.shape[:2]
        self._content, self._suffix, self._shape = pixels.npy(), "npy", pixels.shape

    def _file(self, content: bytes) -> None:
        kind = sniff(content)
        if kind is None:
            raise UsageError("not an image in a known format: png, jpg, gif, bmp, webp, tiff")
        self.width, self.height = dimensions(content)
        self._content, self._suffix, self.format = content, kind, kind

    def _annotations(
        self, grouping: int | None, classes: Any, boxes: Mapping[str, Any] | None, masks: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        meta: dict[str, Any] = {}
        if grouping is not None:
            meta["grouping"] = grouping
        if classes is not None:
            meta["classes"] = _as_json("classes", classes.class_set if isinstance(classes, Classes) else classes)
        if boxes:
            meta["boxes"] = _as_json("boxes", boxes)
        for key, mask in (masks or {}).items():
            if not isinstance(mask, Mapping):
                logger.warning("mask %r left out: give a dict with mask_data, not %s", key, type(mask).__name__)
                continue
            data = mask.get("mask_data")
            if data is None:
                pixels = _mask_file(mask["path"]) if mask.get("path") else None
            else:
                pixels = image_pixels(data, normalize=False)
                if _is_bool(data):  # of a picture True is white, here it is class 1
                    pixels = Pixels(pixels.shape, pixels.data.replace(b"\xff", b"\x01"))
            rest = _as_json("masks", {name: item for name, item in mask.items() if name not in ("mask_data", "path")})
            self._mask_layers[str(key)] = (pixels, rest or {})
        return {key: value for key, value in meta.items() if value is not None}


def _is_bool(value: Any) -> bool:
    """Whether an array, a tensor or a nested list has truth values alone."""
    if isinstance(value, Sequence):
        return all(map(_is_bool, value))
    return isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool")


def _mask_file(path: str | os.PathLike[str]) -> Pixels:
    """A picture whose grey values, or numbers of colours, are the classes of a mask."""
    from PIL import Image as pillow

    with pillow.open(existing(path, "a mask")) as opened:
        picture = opened if opened.mode in ("L", "P") else opened.convert("L")
        return Pixels((picture.height, picture.width), picture.tobytes())


def existing(path: str | os.PathLike[str], what: str) -> Path:
    """The absolute path of a file that is there.

    Raises:
        ValueError: an address (s3://…), which can't be copied into the run.
        FileNotFoundError: no such file.
    """
    if "://" in os.fspath(path):
        raise UsageError(f"{what} is logged from a local file, not from {os.fspath(path)!r}")
    absolute = Path(path).absolute()
    if not absolute.is_file():
        raise FileNotFoundError(f"no such file: {absolute}")
    return absolute


def render(value: Any, file_type: str = "png") -> bytes:
    """A matplotlib figure, something drawn in one, or ``pyplot`` itself, as the bytes of an image file."""
    if hasattr(value, "gcf"):
        value = value.gcf()
    figure = value if hasattr(value, "savefig") else value.get_figure()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png" if file_type == "bmp" else file_type)
    return buffer.getvalue()


def sniff(content: bytes) -> str | None:
    """Which kind of image file this is, by its first bytes."""
    for magic, kind in (
        (b"\x89PNG\r\n\x1a\n", "png"), (b"\xff\xd8\xff", "jpg"), (b"GIF8", "gif"), (b"BM", "bmp"),
        (b"II*\x00", "tiff"), (b"MM\x00*", "tiff"),
    ):  # fmt: skip
        if content.startswith(magic):
            return kind
    return "webp" if content[:4] == b"RIFF" and content[8:12] == b"WEBP" else None


def dimensions(content: bytes) -> tuple[int | None, int | None]:
    """Width and height in pixels of a png, gif or jpg file; None where they can't be told."""
    kind = sniff(content)
    if kind == "png" and len(content) >= 24:
        return int.from_bytes(content[16:20], "big"), int.from_bytes(content[20:24], "big")
    if kind == "gif" and len(content) >= 10:
        return int.from_bytes(content[6:8], "little"), int.from_bytes(content[8:10], "little")
    at = 2
    while kind == "jpg" and at + 9 < len(content) and content[at] == 0xFF:
        marker = content[at + 1]
        # Start-of-frame markers carry the size; C4, C8 and CC are tables of other kinds.
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return int.from_bytes(content[at + 7 : at + 9], "big"), int.from_bytes(content[at + 5 : at + 7], "big")
        at += 2 + int.from_bytes(content[at + 2 : at + 4], "big")
    return None, None


def _as_json(what: str, value: Any) -> Any:
    try:
        plain = name_floats(msgspec.to_builtins(value, str_keys=True, enc_hook=_item))  # JSON has no NaN
        return msgspec.json.decode(msgspec.json.encode(plain))
    except (TypeError, ValueError, msgspec.MsgspecError) as error:
        pass_on(error)
        logger.warning("%s of an image left out, as they can't be written as JSON: %s", what, error)
        return None


def _item(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not a plain value")
