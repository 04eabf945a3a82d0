"""nvdlfw-inspect's features, read and checked: sections that say of which layers' tensors which statistics are wanted.

The format: github.com/NVIDIA/nvidia-dlfw-inspect/tree/main/docs; TransformerEngine, docs/debug.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trackers.errors import UsageError
from trackers.inspection.config import KEYS, InspectionSchedule
from trackers.inspection.selection import Layers
from trackers.inspection.statistics import (
    BACKWARD,
    BASE_STATS,
    FORMATS,
    FP8_STATS,
    RECIPES,
    TENSOR_STATS,
    Statistic,
    fp8_statistic,
)

NAMESPACE, BASE = "transformer_engine", "base"
MEASURED = {NAMESPACE: ("LogTensorStats", "LogFp8TensorStats"), BASE: ("LogTensorStats",)}
"""Features that are measured here where the library that has them can't."""
CARRIED_OUT = (
    "DisableFP8GEMM",
    "DisableFP8Layer",
    "PerTensorScaling",
    "FakeQuant",
    "DisableQuantizationGEMM",
    "DisableQuantizationLayer",
    "LogNvfp4TensorStats",
    "DumpTensors",
    "AutoswitchGemm",
)
"""Features that TransformerEngine alone has."""
BLOCKWISE = "max_blockwise_dynamic_range"
OVERFLOWS = "overflows%"
DELAYED = tuple(f"{RECIPES[-1]}_{name}" for name in (*FP8_STATS, OVERFLOWS))
"""Statistics that TransformerEngine alone has; the first one is a mapping with its settings."""
TENSORS = ("activation", "gradient", "weight", "output", "wgrad", "dgrad")
SETTINGS = ("stats", "fp8_format", *KEYS)


class Request(NamedTuple):
    """Statistics wanted of one tensor of each layer of a section. stats: by the name that the metric ends in."""

    namespace: str
    feature: str
    tensor: str
    stats: tuple[tuple[str, Statistic], ...]
    schedule: InspectionSchedule


class Section(NamedTuple):
    """Layers, and what is wanted of them.

    Attributes:
        carried_out: features that change what is computed, or that are not known here, by namespace and name.
    """

    name: str
    layers: Layers
    requests: tuple[Request, ...]
    carried_out: tuple[str, ...]


def sections(features: Mapping[str, Any], *, others: bool = False, engine: bool = False) -> list[Section]:
    """The enabled sections of a configuration.

    Args:
        others: there are features of the user's own: an unknown name may be one of them.
        engine: TransformerEngine looks at its layers: statistics that it alone has are left to it.

    Raises:
        UsageError: something is missing, unknown or senseless; it says where, and what is known.
    """
    found = []
    for name, values in features.items():
        if not isinstance(values, Mapping):
            raise UsageError(f"{name}: a section holds enabled, layers and features, not {values!r}")
        if _enabled(values, str(name)):
            found.append(_section(str(name), values, others, engine))
    return found


def _enabled(values: Mapping[str, Any], where: str) -> bool:
    if "enabled" not in values:
        raise UsageError(f"{where}: enabled is missing: write enabled: true, or false to leave it out")
    return bool(values["enabled"])


def _section(name: str, values: Mapping[str, Any], others: bool, engine: bool) -> Section:
    requests: list[Request] = []
    carried_out: list[str] = []
    for field, settings in values.items():
        if field in ("enabled", "layers"):
            continue
        space, group = (field, settings) if field == NAMESPACE else (BASE, {field: settings})
        if not isinstance(group, Mapping):
            raise UsageError(f"{name}: {field} holds features by name, not {group!r}")
        for feature, inner in group.items():
            where = f"{name}: {feature}"
            if not isinstance(inner, Mapping):
                if space == BASE and others:
                    continue  # a namespace of the user's own
                raise UsageError(f"{where} holds settings by name, not {inner!r}")
            if feature in MEASURED[space]:
                if _enabled(inner, where):
                    requests += _requests(space, feature, inner, where, engine and space == NAMESPACE)
            elif others or (space == NAMESPACE and feature in CARRIED_OUT):
                if not others and not _enabled(inner, where):
                    continue
                carried_out.append(str(feature))
            else:
                known = (*MEASURED[NAMESPACE], *CARRIED_OUT) if space == NAMESPACE else (NAMESPACE, *MEASURED[BASE])
                raise UsageError(f"{name}: unknown feature {feature!r}{_near(feature, known)}")
    return Section(name, Layers.read(values.get("layers"), name), tuple(requests), tuple(carried_out))


