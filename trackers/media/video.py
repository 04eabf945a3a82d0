"""Videos."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from trackers.media.base import MediaStore, MediaValue
from trackers.media.image import existing
from trackers.media.pixels import Pixels, video_pixels
from trackers.records import MediaFile

FORMATS = ("gif", "mp4", "webm", "ogg")
FPS = 4
"""Frames per second where none are given, as in W&B."""


class Video(MediaValue):
    """A video.

    Args:
        data_or_path: an array or tensor, frames x channels x height x width (or channels last; a fifth axis in front
            is a batch, shown side by side), the path of a video file, or the content of one (bytes or a binary
            file) with ``format``. Values as in :mod:`trackers.media.pixels`.
        caption: text shown with it.
        fps: frames per second of an array.
        format: gif, mp4, webm or ogg: what the content is, or what trackers encode an array to.

    Raises:
        ValueError: not a video.
        FileNotFoundError: no such file.
    """

    type = "video"

    def __init__(
        self,
        data_or_path: Any,
        caption: str | None = None,
        fps: float | None = None,
        format: str | None = None,
    ) -> None:
        if format is not None and format not in FORMATS:
            raise ValueError(f"a video's format is one of {', '.join(FORMATS)}, not {format!r}")
        self.caption = caption
        self.fps = fps
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
                raise ValueError(f"a video's format is one of {', '.join(FORMATS)}, not {self._suffix!r}")
        elif isinstance(data_or_path, (bytes, bytearray)) or hasattr(data_or_path, "read"):
            if format is None:
                raise ValueError(f"Video from bytes needs format, one of {', '.join(FORMATS)}")
            content = data_or_path if isinstance(data_or_path, (bytes, bytearray)) else data_or_path.read()
            self._content = bytes(content)
        else:
            self._take(video_pixels(data_or_path))
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

    def _take(self, pixels: Pixels) -> None:
        self.height, self.width = pixels.shape[1:3]
        self.fps = self.fps or FPS
        self._content, self._suffix = pixels.npy(), "npy"
