"""Media values: what they take, what they keep, and that they take it over at once."""

from __future__ import annotations

import bisect
import datetime
import io
import json
import math
import subprocess
import sys
import wave
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import matplotlib.figure
import numpy as np
import pandas as pd
import PIL.Image
import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trackers import media, records
from trackers.errors import UsageError
from trackers.formats.pixels import open_picture
from trackers.media import Audio, Histogram, Html, Image, RunMedia, Table, Video, as_media, is_media
from trackers.media import image as image_module
from trackers.media.image import Pixels

RNG = np.random.default_rng(7)


@pytest.fixture
def store(tmp_path: Path) -> RunMedia:
    return RunMedia(tmp_path / "run", max_bytes=1 << 24)


def content(store: RunMedia, item: records.MediaFile) -> bytes:
    return (store.directory / item.file).read_bytes()


def pixels(store: RunMedia, value: Any) -> Any:
    (item,) = value.items(store)
    array = np.load(store.directory / item.file, allow_pickle=False)
    if value.type == "image":
        assert (item.height, item.width) == array.shape[:2]
    assert item.format == "npy"
    assert array.dtype == np.uint8
    return array


def wandb_pixels(value: Any, **more: Any) -> Any:
    import wandb

    return np.asarray(PIL.Image.open(wandb.Image(value, **more)._path))


IN_RANGE: dict[str, Any] = {
    "uint8 grey": RNG.integers(0, 256, (5, 7), np.uint8),
    "uint8 grey with a channel": RNG.integers(0, 256, (5, 7, 1), np.uint8),
    "uint8 rgb": RNG.integers(0, 256, (5, 7, 3), np.uint8),
    "uint8 rgba": RNG.integers(0, 256, (5, 7, 4), np.uint8),
    "int64": RNG.integers(0, 256, (5, 7, 3)),
    "float to 255": RNG.uniform(0, 255, (5, 7, 3)),
    "float32 to 255": RNG.uniform(2, 255, (5, 7, 3)).astype(np.float32),
    "leading 1": RNG.integers(0, 256, (1, 5, 7, 3), np.uint8),
    "Fortran order": np.asfortranarray(RNG.integers(0, 256, (5, 7, 3), np.uint8)),
    "torch rgb": torch.from_numpy(RNG.integers(0, 256, (3, 5, 7), np.uint8)),
    "torch grey": torch.from_numpy(RNG.integers(0, 256, (1, 5, 7), np.uint8)),
    "torch float with grad": torch.from_numpy(RNG.uniform(2, 255, (4, 5, 7))).requires_grad_(),
}


@pytest.mark.parametrize("name", IN_RANGE)
def test_image_array_in_range_has_the_pixels_that_wandb_makes(name: str, store: RunMedia) -> None:
    """What lies in 0…255 gives, pixel by pixel, the picture that the real wandb.Image writes."""
    np.testing.assert_array_equal(pixels(store, Image(IN_RANGE[name])), wandb_pixels(IN_RANGE[name]))


def test_image_without_normalizing_has_the_pixels_that_wandb_makes(store: RunMedia) -> None:
    """``normalize=False`` leaves 0…1 as wandb 0.31 does: black."""
    array = RNG.uniform(0, 1, (5, 7, 3))
    np.testing.assert_array_equal(pixels(store, Image(array, normalize=False)), wandb_pixels(array))


@pytest.mark.parametrize(
    ("array", "expected", "said"),
    [
        (np.array([[0, 300], [1000, 65535]], np.uint16), [[0, 1], [3, 255]], "stretched"),
        (np.array([[0, 1000], [2000, 4000]], np.int32), [[0, 63], [127, 255]], "stretched"),
        (np.array([[0.0, 150.0], [300.0, 75.0]]), [[0, 127], [255, 63]], "stretched"),
        (np.array([[-10.0, 0.0], [128.0, 270.0]]), [[0, 0], [128, 255]], "clipped"),
        (np.array([[-1, 0], [128, 256]]), [[0, 0], [128, 255]], "clipped"),
    ],
)
def test_values_beyond_255_are_scaled_and_that_is_said(
    array: Any, expected: Any, said: str, store: RunMedia, caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """16 bits and wide floats fill 0 to 255; a little beyond is clipped. Once each, one line."""
    monkeypatch.setattr(image_module, "_assumed", set())
    for one in (array, array.tolist()):
        assert pixels(store, Image(one)).tolist() == expected
    assert len(caplog.messages) == 1
    assert said in caplog.messages[0]


def test_image_has_wandbs_attributes(store: RunMedia, tmp_path: Path) -> None:
    """``image`` is what is recorded, as Pillow has it; size, caption and the like under W&B's names."""
    array = RNG.integers(0, 255, (2, 3, 3), dtype=np.uint8)
    made = Image(array, caption="c", grouping=2)
    np.testing.assert_array_equal(np.asarray(made.image), array)
    assert (made._caption, made._width, made._height, made._grouping, made._boxes, made._masks) == (
        "c", 3, 2, 2, None, None,
    )  # fmt: skip
    made.image.save(tmp_path / "a.png")
    again = Image(tmp_path / "a.png")
    np.testing.assert_array_equal(np.asarray(again.image), array)
    assert (again._width, again._height, Image(made)._caption) == (3, 2, "c")
    made._caption = "other"
    assert made.items(store)[0].caption == "other"


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[0.0, 0.25], [0.5, 1.0]]), [[0, 63], [127, 255]]),
        (np.array([[-1.0, -0.5], [0.0, 1.0]]), [[0, 63], [127, 255]]),
        (np.array([[-10.0, 0.0], [0.0, 10.0]]), [[0, 127], [127, 255]]),
        (np.array([[True, False]]), [[255, 0]]),
        (np.array([[-5, 300]]), [[0, 255]]),
        (np.array([[math.nan, math.inf], [-math.inf, 3.5]]), [[0, 255], [0, 3]]),
        (np.array([[math.nan, math.nan]]), [[0, 0]]),
        (np.array([[0.0, 1.0]], np.float16), [[0, 255]]),
    ],
)
def test_image_values_are_scaled_by_their_range(array: Any, expected: Any, store: RunMedia) -> None:
    """0…1 and -1…1 fill 0…255, everything else is clipped, NaN is black, bool is black or white."""
    assert pixels(store, Image(array)).tolist() == expected
    assert pixels(store, Image(torch.from_numpy(array))).tolist() == expected
    assert pixels(store, Image(array.tolist())).tolist() == expected


