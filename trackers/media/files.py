"""Sounds, videos and HTML pages: media kept as files."""

from __future__ import annotations

import io
import os
import re
import sys
import wave
from array import array as sequence
from pathlib import Path
from typing import Any

from trackers.errors import UsageError
from trackers.media.base import MediaStore, MediaValue, kind_of, made_from, positive
from trackers.media.image import Image, Pixels, as_numpy, existing, is_array, video_pixels
from trackers.records import MediaFile
from trackers.support.interruption import pass_on

MAX_CHANNELS = 64
MAX_WAV = 0xFFFF_FFFF
"""The largest number in a WAV file's header: its bytes, and its bytes for each second."""


class Audio(MediaValue):
    """A sound.

    Args:
        data_or_path: samples, or the path of a sound file. Samples are an array, tensor or list of floats in -1…1
            (clipped) or of integers, of shape samples or samples x channels (or channels x samples, where that is
            the only way that makes sense); they are kept as 16-bit PCM.
        sample_rate: Hz, 1 or more; needed with samples.
        caption: text shown with it.

    Raises:
        UsageError: not a sound, or no sample rate.
        FileNotFoundError: no such file.
    """

    type = "audio"

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        self.caption = caption
        self.sample_rate = sample_rate if sample_rate is None else int(_rate_of(sample_rate))
        self._path: Path | None = None
        self._content = b""
        if isinstance(data_or_path, (str, os.PathLike)):
            self._path = existing(data_or_path, "a sound")
            return
        if sample_rate is None:
            raise UsageError("Audio from samples needs sample_rate (Hz)")
        with made_from("Audio", data_or_path):
            channels, samples = _pcm(data_or_path)
        if max(len(samples) + 1024, 2 * channels * int(self.sample_rate or 0)) > MAX_WAV:
            raise UsageError("Audio from samples holds at most 4 GiB: log it in parts, or give the path of a file")
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as out:
            out.setnchannels(channels)
            out.setsampwidth(2)
            out.setframerate(int(self.sample_rate or 0))
            out.writeframes(samples)
        self._content = buffer.getvalue()

    def items(self, store: MediaStore) -> list[MediaFile]:
        if self._path is not None:
            file, content = store.put_file(self._path)
            rate = self.sample_rate or _rate(content)
        else:
            file, rate = store.put(self._content, "wav"), self.sample_rate
        suffix = file.rpartition(".")[2]
        return [MediaFile(format=suffix, file=file, caption=self.caption, sample_rate=rate and int(rate))]


def _rate_of(value: Any) -> float:
    rate = positive("sample_rate (Hz)", value, MAX_WAV)
    if rate < 1:
        raise UsageError(f"sample_rate (Hz) is 1 or more, not {value!r}")
    return rate


