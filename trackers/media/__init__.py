"""Images, sounds, videos, tables, histograms and HTML, as values that ``run.log`` takes.

A value takes over its content when it is made, so that an array changed afterwards changes nothing; a file is
read when it is logged. Nothing is encoded in the training process. How each lies in the run (see
:class:`trackers.records.MediaFile`):

=========  =====================================================================================================
image      ``npy``: uint8, height x width (grey) or height x width x 3 or 4; or a file as given (png, jpg, …).
           ``meta``: file_type (what to encode to), grouping, classes, boxes, masks (``mask_data`` of a mask is
           ``{"file": …, "format": "npy"}``)
audio      ``wav``, 16-bit PCM; or a file as given
video      ``npy``: uint8, frames x height x width x 3 or 4, with fps; or a file as given. ``meta``: file_type
table      ``json``: ``{"columns": [str], "rows": [[cell]]}``, inline up to 8 KiB, else a file of the same shape.
           A chart is its table, with ``meta["chart"]`` (see :mod:`trackers.media.chart`).
           A cell that is media is ``{"_type": "image", …}`` with the fields of MediaFile
histogram  ``json``, inline: ``{"counts": [n], "edges": [n + 1]}``. ``meta``: nan, infinite (values left out)
object3d   a file as given, or ``pts.json``: points as a list, or ``{"type", "points", "boxes", "vectors"}``
molecule   a file as given (pdb, sdf, …)
graph      ``json``: ``{"format", "nodes", "edges"}``
html       ``html``. ``meta``: inject (False: leave the page as it is)
=========  =====================================================================================================

NumPy, torch, Pillow, matplotlib, pandas and polars are recognised without being imported.
"""

from __future__ import annotations

from trackers.media.base import MediaStore, MediaValue, record
from trackers.media.chart import CustomChart, CustomChartSpec, Visualize, VisualizeSpec
from trackers.media.convert import RunMedia, as_media, is_media, kind_of
from trackers.media.files import Audio, Html, Plotly, Video
from trackers.media.histogram import Histogram
from trackers.media.image import Classes, Image
from trackers.media.shapes import Graph, Molecule, Object3D, box3d
from trackers.media.table import EvalTable, JoinedTable, PartitionedTable, Table

__all__ = [
    "Audio", "Classes", "CustomChart", "CustomChartSpec", "EvalTable", "Graph", "Histogram", "Html", "Image",
    "JoinedTable", "MediaStore", "MediaValue", "Molecule", "Object3D", "PartitionedTable", "Plotly", "RunMedia",
    "Table", "Video", "Visualize", "VisualizeSpec", "as_media", "box3d", "is_media", "kind_of", "record",
]  # fmt: skip