@pytest.mark.parametrize(
    ("array", "expected", "taken"),
    [
        ([[0.0, 0.5, 1.003]], [[0, 127, 255]], "0 to 1"),
        ([[0.0, 0.5, 2.0]], [[0, 127, 255]], "0 to 1"),
        ([[-0.2, 0.5, 1.1]], [[0, 127, 255]], "0 to 1"),
        ([[-0.05, 0.5, 0.98]], [[0, 127, 249]], "0 to 1"),
        ([[-1.1, 0.0, 1.0]], [[0, 127, 255]], "-1 to 1"),
        ([[-0.9, 0.0, 1.2]], [[12, 127, 255]], "-1 to 1"),
        ([[0.0, 2.5, 255.0]], [[0, 2, 255]], ""),
        ([[-0.2, 0.0, 0.2]], [[102, 127, 153]], ""),
        ([[-2.0, 0.0, 2.0]], [[0, 127, 255]], "stretched"),
    ],
)
def test_image_values_a_little_out_of_their_range(
    array: Any, expected: Any, taken: str, store: RunMedia, caplog: pytest.LogCaptureFixture
) -> None:
    """As resizing makes them: scaled by the range that they lead out of, and clipped; once it is said which."""
    image_module._assumed.clear()
    for _ in range(2):
        assert pixels(store, Image(np.array(array))).tolist() == expected
        assert pixels(store, Image(array)).tolist() == expected
    said = [record.getMessage() for record in caplog.records]
    words = "are stretched to 0 to 255" if taken == "stretched" else f"are taken as {taken}, and clipped"
    assert [words in line for line in said] == ([True] if taken else [])


@pytest.mark.parametrize("low", [0.0, -1.0])
@pytest.mark.parametrize("mode", ["bicubic", "bilinear"])
def test_resized_image_looks_as_before(mode: str, low: float, store: RunMedia) -> None:
    """Stripes, made larger: each pixel is what clipping first would give."""
    generator = torch.Generator().manual_seed(7)
    for number in range(20):
        stripes = torch.rand(1, 3, 8, 1, generator=generator).round().expand(1, 3, 8, 8)
        image = (stripes if number % 2 else stripes.mT) * (1 - low) + low
        large = torch.nn.functional.interpolate(image, size=(37, 23), mode=mode)
        np.testing.assert_array_equal(pixels(store, Image(large)), pixels(store, Image(large.clamp(low, 1))))


def test_image_channels_may_come_first_or_last(store: RunMedia) -> None:
    """Tensors are taken as channels first, arrays as channels last, and each the other way where only that fits."""
    array = RNG.integers(0, 256, (3, 5, 7), np.uint8)
    last = np.moveaxis(array, 0, -1)
    for value in (array, last, torch.from_numpy(array), torch.from_numpy(last.copy())):
        np.testing.assert_array_equal(pixels(store, Image(value)), last)
    np.testing.assert_array_equal(pixels(store, Image(torch.ones(3, 4, 3)))[..., 0], np.full((4, 3), 255))
    assert pixels(store, Image(torch.rand(5, 7).bfloat16())).shape == (5, 7)


@pytest.mark.parametrize(
    "value", [np.zeros((2, 3, 5)), np.zeros(4), np.zeros((0, 4)), np.zeros((2, 4, 4, 3)), 3, [[1], [1, 2]], []]
)
def test_image_of_a_wrong_shape_is_an_error(value: Any) -> None:
    """What is no image says so, and doesn't guess."""
    with pytest.raises(ValueError, match=r"[Ii]mage|rows"):
        Image(value)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "CMYK", "I;16", "F"])
def test_image_from_pillow_looks_the_same(mode: str, store: RunMedia) -> None:
    """A Pillow image of any mode is kept so that it shows the same picture."""
    source = (
        PIL.Image.fromarray(RNG.integers(0, 256, (5, 7, 3), np.uint8))
        .convert("L" if mode in ("I;16", "F") else "RGB")
        .convert(mode)
    )
    (item,) = Image(source).items(store)
    kept = (
        PIL.Image.open(store.directory / item.file)
        if item.format == "png"
        else PIL.Image.fromarray(np.load(store.directory / item.file))
    )
    wide = "I" if mode == "I;16" else "RGBA"
    np.testing.assert_array_equal(
        np.asarray(kept.convert(wide)),
        np.asarray((source.convert("RGB") if mode in ("CMYK", "F") else source).convert(wide)),
    )


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-1.0, 1.0), (0.0, 255.0), (0.0, 4000.0)])
@pytest.mark.parametrize("mode", [None, "L", "RGB"])
def test_floats_of_pillow_are_scaled_as_those_of_arrays(
    low: float, high: float, mode: str | None, store: RunMedia, tmp_path: Path
) -> None:
    """Pillow cuts them to 0 to 255: those from 0 to 1 were black. A file of such floats is decoded by the same rule."""
    array = np.linspace(low, high, 35, dtype=np.float32).reshape(5, 7)
    kept = pixels(store, Image(PIL.Image.fromarray(array), mode=mode))
    grey = pixels(store, Image(array))
    np.testing.assert_array_equal(kept, np.dstack([grey] * 3) if mode == "RGB" else grey)
    PIL.Image.fromarray(array).save(tmp_path / "floats.tiff")
    if high <= 255:
        decoded = np.asarray(open_picture((tmp_path / "floats.tiff").read_bytes()), int)
        assert np.abs(decoded - grey).max() <= 1


