"""Boxes and masks drawn into their picture, and captions beneath it, for trackers that show pictures alone."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from trackers.backends.shared import media_files
from trackers.backends.shared.charts import COLOURS, plain_text
from trackers.records import MediaFile
from trackers.tracker import RunInfo

OPACITY = 0.4
"""Of a mask's colour over the picture."""
MOST_BOXES = 1000
LINE = 14
"""Height of a line of text, in pixels."""


def is_annotated(item: MediaFile) -> bool:
    """Whether an image has boxes or masks."""
    return bool(item.meta.get("boxes") or item.meta.get("masks"))


def drawn(info: RunInfo, item: MediaFile) -> Any:
    """An image item as a ``PIL.Image.Image``, with its boxes and masks; as it is where it has none.

    A box or a mask that isn't what it should be is left out.

    Raises:
        Rejected: the picture's or a mask's file is missing, or isn't what it should be.
    """
    picture = media_files.image(info, item)
    if not is_annotated(item):
        return picture
    from PIL import ImageDraw

    picture = picture.convert("RGBA" if "A" in picture.mode else "RGB")
    classes = _classes(item.meta.get("classes"))
    for layer, labels in _layers(item.meta.get("masks")):
        picture = _masked(info, picture, layer.get("mask_data"), classes | labels)
    draw = ImageDraw.Draw(picture)
    for layer, labels in _layers(item.meta.get("boxes")):
        labels = classes | labels
        boxes = layer.get("box_data")
        for box in boxes[:MOST_BOXES] if isinstance(boxes, list) else ():
            if isinstance(box, Mapping):
                _draw_box(draw, box, labels, picture.size)
    return picture


def png(info: RunInfo, item: MediaFile) -> bytes:
    """:func:`drawn` as the bytes of a PNG file."""
    out = io.BytesIO()
    drawn(info, item).save(out, format="PNG")
    return out.getvalue()


def shown(info: RunInfo, item: MediaFile, formats: Collection[str]) -> tuple[bytes, str]:
    """An image for a tracker that shows files of these formats, and the format: its own file if it has no boxes and
    masks, else a PNG file with them.

    Raises:
        Rejected: as :func:`drawn`.
    """
    if is_annotated(item):
        return png(info, item), "png"
    if item.format in formats:
        return media_files.content(info, item), item.format
    return media_files.png(info, item), "png"


def captioned(picture: Any, caption: str) -> Any:
    """A picture with a line of text beneath it; as it is without one."""
    text = plain_text(" ".join(caption.split()))
    if not text:
        return picture
    from PIL import Image, ImageDraw

    letters = max(1, picture.width // 6)
    lines = [text[first : first + letters] for first in range(0, len(text), letters)][:4]
    made = Image.new("RGB", (picture.width, picture.height + LINE * len(lines) + 2), "white")
    made.paste(picture, (0, 0), picture if picture.mode == "RGBA" else None)
    for number, line in enumerate(lines):
        ImageDraw.Draw(made).text((1, picture.height + 1 + LINE * number), line, fill="black")
    return made


def _layers(named: Any) -> Iterator[tuple[Mapping[str, Any], dict[str, str]]]:
    """Boxes or masks by their layers, with the names of their classes."""
    for layer in named.values() if isinstance(named, Mapping) else ():
        if isinstance(layer, Mapping):
            labels = layer.get("class_labels")
            yield layer, {str(key): str(name) for key, name in labels.items()} if isinstance(labels, Mapping) else {}


def _classes(named: Any) -> dict[str, str]:
    """The names of an image's classes, which its boxes and masks have where they give none of their own."""
    each = named if isinstance(named, list) else ()
    return {str(one["id"]): str(one.get("name", "")) for one in each if isinstance(one, Mapping) and "id" in one}


def _draw_box(draw: Any, box: Mapping[str, Any], labels: Mapping[str, str], size: tuple[int, int]) -> None:
    corners = _corners(box, size)
    if corners is None:
        return
    left, top, right, bottom = corners
    colour = _colour(box.get("class_id"))
    draw.rectangle((left, top, right, bottom), outline=colour, width=max(1, min(size) // 150))
    name = str(box.get("box_caption") or labels.get(str(box.get("class_id")), ""))
    _draw_label(draw, left + 1, top - LINE if top >= LINE else top + 1, name, colour)


def _draw_label(draw: Any, left: float, top: float, name: str, colour: str) -> None:
    text = plain_text(name)[:60]
    if text:
        draw.rectangle(draw.textbbox((left, top), text), fill=colour)
        draw.text((left, top), text, fill="white")


def _corners(box: Mapping[str, Any], size: tuple[int, int]) -> tuple[float, float, float, float] | None:
    """Left, top, right and bottom of a box in pixels; fractions of the picture unless its domain is "pixel"."""
    position = box.get("position")
    if not isinstance(position, Mapping):
        return None
    width, height = (1, 1) if box.get("domain") == "pixel" else size
    try:
        if "middle" in position:
            x, y = (float(value) for value in position["middle"])
            across, up = float(position["width"]) / 2, float(position["height"]) / 2
            x_pair, y_pair = (x - across, x + across), (y - up, y + up)
        else:
            x_pair = float(position["minX"]), float(position["maxX"])
            y_pair = float(position["minY"]), float(position["maxY"])
        (left, right), (top, bottom) = sorted(x * width for x in x_pair), sorted(y * height for y in y_pair)
    except (KeyError, TypeError, ValueError):
        return None
    if not all(abs(value) < 1e6 for value in (left, top, right, bottom)):  # NaN, too
        return None
    return left, top, right, bottom


def _masked(info: RunInfo, picture: Any, stored: Any, labels: Mapping[str, str]) -> Any:
    """A picture under a mask, whose classes have a colour each, and their names; class 0 where it has a name alone."""
    import numpy
    from PIL import Image, ImageDraw

    if not isinstance(stored, Mapping) or not stored.get("file"):
        return picture
    item = MediaFile(format=str(stored.get("format", "npy")), file=str(stored["file"]))
    mask = media_files.image(info, item).convert("L").resize(picture.size, Image.Resampling.NEAREST)
    classes = numpy.asarray(mask)
    for number in numpy.unique(classes).tolist():
        if number or labels.get("0"):
            shape = Image.fromarray(((classes == number) * int(255 * OPACITY)).astype("uint8"))
            picture.paste(Image.new(picture.mode, picture.size, _colour(number)), (0, 0), shape)
            left, top, _, bottom = shape.getbbox()
            top = top if bottom - top > LINE else max(0, top - LINE)
            _draw_label(ImageDraw.Draw(picture), left + 1, top + 1, labels.get(str(number), ""), _colour(number))
    return picture


def _colour(number: Any) -> str:
    return COLOURS[number % len(COLOURS)] if isinstance(number, int) else COLOURS[0]
