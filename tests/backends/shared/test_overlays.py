"""Boxes, masks and captions, drawn into the picture where a tracker shows pictures alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.helpers import T0, Driver, run_info, stream
from trackers.backends.shared import overlays
from trackers.backends.tensorboard.tracker import TensorboardTracker
from trackers.backends.trackio.tracker import TrackioTracker
from trackers.records import Media, MediaFile, Record
from trackers.tracker import RunInfo

WHITE = (255, 255, 255)
SIZE = (60, 40)


@pytest.fixture
def info(tmp_path: Path) -> RunInfo:
    """A run with a white picture and a mask of its left half."""
    found = run_info(tmp_path / "run")
    numpy.save(found.path("white.npy"), numpy.full((40, 60, 3), 255, "uint8"))
    mask = numpy.zeros((40, 60), "uint8")
    mask[:, :30] = 3
    numpy.save(found.path("mask.npy"), mask)
    return found


def annotated(**meta: Any) -> MediaFile:
    return MediaFile(format="npy", file="white.npy", meta=meta)


def boxes(position: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"found": {"box_data": [{"position": position, "class_id": 1, **more}], "class_labels": {}}}


@pytest.mark.parametrize(
    "layers",
    [
        boxes({"minX": 15, "maxX": 45, "minY": 10, "maxY": 30}, domain="pixel"),
        boxes({"minX": 0.25, "maxX": 0.75, "minY": 0.25, "maxY": 0.75}),
        boxes({"middle": [0.5, 0.5], "width": 0.5, "height": 0.5}),
        boxes({"middle": [30, 20], "width": 30, "height": 20}, domain="pixel"),
    ],
)
def test_box_is_drawn_where_it_is(info: RunInfo, layers: dict[str, Any]) -> None:
    """In pixels or as fractions, by corners or by its middle; what lies inside and outside stays."""
    picture = overlays.drawn(info, annotated(boxes=layers))
    edges = [picture.getpixel(place) for place in ((15, 20), (45, 20), (30, 10), (30, 30))]
    assert WHITE not in edges
    assert [picture.getpixel(place) for place in ((30, 20), (5, 5))] == [WHITE, WHITE]


def test_mask_shines_through(info: RunInfo) -> None:
    """A class has a colour of its own over the picture; class 0 has none."""
    masks = {"found": {"mask_data": {"file": "mask.npy", "format": "npy"}, "class_labels": {"3": "leaf"}}}
    picture = overlays.drawn(info, annotated(masks=masks))
    assert picture.getpixel((50, 20)) == WHITE
    assert 0 < min(picture.getpixel((10, 20))) < 255


@pytest.mark.parametrize("own", [True, False])
def test_classes_are_named_on_a_mask(info: RunInfo, own: bool) -> None:
    """By the mask's own labels, or by those of the image's classes."""
    mask: dict[str, Any] = {"mask_data": {"file": "mask.npy", "format": "npy"}}
    named = overlays.drawn(
        info,
        annotated(masks={"found": mask | {"class_labels": {"3": "leaf"}}})
        if own
        else annotated(masks={"found": mask}, classes=[{"id": 3, "name": "leaf"}, "odd"]),
    )
    plain = overlays.drawn(info, annotated(masks={"found": mask}))
    assert len(named.getcolors()) > len(plain.getcolors()) == 2


@given(
    st.dictionaries(
        st.text(max_size=3),
        st.one_of(
            st.none(),
            st.text(max_size=3),
            st.fixed_dictionaries(
                {
                    "box_data": st.lists(
                        st.one_of(
                            st.none(),
                            st.fixed_dictionaries(
                                {
                                    "position": st.dictionaries(
                                        st.sampled_from(["minX", "maxX", "minY", "maxY", "middle", "width", "height"]),
                                        st.one_of(st.floats(), st.text(max_size=2), st.lists(st.floats(), max_size=3)),
                                    ),
                                    "domain": st.sampled_from(["pixel", "", None]),
                                    "class_id": st.one_of(st.none(), st.integers(), st.text(max_size=2)),
                                }
                            ),
                        ),
                        max_size=2,
                    ),
                    "class_labels": st.one_of(st.none(), st.dictionaries(st.text(max_size=2), st.text(max_size=2))),
                }
            ),
        ),
        max_size=2,
    )
)
def test_odd_boxes_are_left_out(layers: dict[str, Any]) -> None:
    """Whatever stands where boxes should: there is a picture of the same size."""
    from PIL import ImageDraw

    picture = Image.new("RGB", SIZE, "white")
    draw = ImageDraw.Draw(picture)
    for layer, labels in overlays._layers(layers):
        for box in layer.get("box_data") or []:
            if isinstance(box, dict):
                overlays._draw_box(draw, box, labels, SIZE)
    assert picture.size == SIZE


def _tensorboard(info: RunInfo, records: list[Record]) -> bytes:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    Driver(TensorboardTracker, info).deliver(records)
    found = EventAccumulator(str(info.path("tensorboard/baseline")), size_guidance={"tensors": 0})
    found.Reload()
    return bytes(found.Tensors("x")[0].tensor_proto.string_val[2])


def _trackio(info: RunInfo, records: list[Record]) -> bytes:
    from trackio.sqlite_storage import SQLiteStorage
    from trackio.utils import MEDIA_DIR

    Driver(TrackioTracker, info).deliver(records)
    (row,) = SQLiteStorage.get_logs(info.project, info.name, run_id=info.id)
    return Path(MEDIA_DIR, row["x"]["file_path"]).read_bytes()


@pytest.mark.parametrize("stored", [_tensorboard, _trackio])
def test_trackers_of_pictures_get_them_drawn(
    info: RunInfo, stored: Callable[[RunInfo, list[Record]], bytes], tmp_path: Path
) -> None:
    """What TensorBoard and trackio keep of a picture with a box and a mask shows them (MLflow: its own tests)."""
    item = annotated(
        boxes=boxes({"minX": 15, "maxX": 45, "minY": 10, "maxY": 30}, domain="pixel"),
        masks={"found": {"mask_data": {"file": "mask.npy", "format": "npy"}}},
    )
    (tmp_path / "x.png").write_bytes(
        stored(info, list(stream([Media(step=1, time=T0, name="x", type="image", items=[item])])))
    )
    with Image.open(tmp_path / "x.png") as picture:
        assert picture.convert("RGB").getpixel((15, 20)) != WHITE
        assert picture.convert("RGB").getpixel((40, 20)) == WHITE
        assert picture.convert("RGB").getpixel((5, 35)) != WHITE