def test_image_from_a_file_is_that_file(tmp_path: Path, store: RunMedia) -> None:
    """A path and the bytes of a file are kept byte for byte, with the size in pixels."""
    for suffix in ("png", "jpg", "gif"):
        path = tmp_path / f"picture.{suffix}"
        PIL.Image.new("RGB", (9, 4), "red").save(path)
        for value in (Image(path, caption="c"), Image(str(path), caption="c"), Image(path.read_bytes(), caption="c")):
            (item,) = value.items(store)
            assert content(store, item) == path.read_bytes()
            assert (item.format, item.width, item.height, item.caption) == (suffix, 9, 4, "c")
    with pytest.raises(FileNotFoundError):
        Image("missing.png")
    with pytest.raises(ValueError, match="not an image"):
        Image(b"nothing")


def test_image_mode_and_file_type_are_kept(store: RunMedia) -> None:
    """``mode`` converts as in wandb; ``file_type`` goes along for the encoder."""
    array = RNG.integers(0, 256, (5, 7, 3), np.uint8)
    value = Image(array, mode="L", file_type="jpg", grouping=3)
    np.testing.assert_array_equal(pixels(store, value), wandb_pixels(array, mode="L"))
    assert value.items(store)[0].meta == {"file_type": "jpg", "grouping": 3}
    with pytest.raises(ValueError, match="file_type"):
        Image(array, file_type="exe")


MASKS = (
    "ints",
    "bools",
    "floats",
    "lists",
    "lists of bools",
    "rows of bools",
    "a tensor of bools",
    "a leading axis",
    "a file",
)


@pytest.mark.parametrize("form", MASKS)
def test_masks_are_kept_as_classes(store: RunMedia, tmp_path: Path, form: str) -> None:
    """However a mask of W&B's dialect is given: what is stored are the numbers of the classes; True is class 1."""
    classes = np.eye(4, dtype="int64")
    PIL.Image.fromarray(classes.astype("uint8")).save(tmp_path / "mask.png")
    mask: dict[str, Any] = {
        "ints": {"mask_data": classes}, "bools": {"mask_data": classes > 0}, "floats": {"mask_data": classes * 1.0},
        "lists": {"mask_data": classes.tolist()}, "lists of bools": {"mask_data": (classes > 0).tolist()},
        "rows of bools": {"mask_data": list(classes > 0)},
        "a tensor of bools": {"mask_data": torch.from_numpy(classes > 0)},
        "a leading axis": {"mask_data": classes[None]},
        "a file": {"path": str(tmp_path / "mask.png")},
    }[form]  # fmt: skip
    (item,) = Image(np.zeros((4, 4, 3), "uint8"), masks={"truth": mask}).items(store)
    kept = item.meta["masks"]["truth"]["mask_data"]
    np.testing.assert_array_equal(np.load(store.directory / kept["file"]).reshape(4, 4), classes)


def test_truth_values_among_classes_are_classes(store: RunMedia) -> None:
    """A mask's list in which True stands beside class 255 keeps both."""
    (item,) = Image(np.zeros((1, 3)), masks={"truth": {"mask_data": [[True, 255, False]]}}).items(store)
    kept = item.meta["masks"]["truth"]["mask_data"]
    assert np.load(store.directory / kept["file"]).tolist() == [[1, 255, 0]]


def test_numbers_of_boxes_that_are_not_finite_are_named(store: RunMedia) -> None:
    """JSON has no NaN: a score became null, for which W&B's client refused the picture."""
    place = {"minX": 0, "maxX": float("nan"), "middle": np.array([1.0, np.inf])}
    box = {"position": place, "scores": {"a": float("nan"), "b": np.float32("-inf")}, "class_id": np.int64(1)}
    image = Image(np.zeros((4, 4)), boxes={"p": {"box_data": [box], "class_labels": {1: "cat"}}})
    made = image.items(store)[0].meta["boxes"]["p"]
    named = {"minX": 0, "maxX": "NaN", "middle": [1.0, "Infinity"]}
    assert made["box_data"] == [{"position": named, "scores": {"a": "NaN", "b": "-Infinity"}, "class_id": 1}]
    assert made["class_labels"] == {"1": "cat"}


def test_image_boxes_masks_and_classes_are_kept(store: RunMedia, caplog: pytest.LogCaptureFixture) -> None:
    """Annotations survive as JSON, masks as files; what can't is named in a warning."""
    mask = RNG.integers(0, 3, (4, 4))
    box = {"position": {"minX": np.float32(0.5), "maxX": 1.0, "minY": 0, "maxY": 1}, "class_id": np.int64(1)}
    image = Image(
        np.zeros((4, 4), np.uint8),
        classes=[{"id": 1, "name": "cat"}],
        boxes={"truth": {"box_data": [box], "class_labels": {1: "cat"}}},
        masks={"truth": {"mask_data": mask, "class_labels": {1: "cat"}}},
    )
    meta = json.loads(records.encode(media.record("i", image, 1, 2.0, store)))["items"][0]["meta"]
    assert meta["classes"] == [{"id": 1, "name": "cat"}]
    assert meta["boxes"]["truth"]["box_data"][0]["position"]["minX"] == 0.5
    assert meta["boxes"]["truth"]["box_data"][0]["class_id"] == 1
    kept = meta["masks"]["truth"]["mask_data"]
    np.testing.assert_array_equal(np.load(store.directory / kept["file"]), mask)
    assert not caplog.records
    assert Image(np.zeros((2, 2)), boxes={"truth": object()}).items(store)[0].meta == {}
    assert "boxes" in caplog.text


