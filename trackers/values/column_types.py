"""What W&B's pages read of a table in an artifact beside its cells: the type of each column, in W&B's words."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Type = dict[str, Any]
ANY: Type = {"wb_type": "any"}
NONE: Type = {"wb_type": "none"}
UNKNOWN: Type = {"wb_type": "unknown"}
PLAIN = {bool: "boolean", int: "number", float: "number", str: "string"}


def of_columns(names: Sequence[str], rows: Sequence[Sequence[Any]], words: Mapping[str, str]) -> Type:
    """The types of a table's columns: each may be empty; one whose cells have several is of any type.

    Args:
        rows: cells as :func:`trackers.media.table.cell` makes them.
        words: W&B's word for each type of media.
    """
    types = {name: _optional([row[index] for row in rows], words) for index, name in enumerate(names)}
    return {"wb_type": "typedDict", "params": {"type_map": types}}


def _optional(cells: Iterable[Any], words: Mapping[str, str]) -> Type:
    return _union([NONE, _common(cells, words)])


def _union(types: list[Type]) -> Type:
    return {"wb_type": "union", "params": {"allowed_types": sorted(types, key=_place)}}


def _place(one: Type) -> str:
    """Where W&B's client has a type among others."""
    if one["wb_type"] == "list":
        return _place(one["params"]["element_type"]) + "[]"
    return "{" if one["wb_type"] == "typedDict" else str(one["wb_type"])


def _common(cells: Iterable[Any], words: Mapping[str, str]) -> Type:
    types = (_type(cell, words) for cell in cells if cell is not None)
    return functools.reduce(_both, types, UNKNOWN)


def _type(cell: Any, words: Mapping[str, str]) -> Type:
    if isinstance(cell, list):
        element = _common(cell, words)
        return _list(_union([NONE, element]) if None in cell else element, len(cell))
    if not isinstance(cell, dict):
        return {"wb_type": PLAIN.get(type(cell), "any")}
    kind = cell.get("_type")
    if kind is None:
        return {"wb_type": "typedDict", "params": {"type_map": {key: NONE if item is None else _type(item, words)
                                                                for key, item in cell.items()}}}  # fmt: skip
    if kind == "image":
        return _image(cell.get("meta") or {})
    return {"wb_type": words[kind]} if kind in words else ANY


def _list(element: Type, length: int) -> Type:
    return {"wb_type": "list", "params": {"element_type": element, "length": length}}


def _both(first: Type, second: Type) -> Type:
    """The type of cells of two types."""
    if first == second or second == UNKNOWN:
        return first
    if first == UNKNOWN:
        return second
    if "union" in (first["wb_type"], second["wb_type"]):  # one of them may be none
        inner = [next((one for one in kind["params"]["allowed_types"] if one != NONE), UNKNOWN)
                 if kind["wb_type"] == "union" else kind for kind in (first, second)]  # fmt: skip
        both = _both(inner[0], inner[1])
        return ANY if both == ANY else _union([NONE, both])
    if first["wb_type"] != second["wb_type"]:
        return ANY
    own, other = first["params"], second["params"]
    if first["wb_type"] == "list":
        element = _both(own["element_type"], other["element_type"])
        return _list(element, other["length"]) if element != ANY else ANY
    if first["wb_type"] == "image-file":
        return _image_type({name: _merged(own[name]["params"]["val"], other[name]["params"]["val"]) for name in own})
    if first["wb_type"] == "typedDict" and own["type_map"].keys() == other["type_map"].keys():
        types = {name: _both(one, other["type_map"][name]) for name, one in own["type_map"].items()}
        return ANY if ANY in types.values() else {"wb_type": "typedDict", "params": {"type_map": types}}
    return ANY


def _image(meta: Mapping[str, Any]) -> Type:
    """Of a picture with its layers of boxes and masks, and the classes that they name."""
    layers: dict[str, Any] = {"box_score_keys": []}
    classes = {str(one["id"]): one["name"] for one in meta.get("classes") or ()}
    for kind in ("box", "mask"):
        labels = {name: layer.get("class_labels") or {}
                  for name, layer in meta.get("boxes" if kind == "box" else "masks", {}).items()}  # fmt: skip
        layers[f"{kind}_layers"] = {name: [int(number) for number in ids] for name, ids in labels.items()}
        named = {name: {str(number): text for number, text in ids.items()} for name, ids in labels.items()}
        layers[f"{kind}_class_maps"] = named
        classes = {**{number: text for ids in named.values() for number, text in ids.items()}, **classes}
    boxes = [box for layer in meta.get("boxes", {}).values() for box in layer.get("box_data", ())]
    layers["box_score_keys"] = sorted({name for box in boxes for name in box.get("scores") or ()})
    return _image_type({**layers, "class_map": classes})


def _image_type(layers: Mapping[str, Any]) -> Type:
    params = {name: {"wb_type": "const", "params": {"val": val, "is_set": isinstance(val, list)}}
              for name, val in layers.items()}  # fmt: skip
    return {"wb_type": "image-file", "params": params}


def _merged(own: Any, other: Any) -> Any:
    """Layers of two pictures, with all classes of both."""
    if isinstance(own, list):
        return sorted({*own, *other})
    if not isinstance(own, dict) or not isinstance(other, dict):
        return own
    return {name: _merged(own.get(name, other.get(name)), other.get(name, own.get(name))) for name in {**own, **other}}