def _pcm(data: Any) -> tuple[int, bytes]:
    """Number of channels, and little-endian 16-bit samples, channels interleaved."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        raise UsageError("Audio takes samples or the path of a sound file, not bytes: give the file's path")
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], (int, float)):
        whole = all(isinstance(item, int) for item in data)
        given = data if whole else [item * 32767 for item in data]
        samples = sequence("h", (0 if one != one else round(min(max(one, -32768), 32767)) for one in given))
        if sys.byteorder == "big":
            samples.byteswap()
        return 1, samples.tobytes()
    import numpy as np

    values = as_numpy(data) if is_array(data) else np.asarray(data)
    if values.ndim == 2 and values.shape[1] > MAX_CHANNELS >= values.shape[0]:
        values = values.T
    if values.ndim not in (1, 2) or (values.ndim == 2 and not 0 < values.shape[1] <= MAX_CHANNELS):
        raise UsageError(f"audio must be an array of samples, or of samples x channels, not {tuple(values.shape)}")
    kind = values.dtype.kind
    if kind == "f":
        scaled = np.rint(np.nan_to_num(values.astype(np.float64), nan=0.0).clip(-1, 1) * 32767)
    elif values.dtype == np.int32:
        scaled = values >> 16
    elif values.dtype == np.uint8:
        scaled = (values.astype(np.int32) - 128) << 8
    elif kind in "iu":
        scaled = values.clip(-32768, 32767)
    else:
        raise UsageError(f"samples must be numbers, not {values.dtype}")
    return (values.shape[1] if values.ndim == 2 else 1), scaled.astype("<i2").tobytes()


def _rate(content: bytes) -> int | None:
    try:
        with wave.open(io.BytesIO(content)) as sound:
            return int(sound.getframerate())
    except (wave.Error, EOFError):
        return None


FORMATS = ("gif", "mp4", "webm", "ogg")
FPS = 4
"""Frames per second where none are given, as in W&B."""
MAX_FPS = 1000


class Video(MediaValue):
    """A video.

    Args:
        data_or_path: an array or tensor, frames x channels x height x width (or channels last; a fifth axis in front
            is a batch, shown side by side), the path of a video file, or the content of one (bytes or a binary
            file) with ``format``. Values as in :mod:`trackers.media.image`.
        caption: text shown with it.
        fps: frames per second of an array, above 0 and at most 1,000.
        format: gif, mp4, webm or ogg: what the content is, or what trackers encode an array to.

    Raises:
        UsageError: not a video.
        FileNotFoundError: no such file.
    """

    type = "video"

    def __init__(
        self, data_or_path: Any, caption: str | None = None, fps: float | None = None, format: str | None = None
    ) -> None:
        if format is not None and format not in FORMATS:
            raise UsageError(f"a video's format must be one of {', '.join(FORMATS)}, not {format!r}")
        self.caption = caption
        self.fps = fps if fps is None else positive("fps", fps, MAX_FPS)
        self.width: int | None = None
        self.height: int | None = None
        self._path: Path | None = None
        self._content = b""
        self._suffix = format or ""
        self._meta: dict[str, Any] = {}
        if isinstance(data_or_path, (str, os.PathLike)):
            self._path = existing(data_or_path, "a video")
            self._suffix = self._path.suffix.lstrip(".").lower()
            if self._suffix not in FORMATS:
                raise UsageError(f"a video's format must be one of {', '.join(FORMATS)}, not {self._suffix!r}")
        elif isinstance(data_or_path, (bytes, bytearray)) or hasattr(data_or_path, "read"):
            if format is None:
                raise UsageError(f"Video from bytes needs format, one of {', '.join(FORMATS)}")
            content = data_or_path if isinstance(data_or_path, (bytes, bytearray)) else data_or_path.read()
            self._content = bytes(content)
        else:
            with made_from("Video", data_or_path):
                self._set_pixels(video_pixels(data_or_path))
            if format is not None:
                self._meta["file_type"] = format

    def items(self, store: MediaStore) -> list[MediaFile]:
        file = store.put_file(self._path)[0] if self._path is not None else store.put(self._content, self._suffix)
        return [
            MediaFile(
                format=self._suffix,
                file=file,
                caption=self.caption,
                width=self.width,
                height=self.height,
                fps=self.fps,
                meta=dict(self._meta),
            )
        ]

    def _set_pixels(self, pixels: Pixels) -> None:
        self.height, self.width = pixels.shape[1:3]
        self.fps = self.fps or FPS
        self._content, self._suffix = pixels.npy(), "npy"


class Html(MediaValue):
    """A piece of HTML.

    Args:
        data: HTML, a file that is open, or the path of a file that ends in ``.html``.
        inject: W&B adds its style sheet; False leaves the page as it is.
        data_is_not_path: take ``data`` as HTML even if there is a file of that name.

    Raises:
        UsageError: something else. FileNotFoundError: a path without a file.
    """

    type = "html"

    def __init__(self, data: Any, inject: bool = True, data_is_not_path: bool = False) -> None:
        self._meta: dict[str, Any] = {} if inject else {"inject": False}
        if not data_is_not_path and _is_page(data):
            with open(data, encoding="utf-8", errors="replace") as page:
                self.html = page.read()
        elif not data_is_not_path and isinstance(data, (str, os.PathLike)) and _PATH.fullmatch(os.fspath(data)):
            raise FileNotFoundError(f"no such file: {Path(data).absolute()}")
        elif isinstance(data, str):
            self.html = data
        elif hasattr(data, "read"):
            if hasattr(data, "seek"):
                data.seek(0)
            content = data.read()
            self.html = content if isinstance(content, str) else bytes(content).decode("utf-8", "replace")
        else:
            raise UsageError(f"Html is made from text, a path ending in .html or an open file, not {kind_of(data)}")

    def items(self, store: MediaStore) -> list[MediaFile]:
        content = self.html.encode("utf-8", "replace")
        return [MediaFile(format="html", file=store.put(content, "html"), meta=dict(self._meta))]


_PATH = re.compile(r"[^<>\n\0]+\.html")
"""A text that is a path, not HTML."""


def _is_page(data: Any) -> bool:
    if not isinstance(data, (str, os.PathLike)):
        return False
    path = os.fspath(data)
    try:
        return path.endswith(".html") and os.path.isfile(path)
    except ValueError as error:  # a NUL byte in the text
        pass_on(error)
        return False


class Plotly(Html):
    """A figure of plotly's, or of matplotlib's: recorded as a page, or as a picture.

    Raises:
        UsageError: neither.
    """

    def __init__(self, val: Any) -> None:
        self._picture: MediaValue | None = None
        if hasattr(val, "to_html"):
            with made_from("Plotly", val):
                page = val.to_html(include_plotlyjs="cdn")
            super().__init__(page, inject=False, data_is_not_path=True)
        elif hasattr(val, "savefig") or hasattr(val, "get_figure"):
            self._picture = Image(val)
            self.type = "image"  # type: ignore[misc]
        else:
            raise UsageError(f"Plotly takes a figure, not {type(val).__name__}")

    @classmethod
    def make_plot_media(cls, val: Any) -> MediaValue:
        """A figure as what it is recorded as."""
        made = cls(val)
        return made._picture or made

    def items(self, store: MediaStore) -> list[MediaFile]:
        return self._picture.items(store) if self._picture is not None else super().items(store)