def test_values_are_taken_as_they_were_when_made(store: RunMedia) -> None:
    """Changing an array, tensor, picture or figure afterwards changes nothing that is logged."""
    array = np.full((4, 4), 7, np.uint8)
    tensor = torch.full((4, 4), 7, dtype=torch.uint8)
    picture = PIL.Image.new("L", (4, 4), 7)
    sound = np.zeros(100, np.int16)
    frames = np.full((2, 3, 4, 4), 7, np.uint8)
    counts = np.array([1, 2])
    values = [Image(array), Image(tensor), Image(picture)]
    audio, video, histogram = Audio(sound, 8000), Video(frames), Histogram(counts=counts, edges=[0, 1, 2])
    array[:], tensor[:], sound[:], frames[:], counts[:] = 9, 9, 9, 9, 9
    picture.paste(9, (0, 0, 4, 4))
    for value in values:
        assert (pixels(store, value) == 7).all()
    assert (pixels(store, video) == 7).all()
    assert set(content(store, audio.items(store)[0])[44:]) == {0}
    assert histogram.items(store)[0].data["counts"] == [1, 2]


def test_a_table_is_taken_as_it_is_when_logged(store: RunMedia) -> None:
    """A record holds its rows; the table may grow and be logged again."""
    table = Table(columns=["text"])
    table.add_data(["a"])
    first = media.record("t", table, 1, 2.0, store)
    table.data[0][0].append("b")
    table.add_data("later")
    assert first.items[0].data["rows"] == [[["a"]]]
    assert media.record("t", table, 2, 3.0, store).items[0].data["rows"] == [[["a", "b"]], ["later"]]


def test_matplotlib_figure_is_drawn_at_once(store: RunMedia) -> None:
    """A figure, its axes, or a bare figure in ``log`` become the picture they showed then."""
    figure = matplotlib.figure.Figure(figsize=(2, 1), dpi=50)
    axes = figure.subplots()
    axes.plot([1, 2])
    value = Image(figure)
    before = content(store, value.items(store)[0])
    axes.plot([2, 1])
    assert content(store, value.items(store)[0]) == before
    after = as_media(figure)
    assert isinstance(after, Image)
    assert content(store, after.items(store)[0]) != before
    assert (after.width, after.height) == (100, 50)
    assert isinstance(as_media(axes), Image)


def test_pyplot_stands_for_its_current_figure(store: RunMedia) -> None:
    """``log({"plot": plt})`` is a picture, as in W&B."""
    import matplotlib.pyplot as plt

    plt.figure(figsize=(2, 1), dpi=50)
    try:
        assert is_media(plt)
        value = as_media(plt)
        assert isinstance(value, Image)
        assert value.width == 100
    finally:
        plt.close("all")


def test_pixels_make_the_npy_file_that_numpy_makes() -> None:
    """The header written by hand is NumPy's own, for every number of axes."""
    for shape in ((1, 1), (300, 1000), (2, 3, 4), (65500, 1, 3), (2, 3, 4, 3)):
        array = np.zeros(shape, np.uint8)
        expected = io.BytesIO()
        np.save(expected, array)
        assert Pixels(shape, array.tobytes()).npy() == expected.getvalue()


@pytest.mark.parametrize(
    ("samples", "channels", "expected"),
    [
        (np.array([0.0, 1.0, -1.0, 2.0, math.nan]), 1, [0, 32767, -32767, 32767, 0]),
        (np.array([0.5, -0.5], np.float16), 1, [16384, -16384]),
        (np.array([1, -2, 3], np.int16), 1, [1, -2, 3]),
        (np.array([1 << 16, -(1 << 16)], np.int32), 1, [1, -1]),
        (np.array([128, 255], np.uint8), 1, [0, 127 << 8]),
        (np.array([[0.0, 1.0], [1.0, 0.0]]), 2, [0, 32767, 32767, 0]),
        (torch.tensor([0.0, 1.0]), 1, [0, 32767]),
        ([0.0, 1.0, -3.0], 1, [0, 32767, -32768]),
        ([1, 2, 3], 1, [1, 2, 3]),
    ],
)
def test_audio_samples_become_pcm(samples: Any, channels: int, expected: list[int], store: RunMedia) -> None:
    """Samples of any type become a WAV file that the standard library reads back."""
    (item,) = Audio(samples, sample_rate=8000, caption="beep").items(store)
    with wave.open(io.BytesIO(content(store, item))) as sound:
        assert (sound.getnchannels(), sound.getsampwidth(), sound.getframerate()) == (channels, 2, 8000)
        assert np.frombuffer(sound.readframes(99), "<i2").tolist() == expected
    assert (item.format, item.sample_rate, item.caption) == ("wav", 8000, "beep")


