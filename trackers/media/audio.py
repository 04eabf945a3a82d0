"""Sounds."""

from __future__ import annotations

import io
import os
import wave
from array import array as sequence
from pathlib import Path
from typing import Any

from trackers.media.base import MediaStore, MediaValue
from trackers.media.image import existing
from trackers.media.pixels import as_numpy, is_array
from trackers.records import MediaFile

MAX_CHANNELS = 64


class Audio(MediaValue):
    """A sound.

    Args:
        data_or_path: samples, or the path of a sound file. Samples are an array, tensor or list of floats in -1…1
            (clipped) or of integers, of shape samples or samples x channels (or channels x samples, where that is
            the only way that makes sense); they are kept as 16-bit PCM.
        sample_rate: Hz; needed with samples.
        caption: text shown with it.

    Raises:
        ValueError: not a sound, or no sample rate.
        FileNotFoundError: no such file.
    """

    type = "audio"

    def __init__(self, data_or_path: Any, sample_rate: int | None = None, caption: str | None = None) -> None:
        self.caption = caption
        self.sample_rate = sample_rate
        self._path: Path | None = None
        self._content = b""
        if isinstance(data_or_path, (str, os.PathLike)):
            self._path = existing(data_or_path, "a sound")
            return
        if sample_rate is None:
            raise ValueError("Audio from samples needs sample_rate (Hz)")
        channels, samples = _pcm(data_or_path)
        buffer = io.BytesIO()
        with wave.open(buffer, "wb") as out:
            out.setnchannels(channels)
            out.setsampwidth(2)
            out.setframerate(int(sample_rate))
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


def _pcm(data: Any) -> tuple[int, bytes]:
    """Number of channels, and little-endian 16-bit samples, channels interleaved."""
    if not is_array(data) and data and isinstance(data[0], (int, float)):
        whole = all(isinstance(item, int) for item in data)
        samples = sequence("h", (_clip(item if whole else item * 32767) for item in data))
        if _big_endian():
            samples.byteswap()
        return 1, samples.tobytes()
    import numpy as np

    values = as_numpy(data) if is_array(data) else np.asarray(data)
    if values.ndim == 2 and values.shape[1] > MAX_CHANNELS >= values.shape[0]:
        values = values.T
    if values.ndim not in (1, 2) or (values.ndim == 2 and not 0 < values.shape[1] <= MAX_CHANNELS):
        raise ValueError(f"a sound is samples, or samples x channels, not {tuple(values.shape)}")
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
        raise ValueError(f"samples are numbers, not {values.dtype}")
    return (values.shape[1] if values.ndim == 2 else 1), scaled.astype("<i2").tobytes()


def _clip(value: float) -> int:
    return 0 if value != value else round(min(max(value, -32768), 32767))


def _big_endian() -> bool:
    import sys

    return sys.byteorder == "big"


def _rate(content: bytes) -> int | None:
    try:
        with wave.open(io.BytesIO(content)) as sound:
            return int(sound.getframerate())
    except (wave.Error, EOFError):
        return None
