"""Media that come without our wrapper: matplotlib figures, Pillow images, data frames, W&B's own objects."""

from __future__ import annotations

from typing import Any

from trackers.errors import UsageError
from trackers.media.base import MediaStore, MediaValue, comes_from
from trackers.media.chart import CustomChart, CustomChartSpec, Visualize, VisualizeSpec
from trackers.media.files import Audio, Html, Video
from trackers.media.histogram import Histogram
from trackers.media.image import Image, is_array
from trackers.media.table import Table

PACKAGES = frozenset(["matplotlib", "PIL", "pandas", "polars", "pyarrow", "plotly", "wandb", "trackio"])
"""Packages of which some class may be media."""

ARRAY_BINS = 32
"""Bins of the histogram that a bare array becomes, as in W&B."""


def is_media(value: Any) -> bool:
    """Would :func:`as_media` take this? Quick, and converts nothing. Arrays are not looked at (False)."""
    if isinstance(value, (list, tuple)):
        return bool(value) and all(_kind(item) is not None for item in value)
    return _kind(value) is not None


def kind_of(value: Any) -> str:
    """The type of a single medium, as its record has it."""
    kind = value.type if isinstance(value, MediaValue) else str(_kind(value))
    return type(value).__name__.lower().replace("customchart", "table") if kind == "foreign" else kind


def as_media(value: Any) -> MediaValue | list[MediaValue] | None:
    """The value as media, or None if it is none. Nothing is imported to find out.

    Takes our own values and lists of them; matplotlib figures (and axes, and ``pyplot`` for the current figure) and
    Pillow images as Image; pandas, polars and pyarrow tables as Table; plotly figures as Html; ``wandb.Image`` and
    its kin; and an array or tensor of more than one element as Histogram.

    Raises:
        ValueError: it is media, but not one that can be kept.
    """
    if isinstance(value, (list, tuple)):
        if not value or any(_kind(item) is None for item in value):
            return None
        return [media for item in value if (media := as_single(item)) is not None]
    media = as_single(value)
    if media is None and is_array(value) and _count(value) > 1:
        return Histogram(value, num_bins=ARRAY_BINS)
    return media


def as_single(value: Any) -> MediaValue | None:
    """One value as media, or None; arrays are none here."""
    kind = _kind(value)
    if kind is None:
        return None
    if kind == "own":
        return value  # type: ignore[no-any-return]
    if kind == "image":
        return Image(value)
    if kind == "table":
        return Table(dataframe=value)
    if kind == "html":
        return Html(value.to_html(include_plotlyjs="cdn"), inject=False, data_is_not_path=True)
    return _foreign(value)


class RunMedia(MediaStore):
    """A run's ``media`` folder that takes cells of other packages, too: figures, images, data frames."""

    def media_of(self, value: Any) -> MediaValue | None:
        """See :meth:`trackers.media.base.MediaStore.media_of`."""
        return as_single(value)


def _kind(value: Any) -> str | None:
    """Which of our ways takes this value; None if none does."""
    if isinstance(value, MediaValue):
        return "own"
    if getattr(value, "__name__", "") == "matplotlib.pyplot":
        return "image"
    if not any(cls.__module__.partition(".")[0] in PACKAGES for cls in type(value).__mro__):
        return None
    if comes_from(value, "matplotlib"):
        return "image" if hasattr(value, "savefig") or hasattr(value, "get_figure") else None
    if comes_from(value, "PIL"):
        return "image" if hasattr(value, "tobytes") and hasattr(value, "mode") else None
    if comes_from(value, "pandas") or comes_from(value, "polars"):
        return "table" if type(value).__name__ == "DataFrame" or hasattr(value, "iterrows") else None
    if comes_from(value, "pyarrow"):
        return "table" if hasattr(value, "column_names") and hasattr(value, "columns") else None
    if comes_from(value, "plotly"):
        return "html" if hasattr(value, "to_html") else None
    return "foreign" if type(value).__name__ in _FOREIGN else None


_FOREIGN = frozenset(["Image", "Audio", "Video", "Table", "Histogram", "Html", "CustomChart", "Visualize"])


def _foreign(value: Any) -> MediaValue:
    """An object of W&B's or trackio's, by what it holds."""
    name = type(value).__name__
    caption = getattr(value, "_caption", None) or getattr(value, "caption", None)
    if name == "CustomChart":
        spec = value.spec
        own = CustomChartSpec(spec.spec_name, spec.fields, spec.string_fields, split_table=spec.split_table)
        return CustomChart(Table(columns=value.table.columns, data=value.table.data), own)
    if name == "Visualize":
        return Visualize(Table(columns=value.table.columns, data=value.table.data), VisualizeSpec(value.spec.name))
    if name == "Table" and hasattr(value, "columns"):
        return Table(columns=value.columns, data=value.data)
    if name == "Table":
        return Table(dataframe=value._data)
    if name == "Histogram":
        return Histogram(np_histogram=(value.histogram, value.bins))
    if name == "Html" and hasattr(value, "html"):
        return Html(value.html, inject=False, data_is_not_path=True)
    picture = getattr(value, "image", None)
    path = getattr(value, "_path", None) or getattr(value, "_file_path", None) or getattr(value, "file_path", None)
    if path is not None:
        if name == "Image":
            return Image(str(path), caption=caption)
        if name in ("Audio", "Video"):
            return (Audio if name == "Audio" else Video)(str(path), caption=caption)
    elif name == "Image" and picture is not None:
        return Image(picture, caption=caption)
    module = type(value).__module__.partition(".")[0]
    raise UsageError(f"a {module}.{name} can't be taken over: make it as trackers.{name}")


def _count(value: Any) -> int:
    count = 1
    for length in getattr(value, "shape", ()):
        count *= length
    return count