def test_audio_channels_first_and_files(tmp_path: Path, store: RunMedia) -> None:
    """torch's channels x samples is understood; a file is kept as it is, with its rate."""
    (item,) = Audio(torch.zeros(2, 500), 8000).items(store)
    with wave.open(io.BytesIO(content(store, item))) as sound:
        assert (sound.getnchannels(), sound.getnframes()) == (2, 500)
    path = tmp_path / "a.wav"
    path.write_bytes(content(store, item))
    (kept,) = Audio(path).items(store)
    assert (kept.file, kept.sample_rate) == (item.file, 8000)
    with pytest.raises(ValueError, match="sample_rate"):
        Audio([0.0, 1.0])
    with pytest.raises(ValueError, match="samples"):
        Audio(np.zeros((2, 3, 4)), 8000)


def test_video_arrays_are_frames_last_channel(store: RunMedia) -> None:
    """Both layouts give frames x height x width x channels; grey becomes RGB; a batch is shown side by side."""
    first = RNG.integers(0, 256, (4, 3, 6, 8), np.uint8)
    last = np.moveaxis(first, 1, 3)
    np.testing.assert_array_equal(pixels(store, Video(first)), last)
    np.testing.assert_array_equal(pixels(store, Video(last)), last)
    np.testing.assert_array_equal(pixels(store, Video(torch.from_numpy(first))), last)
    assert pixels(store, Video(first[:, :1])).shape == (4, 6, 8, 3)
    (item,) = Video(first, fps=12, format="mp4", caption="c").items(store)
    assert (item.fps, item.width, item.height, item.caption, item.meta) == (12, 8, 6, "c", {"file_type": "mp4"})
    with pytest.raises(ValueError, match="video"):
        Video(np.zeros((4, 6, 8)))


def test_video_batch_is_laid_out_as_wandb_does(store: RunMedia) -> None:
    """Five axes give the same frames as wandb's own layout."""
    import wandb

    for batch in (1, 2, 3, 4, 5):
        frames = RNG.integers(0, 256, (batch, 2, 3, 4, 5), np.uint8)
        theirs = wandb.Video._prepare_video(None, frames)  # type: ignore[arg-type]
        np.testing.assert_array_equal(pixels(store, Video(frames)), theirs)


def test_video_files_and_bytes_are_kept(tmp_path: Path, store: RunMedia) -> None:
    """A file or its bytes are kept as they are; an unknown format is an error."""
    path = tmp_path / "v.mp4"
    path.write_bytes(b"not looked into")
    for value in (
        Video(path),
        Video(b"not looked into", format="mp4"),
        Video(io.BytesIO(b"not looked into"), format="mp4"),
    ):
        (item,) = value.items(store)
        assert (item.format, content(store, item)) == ("mp4", b"not looked into")
    with pytest.raises(ValueError, match="format"):
        Video(b"x")
    (tmp_path / "v.txt").write_bytes(b"")
    with pytest.raises(ValueError, match="format"):
        Video(tmp_path / "v.txt")


FRAME = {"n": [1, 2], "x": [0.5, math.nan], "s": ["a", "b"], "t": [datetime.datetime(2025, 1, 2, 3), None]}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_table_from_a_data_frame(make: Callable[[Any], Any], store: RunMedia) -> None:
    """pandas and polars frames, wrapped or bare, give the same columns and plain cells."""
    frame = make(FRAME)
    for value in (Table(dataframe=frame), Table(data=frame), as_media(frame)):
        assert isinstance(value, Table)
        (item,) = value.items(store)
        assert item.data == {
            "columns": ["n", "x", "s", "t"],
            "rows": [[1, 0.5, "a", "2025-01-02T03:00:00"], [2, "NaN", "b", None]],
        }


def test_table_cells_of_every_kind(store: RunMedia) -> None:
    """Cells become JSON values that decode to themselves; media in cells say where their content lies."""
    row = [
        1, 2.5, "x", None, True, np.float32(0.5), np.int64(7), np.array([1, 2]), torch.tensor(3), math.inf,
        10**30, datetime.date(2025, 1, 2), {"a": [1, (2,)]}, Image(np.zeros((2, 3), np.uint8), caption="c"),
        PIL.Image.new("L", (3, 2)), pd.NaT, np.datetime64("2025-01-02"), {3}, np.bool_(True),
    ]  # fmt: skip
    table = Table(columns=[str(i) for i in range(len(row))], data=[row])
    line = records.encode(media.record("t", table, 1, 2.0, store))
    found = records.decode(line[:-1])
    assert isinstance(found, records.Media)
    cells = found.items[0].data["rows"][0]
    assert cells[:13] == [
        1, 2.5, "x", None, True, 0.5, 7, [1, 2], 3, "Infinity", str(10**30), "2025-01-02", {"a": [1, [2]]},
    ]  # fmt: skip
    assert cells[15:] == [None, "2025-01-02", [3], True]
    for cell, caption in ((cells[13], "c"), (cells[14], None)):
        assert (cell["_type"], cell["format"], cell.get("caption")) == ("image", "npy", caption)
        assert np.load(store.directory / cell["file"]).shape == (2, 3)


@pytest.mark.parametrize(
    ("cells", "kept", "texts"),
    [
        (["a", math.nan, None], ["a", None, None], {}),
        (["NaN", math.nan], ["NaN", None], {"texts": [0]}),
        ([math.nan, None], ["NaN", None], {}),
        (["a", math.nan, 0.5], ["a", "NaN", 0.5], {}),
        (["a", math.inf], ["a", "Infinity"], {}),
        ([["a", math.nan], math.nan], [["a", "NaN"], "NaN"], {}),
    ],
)
def test_nan_among_texts_is_a_missing_cell(
    cells: list[Any], kept: list[Any], texts: dict[str, Any], store: RunMedia
) -> None:
    """As pandas has it; as the word ``NaN`` it couldn't be told from a text, and W&B showed that. Which is a text
    is told by its number among such names."""
    record = media.record("t", Table(columns=["n", "x"], data=list(enumerate(cells))), 1, 2.0, store)
    assert record.items[0].data == {"columns": ["n", "x"], "rows": [list(row) for row in enumerate(kept)], **texts}


