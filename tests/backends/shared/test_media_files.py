"""Stored media read back for the vendors: arrays, encoded files, tables, and what is broken."""

from __future__ import annotations

import errno
import io
import os
import tracemalloc
import wave
import zlib
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock

import numpy
import pytest
from PIL import Image

from tests.helpers import run_info
from trackers.backends.shared import media_files
from trackers.errors import Rejected, Unavailable
from trackers.records import ArtifactFile, MediaFile
from trackers.tracker import RunInfo


@pytest.fixture
def info(tmp_path: Path) -> RunInfo:
    return run_info(tmp_path / "run")


def array(info: RunInfo, values: Any, **fields: Any) -> MediaFile:
    numpy.save(info.path("a.npy"), values)
    return MediaFile(format="npy", file="a.npy", **fields)


@pytest.mark.parametrize(
    ("values", "mode", "first"),
    [
        (numpy.array([[True, False]]), "L", 255),
        (numpy.array([[7, 300], [-1, 0]]), "L", 7),
        (numpy.array([[0.5, 1.0]]), "L", 128),
        (numpy.array([[-1.0, 1.0]]), "L", 0),
        (numpy.array([[255.0, float("nan")]]), "L", 255),
        (numpy.full((2, 5, 1), 9, "uint8"), "L", 9),
        (numpy.full((2, 5, 3), 9, "uint8"), "RGB", (9, 9, 9)),
        (numpy.full((4, 5, 6), 9, "uint8"), "RGBA", (9, 9, 9, 9)),
    ],
)
def test_array_is_an_image_as_its_kind_says(info: RunInfo, values: Any, mode: str, first: Any) -> None:
    """Booleans, integers, floats of every range, and channels first or last become the pixels they mean."""
    picture = media_files.image(info, array(info, values))
    assert (picture.mode, picture.getpixel((0, 0))) == (mode, first)
    assert Image.open(io.BytesIO(media_files.png(info, array(info, values)))).size == picture.size


@pytest.mark.parametrize("at", ["open", "read"])
def test_file_that_cannot_be_read_for_now_is_tried_again(
    info: RunInfo, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """A network's filesystem that stalls, or a machine without descriptors, costs no record."""
    item = array(info, numpy.zeros((2, 2), "uint8"))
    error = OSError(errno.ESTALE, os.strerror(errno.ESTALE))
    with monkeypatch.context() as patch:
        if at == "open":
            patch.setattr(media_files.confined, "open_file", Mock(side_effect=error))
        else:
            file = MagicMock()
            file.__enter__.return_value.read.side_effect = error
            patch.setattr(media_files.confined, "open_file", Mock(return_value=file))
        with pytest.raises(Unavailable, match=r"a\.npy can't be read for now"):
            media_files.content(info, item)
    assert media_files.content(info, item)


def test_folder_that_is_no_directory_is_waited_for(info: RunInfo) -> None:
    """As training does: what lies there is read once the directory is back; a link in its place stays refused."""
    folder = info.path("media")
    info.path("media-away", "3c").mkdir(parents=True)
    info.path("media-away", "3c", "a.txt").write_text("seven")
    item = MediaFile(format="txt", file="media/3c/a.txt")
    folder.write_text("no folder")
    with pytest.raises(Unavailable, match="media is no directory"):
        media_files.content(info, item)
    folder.unlink()
    folder.symlink_to(info.path("media-away"))
    with pytest.raises(Rejected):
        media_files.content(info, item)
    folder.unlink()
    info.path("media-away").rename(folder)
    assert media_files.content(info, item) == b"seven"


@pytest.mark.parametrize("values", [numpy.zeros((0, 3)), numpy.zeros(4), numpy.zeros((5, 7, 9)), numpy.array(["a"])])
def test_array_that_is_no_image_is_rejected(info: RunInfo, values: Any) -> None:
    """What has no pixels rejects its record instead of failing the delivery."""
    with pytest.raises(Rejected, match="is not an image"):
        media_files.image(info, array(info, values))


@pytest.mark.parametrize(
    "name",
    ["../victim", "/etc/hostname", "media/../../victim", "link", "folder/victim", "pipe", "gone", "media", "a\0b"],
)
def test_file_that_is_not_the_runs_is_rejected(info: RunInfo, name: str) -> None:
    """What a record names is read only if it is a regular file in the run, through no link."""
    victim = info.path().parent / "victim"
    victim.write_text("precious")
    info.path("media").mkdir()
    info.path("link").symlink_to(victim)
    info.path("folder").symlink_to(victim.parent)
    os.mkfifo(info.path("pipe"))
    with pytest.raises(Rejected):
        media_files.path(info, MediaFile(format="file", file=name))


def test_file_that_is_far_longer_than_any_that_was_logged_is_rejected(info: RunInfo) -> None:
    """A sparse file in a medium's or an artifact's place costs nothing, and neither the reader's memory nor time. What
    was logged that large is delivered."""
    with open(info.path("a.bin"), "wb") as file:
        file.truncate(12 << 40)
    for item in (MediaFile(format="png", file="a.bin"), ArtifactFile(path="a", file="a.bin", size=3)):
        with pytest.raises(Rejected, match="is longer than"):
            media_files.path(info, item)
    with pytest.raises(Rejected, match="is longer than"):
        media_files.content(info, MediaFile(format="html", file="a.bin"))
    assert media_files.path(info, ArtifactFile(path="a", file="a.bin", size=12 << 40)).name == "a.bin"
    os.truncate(info.path("a.bin"), 300_000_000)
    with pytest.raises(Rejected, match="is longer than"):
        media_files.path(info, MediaFile(format="mp4", file="a.bin"))
    info.options["TRACKER_MEDIA_MAX_MB"] = "400"
    assert media_files.path(info, MediaFile(format="mp4", file="a.bin")).name == "a.bin"


def test_broken_files_are_rejected(info: RunInfo) -> None:
    """Truncated pictures, sounds, videos, tables and histograms reject their record alone."""
    info.path("x").write_bytes(b"\x89PNG broken")
    broken = MediaFile(format="npy", file="x")
    readers = (media_files.image, media_files.wav, media_files.gif, media_files.table, media_files.histogram)
    for reader in readers:
        with pytest.raises(Rejected):
            reader(info, broken)
    with pytest.raises(Rejected, match="not an image"):
        media_files.image(info, MediaFile(format="png", file="x"))


def npy(kind: str, shape: str) -> bytes:
    """The head of an array of that type and shape, and forty bytes."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode() + bytes(40)


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("<f2", f"({2**31 - 1},)"), ("|u1", f"({2**70},)"), ("|u1", "(99999, 99999, 3)"), ("|u1", "(" * 300),
        ("|V0", "(30000, 4000, 3)"), ("<U999999", "(0, 30000)"), ("|O", "(2, 2)"), ("<M8[s]", "(5,)"), ("|u1", "(-1,)"),
    ],
)  # fmt: skip
def test_array_that_is_not_what_it_claims_is_rejected(info: RunInfo, kind: str, shape: str) -> None:
    """A head that promises more than there is, or elements that aren't numbers: one record is rejected, in one line."""
    info.path("x").write_bytes(npy(kind, shape))
    for reader in (media_files.image, media_files.png, media_files.wav, media_files.gif, media_files.frames):
        with pytest.raises(Rejected) as caught:
            reader(info, MediaFile(format="npy", file="x"))
        assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("form", "at", "order"), [("png", 16, "big"), ("gif", 6, "little"), ("bmp", 18, "little")])
