"""``wandb.data_types``: our media, and W&B's types that refuse in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackers import media
from trackers.as_wandb import names
from trackers.media.base import MediaValue
from trackers.training.wandb_arguments import NotProvided

WBValue = Media = BatchableMedia = MediaValue
"""Bases of W&B's types, to compare with."""


class _Layer(dict[str, Any]):
    """What lies over a picture: the mapping that ``Image`` takes under a key.

    Args:
        val: ``box_data`` or ``mask_data``, and ``class_labels``. key: the layer's name.
    """

    def __init__(self, val: Mapping[str, Any], key: str) -> None:
        super().__init__(val)
        self._key = key


class BoundingBoxes2D(_Layer):
    """Boxes of a picture."""


class ImageMask(_Layer):
    """A mask of a picture."""


class Node:
    """A layer of a :class:`trackers.media.Graph`, with the attributes that were given."""

    def __init__(
        self, id: Any = None, name: Any = None, class_name: Any = None, size: Any = None, parameters: Any = None,
        output_shape: Any = None, is_output: Any = None, num_parameters: Any = None, node: Node | None = None,
    ) -> None:  # fmt: skip
        given = {"id": id, "name": name, "class_name": class_name, "size": size, "parameters": parameters,
                 "output_shape": output_shape, "is_output": is_output, "num_parameters": num_parameters}  # fmt: skip
        of = {} if node is None else {key: value for key, value in vars(node).items() if key != "id"}
        self.__dict__.update(of | {key: value for key, value in given.items() if value is not None})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return None


def _refused(name: str, how: str) -> type:
    def refuse(self: Any, *arguments: Any, **more: Any) -> None:
        raise NotProvided(f"wandb.data_types.{name} isn't provided: {how}")

    return type(name, (MediaValue,), {"__init__": refuse, "__doc__": f"W&B's class, to compare with: {how}.",
                                      "items": refuse, "__module__": __name__})  # fmt: skip


Bokeh = _refused("Bokeh", "log wandb.Html(bokeh.embed.file_html(plot, bokeh.resources.CDN))")
WBTraceTree = _refused("WBTraceTree", "record calls with run.span")


def __getattr__(name: str) -> Any:
    value = getattr(media, name, None)
    return names.lookup(name) if value is None else value