def test_numbers_of_any_class_are_numbers_in_a_table(store: RunMedia) -> None:
    """NumPy's long double was text, an array of them a list of texts."""
    cells = [np.longdouble(0.5), np.array([0.5, 2], dtype=np.longdouble), Fraction(1, 4), Decimal("1.5"), np.int64(3)]
    _, rows = Table(["x"], [[one] for one in cells]).cells(store)
    assert [row[0] for row in rows] == [0.5, [0.5, 2.0], 0.25, 1.5, 3]
    assert type(rows[-1][0]) is int


def test_table_that_is_large_lies_in_a_file(store: RunMedia) -> None:
    """A large table's record is short; the file has the same shape as inline data."""
    rows = [[i, math.nan] for i in range(5000)]
    record = media.record("t", Table(["i", "x"], rows), 1, 2.0, store)
    assert len(records.encode(record)) < 1000
    kept = json.loads(content(store, record.items[0]))
    assert kept == {"columns": ["i", "x"], "rows": [[i, "NaN"] for i in range(5000)]}


def test_table_speaks_wandb(store: RunMedia) -> None:
    """The calls that W&B scripts make on a table work, and wrong widths are errors."""
    table = Table(columns=["a", "b"])
    table.add_data(1, 2)
    table.add_row(3, 4)
    table.add_column("c", [5, 6])
    assert table.get_column("c") == [5, 6]
    assert table.get_column("a", convert_to="numpy").tolist() == [1, 3]
    assert list(table.iterrows()) == [(0, [1, 2, 5]), (1, [3, 4, 6])]
    assert table.get_dataframe().shape == (2, 3)
    with pytest.raises(ValueError, match="columns"):
        table.add_data(1)
    with pytest.raises(ValueError, match="no column"):
        table.get_column("z")
    assert Table(data=[{"a": 1}, {"b": 2}]).data == [[1, None], [None, 2]]
    assert Table(rows=[[1, 2, 3]]).columns == ["Input", "Output", "Expected"]
    assert Table(data=np.ones((2, 2))).columns == ["0", "1"]
    table.add_computed_columns(lambda index, row: {"sum": row["a"] + row["c"], "row": index})
    assert (table.columns, table.data[1]) == (["a", "b", "c", "sum", "row"], [3, 4, 6, 9, 1])
    with pytest.raises(ValueError, match="the same columns"):
        table.add_computed_columns(lambda index, row: {f"x{index}": 1})
    with pytest.raises(ValueError, match="already"):
        table.add_computed_columns(lambda index, row: {"sum": 1})
    assert Table(columns=["a"], log_mode="INCREMENTAL").log_mode == "INCREMENTAL"
    assert max(Table.MAX_ROWS, 5) >= 10_000


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(width=32) | st.integers(-1000, 1000), max_size=60),
    bins=st.integers(1, 20),
)
def test_histogram_counts_every_value_once(values: list[float], bins: int) -> None:
    """Lists, arrays and tensors on accelerators: each finite value is counted once, between the right edges."""
    finite = [float(value) for value in values if math.isfinite(value)]
    nan = sum(value != value for value in values)
    for histogram in (Histogram(values, num_bins=bins), Histogram(np.array(values, float), num_bins=bins)):
        assert sum(histogram.histogram) == len(finite)
        assert (histogram.nan, histogram.infinite) == (nan, len(values) - len(finite) - nan)
        assert histogram.bins == sorted(histogram.bins)
        if finite:
            assert histogram.bins[0] <= min(finite) <= max(finite) <= histogram.bins[-1]
        inner = histogram.bins[1:-1]
        expected = [0] * bins
        for value in finite:
            expected[bisect.bisect_right(inner, value)] += 1
        assert len(set(histogram.bins)) == bins + 1
        assert histogram.histogram == expected
    if values:
        wide = Histogram(np.array([*values, -1.7e308, 1.7e308], float), num_bins=bins)
        assert (sum(wide.histogram), wide.nan) == (len(finite) + 2, nan)
    onboard = Histogram([])
    counts, edges = onboard._count_tensor(torch.tensor(values, dtype=torch.float64), bins)
    assert (sum(counts), onboard.nan, len(edges)) == (len(finite), nan, bins + 1)


def test_histogram_is_numpys_and_wandbs(store: RunMedia) -> None:
    """The same counts and edges as numpy.histogram, and so as wandb.Histogram."""
    import wandb

    values = RNG.normal(size=(10, 30))
    theirs = wandb.Histogram(values)
    ours = Histogram(values)
    assert (ours.histogram, ours.bins) == (theirs.histogram, theirs.bins)
    for same in (torch.from_numpy(values), list(values), Histogram(np_histogram=np.histogram(values, 64))):
        found = same if isinstance(same, Histogram) else Histogram(same)
        assert found.items(store)[0].data == ours.items(store)[0].data
    assert Histogram(torch.ones(4, dtype=torch.bfloat16)).bins[0] == 0.5
    assert Histogram([True, False], num_bins=2).histogram == [1, 1]
    assert Histogram([1.0, math.nan, math.inf]).items(store)[0].meta == {"nan": 1, "infinite": 1}
    for close in ([1e16, 1e16], [1.0, 1.0 + 2**-52], [5e-324, 1e-323], [-1.7e308, 1.7e308], [1.7e308]):
        for values in (close, np.array(close)):
            assert sum(Histogram(values).histogram) == len(close)
    for wrong in ({"sequence": [1], "num_bins": 513}, {"counts": [1], "edges": [1]}, {"np_histogram": (1,)}, {}):
        with pytest.raises(ValueError, match=r"bin|edge|values"):
            Histogram(**wrong)  # type: ignore[arg-type]