def test_picture_that_unpacks_to_too_much_is_rejected(info: RunInfo, form: str, at: int, order: Any) -> None:
    """A file of some hundred bytes whose head says 60,000 × 60,000: nothing of that size is made."""
    picture = io.BytesIO()
    Image.new("RGB", (4, 4)).save(picture, format=form)
    content, side = bytearray(picture.getvalue()), 2 if form == "gif" else 4
    content[at : at + 2 * side] = (60_000).to_bytes(side, order) * 2
    if form == "png":
        content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    info.path("x").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(Rejected, match="is not an image"):
        media_files.image(info, MediaFile(format=form, file="x"))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_files_stay_inside_the_runs_directory(info: RunInfo, tmp_path: Path) -> None:
    """A record that points elsewhere is rejected, whatever lies there."""
    (tmp_path / "secret").write_text("x")
    for file in ("../secret", str(tmp_path / "secret"), "gone", ""):
        with pytest.raises(Rejected):
            media_files.path(info, MediaFile(format="png", file=file))


def test_sound_and_video_are_encoded(info: RunInfo) -> None:
    """Samples become 16-bit WAV at their rate, frames an animated GIF of their speed."""
    sound = media_files.wav(info, array(info, numpy.array([[0.0, 1.0], [-1.0, 5.0]]), sample_rate=100))
    with wave.open(io.BytesIO(sound)) as read:
        assert (read.getnchannels(), read.getframerate(), read.getnframes()) == (2, 100, 2)
        assert numpy.frombuffer(read.readframes(2), "<i2").tolist() == [0, 32767, -32767, 32767]
    colours = numpy.arange(3, dtype="uint8")[:, None, None, None] * numpy.full((1, 3, 8, 9), 100, "uint8")
    with Image.open(io.BytesIO(media_files.gif(info, array(info, colours, fps=10)))) as video:
        assert (video.size, getattr(video, "n_frames", 1), video.info["duration"]) == ((9, 8), 3, 100)


def test_cells_of_tables_tell_media_from_values() -> None:
    """Only what training stored as media is taken for it; one or several of one kind."""
    image = {"_type": "image", "format": "png", "file": "a.png", "caption": "c"}
    assert media_files.cell(image) == ("image", [MediaFile(format="png", file="a.png", caption="c")])
    several = media_files.cell([image, image])
    assert several is not None
    assert len(several[1]) == 2
    for value in (
        1,
        "x",
        [],
        {},
        {"_type": "image"},
        {"_type": "image", "format": "png"},
        {"_type": "image", "format": "png", "data": "iVBORw0"},
        [image, 1],
        [image, {**image, "_type": "audio"}],
        {**image, "file": 3},
    ):
        assert media_files.cell(value) is None