def _near(word: Any, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(str(word), known, 1)
    return f"{f': did you mean {near[0]!r}?' if near else '.'} Known: {', '.join(known)}"


def _requests(space: str, feature: str, settings: Mapping[str, Any], where: str, engine: bool) -> Iterator[Request]:
    own = {key: value for key, value in settings.items() if key not in ("enabled", "tensors", "tensors_struct")}
    if "tensors_struct" in settings:
        listed = settings["tensors_struct"]
        if not isinstance(listed, list) or not all(isinstance(one, Mapping) and "tensor" in one for one in listed):
            raise UsageError(f"{where}: tensors_struct holds a list, of which each entry names its tensor")
        each = [{**own, **one} for one in listed]
    elif "tensors" in settings:
        names = settings["tensors"]
        each = [{**own, "tensor": name} for name in ([names] if isinstance(names, str) else names or ())]
    else:
        raise UsageError(f"{where}: tensors is missing: a list of {', '.join(TENSORS)}")
    for one in each:
        if not engine or not isinstance(one.get("stats"), list):
            yield _request(space, feature, one, where)
        else:
            ours = [stat for stat in one["stats"] if not _is_engines(stat)]
            if ours or not one["stats"]:
                yield _request(space, feature, {**one, "stats": ours}, where)


def _is_engines(stat: Any) -> bool:
    return set(stat) == {BLOCKWISE} if isinstance(stat, Mapping) else stat == OVERFLOWS or stat in DELAYED


def _request(space: str, feature: str, settings: Mapping[str, Any], where: str) -> Request:
    tensor = settings["tensor"]
    if tensor not in TENSORS:
        raise UsageError(f"{where}: unknown tensor {tensor!r}{_near(tensor, TENSORS)}")
    known = SETTINGS if feature == "LogFp8TensorStats" else tuple(key for key in SETTINGS if key != "fp8_format")
    for key in settings:
        if key != "tensor" and key not in known:
            raise UsageError(f"{where}: unknown setting {key!r}{_near(key, (*known, 'tensors', 'tensors_struct'))}")
    names = settings.get("stats")
    if not names or not isinstance(names, list):
        raise UsageError(f"{where}: stats is missing: a list of statistics of {tensor}")
    read = _fp8_stats if feature == "LogFp8TensorStats" else _tensor_stats
    schedule = InspectionSchedule.read(settings, where, base=space == BASE)
    return Request(space, feature, tensor, tuple(read(space, names, settings, where)), schedule)


def _tensor_stats(
    space: str, names: list[Any], settings: Mapping[str, Any], where: str
) -> Iterator[tuple[str, Statistic]]:
    known = BASE_STATS if space == BASE else tuple(TENSOR_STATS)
    for name in names:
        word = str(name).lower() if space == BASE else name  # as the library reads them
        if word not in known:
            raise UsageError(f"{where}: unknown statistic {name!r}{_near(name, known)}")
        yield word, TENSOR_STATS[word]


def _fp8_stats(
    space: str, names: list[Any], settings: Mapping[str, Any], where: str
) -> Iterator[tuple[str, Statistic]]:
    format = settings.get("fp8_format", "HYBRID")
    if format not in FORMATS:
        raise UsageError(f"{where}: fp8_format={format!r}: known are {', '.join(FORMATS)}")
    if format == "HYBRID":
        format = "E5M2" if settings["tensor"] in BACKWARD else "E4M3"
    for name in names:
        found = fp8_statistic(str(name), format)
        if isinstance(found, str):
            raise UsageError(f"{where}: no statistic {name!r}: {found}")
        yield str(name), found