def test_html_from_text_and_files(tmp_path: Path, store: RunMedia) -> None:
    """HTML text, an open file or a path that ends in .html give the same page."""
    page = "<h1>ä</h1>"
    path = tmp_path / "p.html"
    path.write_text(page, encoding="utf-8")
    for value in (Html(page), Html(path), Html(str(path)), Html(io.StringIO(page))):
        assert content(store, value.items(store)[0]).decode() == page
    assert content(store, Html(str(path), data_is_not_path=True).items(store)[0]).decode() == str(path)
    assert Html(page, inject=False).items(store)[0].meta == {"inject": False}
    with pytest.raises(ValueError, match="Html"):
        Html(3)


def test_as_media_recognises_bare_values(store: RunMedia) -> None:
    """Pictures, arrays, lists and wandb's own objects are taken; numbers, texts and lists of them are not."""
    import wandb

    picture = PIL.Image.new("RGB", (3, 2), "red")
    array = np.full((2, 2, 3), 9, np.uint8)
    assert isinstance(as_media(picture), Image)
    assert isinstance(as_media(np.arange(10)), Histogram)
    assert isinstance(as_media(torch.ones(3)), Histogram)
    images = as_media([picture, Image(array)])
    assert isinstance(images, list)
    assert [item.type for item in images] == ["image", "image"]
    theirs = [
        wandb.Image(array, caption="c"), wandb.Histogram([1, 2]), wandb.Table(["a"], [[1]]), wandb.Html("<p>x</p>"),
    ]  # fmt: skip
    found = [as_media(value) for value in theirs]
    assert [item.type for item in found] == ["image", "histogram", "table", "html"]  # type: ignore[union-attr]
    (image,) = found[0].items(store)  # type: ignore[union-attr]
    assert image.caption == "c"
    np.testing.assert_array_equal(np.asarray(PIL.Image.open(store.directory / image.file)), array)
    for nothing in (
        1,
        1.5,
        "x",
        None,
        True,
        np.float32(1),
        torch.tensor(1.0),
        [],
        [1, 2],
        [picture, 1],
        {},
        object(),
        pd.Series([1]),
    ):
        assert as_media(nothing) is None
        assert not is_media(nothing)


def test_record_holds_media_of_one_type(store: RunMedia) -> None:
    """Several values of one type share a record; a mixture, or nothing, is an error."""
    found = media.record("pictures", [Image(np.zeros((2, 2))), Image(np.ones((2, 2)))], 3, 4.0, store)
    assert (found.name, found.type, found.step, found.time, len(found.items)) == ("pictures", "image", 3, 4.0, 2)
    with pytest.raises(ValueError, match="one type"):
        media.record("x", [Image([[1]]), Html("x")], 1, 2.0, store)
    with pytest.raises(ValueError, match="one type"):
        media.record("x", [], 1, 2.0, store)


def test_store_keeps_each_content_once(store: RunMedia) -> None:
    """The same content has one file, whose first writer's bytes stay; no temporary file is left."""
    first = store.put(b"abc", "bin")
    written = (store.directory / first).stat()
    assert store.put(b"abc", "bin") == first
    assert (store.directory / first).stat().st_ino == written.st_ino
    other = store.put(b"abd", "bin")
    files = sorted(path for path in store.directory.rglob("*") if path.is_file())
    assert files == sorted([store.directory / first, store.directory / other])
    assert (store.directory / first).read_bytes() == b"abc"


def test_store_refuses_what_is_too_large(tmp_path: Path) -> None:
    """Larger values name the option; a file that can't be written leaves nothing behind."""
    store = RunMedia(tmp_path, max_bytes=1000)
    with pytest.raises(ValueError, match="TRACKER_MEDIA_MAX_MB"):
        Image(np.zeros((100, 100), np.uint8)).items(store)
    big = tmp_path / "big.mp4"
    big.write_bytes(bytes(2000))
    with pytest.raises(ValueError, match="TRACKER_MEDIA_MAX_MB"):
        Video(big).items(store)
    assert not list(tmp_path.glob("media/**/*.*"))


def test_media_import_nothing_heavy() -> None:
    """A fresh process that makes every value from plain Python loads no array, picture or frame package."""
    code = """
import sys, pathlib
from trackers import media
store = media.RunMedia(pathlib.Path(sys.argv[1]))
values = [media.Image([[0, 255]]), media.Audio([0.0], 8000), media.Table(["a"], [[1]]), media.Histogram([1, 2.5]),
          media.Html("x")]
for value in values:
    media.record("x", value, 0, 0.0, store)
assert media.as_media(object()) is None
heavy = {"numpy", "torch", "PIL", "pandas", "polars", "matplotlib", "wandb", "pyarrow"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""
    found = subprocess.run([sys.executable, "-c", code, "run"], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


class Odd:
    """A value that is nothing known."""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Audio(np.zeros(4), sample_rate=-1), r"sample_rate \(Hz\) is a number above 0"),
        (lambda: Audio(np.zeros(4), sample_rate=0), r"sample_rate \(Hz\) is a number above 0"),
        (lambda: Audio(np.zeros(4), sample_rate=math.nan), r"sample_rate \(Hz\) is a number above 0"),
        (lambda: Audio(np.zeros(4), sample_rate=0.5), r"sample_rate \(Hz\) is 1 or more"),
        (lambda: Audio(np.zeros(4), sample_rate=2**33), "at most 4,294,967,295"),
        (lambda: Audio(np.zeros((4, 9)), sample_rate=2**31), "at most 4 GiB"),
        (lambda: Audio(np.zeros(4), sample_rate=[1]), "sample_rate"),  # type: ignore[arg-type]
        (lambda: Audio(5, sample_rate=8000), "audio must be an array of samples"),
        (lambda: Audio(b"RIFF", sample_rate=8000), "not bytes: give the file's path"),
        (lambda: Audio(Odd(), sample_rate=8000), "audio must be"),
        (lambda: Audio([1.0, "a"], sample_rate=8000), "Audio can't be made from a list"),
        (lambda: Audio([[1, 2], [3]], sample_rate=8000), "Audio can't be made from a list"),
        (lambda: Image([[None]]), "Image can't be made from a list"),
        (lambda: Image([["a"]]), "Image can't be made from a list"),
        (lambda: Image(torch.zeros(2, 2, device="meta")), "Image can't be made from a Tensor"),
        (lambda: Image(np.zeros((4, 4)), masks=5), "masks of an image are a mapping"),  # type: ignore[arg-type]
        (lambda: Image(np.zeros((4, 4)), boxes=[5]), "boxes of an image are a mapping"),  # type: ignore[arg-type]
        (lambda: Image(np.zeros((4, 4)), mode=5), "Image can't be made"),  # type: ignore[arg-type]
        (lambda: Video(np.zeros((0, 2, 3, 4, 4))), "a video is frames x channels"),
        (lambda: Video(np.zeros((2, 3, 4, 4)), fps=-1), "fps is a number above 0"),
        (lambda: Video(np.zeros((2, 3, 4, 4)), fps=math.inf), "fps is a number above 0"),
        (lambda: Video(np.zeros((2, 3, 4, 4)), fps="x"), "fps is a number above 0"),  # type: ignore[arg-type]
        (lambda: Histogram(5), "Histogram can't be made from an int"),
        (lambda: Histogram([None]), "Histogram can't be made from a list"),
        (lambda: Histogram([1, [2, 3]]), "Histogram can't be made from a list"),
        (lambda: Histogram({"a": 1}), "not a dict"),
        (lambda: Histogram(np.array(["a"])), "real numbers, not <U1"),
        (lambda: Histogram(np.array([1 + 2j])), "real numbers, not complex128"),
        (lambda: Histogram([1], num_bins=2.5), "1 to 512 bins, not 2.5"),  # type: ignore[arg-type]
        (lambda: Histogram([1], num_bins=None), "1 to 512 bins, not None"),  # type: ignore[arg-type]
        (lambda: Histogram(np_histogram=5), "is a pair"),  # type: ignore[arg-type]
        (lambda: Histogram(np_histogram=([1, 2], [3, 2, 1])), "don't fall"),
        (lambda: Histogram(np_histogram=([1], [math.nan, 1])), "don't fall"),
        (lambda: Histogram(np_histogram=([math.nan], [0, 1])), "finite"),
        (lambda: Histogram(np_histogram=(["a"], [0, 1])), "the counts of a histogram can't be made"),
        (lambda: Histogram(np_histogram=([[1]], [0, 1])), "the counts of a histogram can't be made"),
        (lambda: Table(data=5), "Table can't be made from an int"),
        (lambda: Table(data=[1, 2]), "row 0 of a table is a list"),
        (lambda: Table(data=["ab"]), "row 0 of a table is a list"),
        (lambda: Table(data=[{"a": 1}, 5]), "row 0 of a table is a list"),
        (lambda: Table(data="abc"), "Table can't be made from a str"),
        (lambda: Table(data=np.zeros(3)), "row 0 of a table is a list"),
        (lambda: Table(data={"a": [1], "b": [1, 2]}), "Table can't be made from a dict"),
        (lambda: Table(columns="ab"), "columns are a list of names"),
        (lambda: Table(columns=5), "columns are a list of names"),  # type: ignore[arg-type]
        (lambda: Table(dataframe=Odd()), "Table can't be made from an Odd"),
        (lambda: Html(5), "Html is made from text"),
    ],
)
def test_odd_arguments_are_one_clear_line(make: Callable[[], Any], message: str) -> None:
    """What no medium can be made from is one line that says so, as an error that is a ValueError, too."""
    with pytest.raises(UsageError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [Image, Html, Video])
def test_a_path_without_a_file_is_named(kind: Any) -> None:
    """A path that leads nowhere is said to do so, for pages, too."""
    with pytest.raises(FileNotFoundError, match=r"no such file: .*/nothing\.html"):
        kind("nothing.html")


def test_html_that_ends_like_a_path_is_html(store: RunMedia) -> None:
    """Only what can be nothing but a path is one; an open binary file has text, too."""
    for text in ("see a.html", "<a>b.html", "nothing.html"):
        assert Html(text, data_is_not_path=True).html == text
    assert Html("<b>x</b>.html").html == "<b>x</b>.html"
    assert Html(io.BytesIO(b"<p>\xff")).html == "<p>�"


def test_table_from_lists_by_column() -> None:
    """A mapping of columns is a table, as for data frames."""
    table = Table(data={"a": [1, 2], "b": ["x", "y"]})
    assert (table.columns, table.data) == (["a", "b"], [[1, "x"], [2, "y"]])


def test_histogram_may_have_an_open_last_bin() -> None:
    """Edges may be infinite, and counts weights: NumPy makes such."""
    made = Histogram(np_histogram=([1.5, 2], [0, 1, math.inf]))
    assert (made.histogram, made.bins) == ([1.5, 2], [0, 1, math.inf])
