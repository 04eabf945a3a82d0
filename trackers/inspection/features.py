"""nvdlfw-inspect's features, read and checked: sections that say of which layers' tensors which statistics are wanted.

The format: github.com/NVIDIA/nvidia-dlfw-inspect/tree/main/docs; TransformerEngine, docs/debug.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trackers.errors import NAME_LONGEST, UsageError, did_you_mean
from trackers.inspection.config import KEYS as SCHEDULE_KEYS
from trackers.inspection.config import InspectionSchedule
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
from trackers.support.terminal import one_line

KEYS = ("layer_name_regex_pattern", "layer_types", "layer_numbers", "exact_layer_names")
ROOT = "model"
WRAPPERS = ("DistributedDataParallel", "DataParallel", "OptimizedModule")
_NUMBER = re.compile(r"(?<!fc)\d+")


class Layers(NamedTuple):
    """A section's choice. numbers: None for all."""

    pattern: re.Pattern[str] | None = None
    types: tuple[str, ...] = ()
    numbers: frozenset[int] | None = None
    exact: tuple[str, ...] = ()

    def chosen(self, name: str, kind: str, linear: bool) -> bool:
        """Whether a module is meant.

        Args:
            name: of the layer. kind: of its class. linear: whether it is a linear layer.
        """
        if self.exact:
            return name in self.exact
        if not linear and kind not in self.types:
            return False
        if self.pattern is not None:
            return self.pattern.search(name) is not None
        if self.types and not (kind in self.types or "all" in self.types or any(part in name for part in self.types)):
            return False
        return self.numbers is None or _number(name) in self.numbers

    def describe(self) -> str:
        """What was asked for, in its own words."""
        if self.pattern is not None:
            return f"layer_name_regex_pattern {self.pattern.pattern!r}"
        return " and ".join(
            f"{key} {value}"
            for key, value in (
                ("exact_layer_names", list(self.exact)),
                ("layer_types", list(self.types)),
                ("layer_numbers", sorted(self.numbers or ())),
            )
            if value
        )

    @classmethod
    def read(cls, values: Any, where: str) -> Layers:
        """From a section's ``layers``.

        Raises:
            UsageError: nothing is chosen, an unknown key, or no regular expression.
        """
        if not isinstance(values, Mapping) or not set(values) & set(KEYS):
            raise UsageError(f"{where}: layers is missing: choose by {', '.join(KEYS)}")
        strange = [_shown(key) for key in values if key not in KEYS]
        if strange:
            raise UsageError(f"{where}: layers: unknown {', '.join(strange)}; known are {', '.join(KEYS)}")
        pattern = values.get("layer_name_regex_pattern")
        try:
            compiled = None if pattern is None else re.compile(str(pattern))
        except re.error as error:
            raise UsageError(f"{where}: layer_name_regex_pattern {pattern!r}: {error}") from None
        return cls(
            compiled,
            _words(values.get("layer_types"), f"{where}: layer_types"),
            _numbers(values.get("layer_numbers"), f"{where}: layer_numbers"),
            _words(values.get("exact_layer_names"), f"{where}: exact_layer_names"),
        )


def unwrapped(model: Any) -> list[Any]:
    """The model's chunks, without what training wraps them in."""
    chunks = list(model) if isinstance(model, (list, tuple)) else [model]
    modules = []
    for chunk in chunks:
        while type(chunk).__name__ in WRAPPERS:
            chunk = getattr(chunk, "_orig_mod", None) or chunk.module
        modules.append(chunk)
    return modules


def names(chunks: Sequence[Any]) -> dict[str, Any]:
    """The modules of a model by name: "model", "model.blocks.0.project". Several chunks of which two have a layer of
    the same name are told apart as "model.0", "model.1", ….

    A module in a list takes its ``layer_number``, if it has one (as Megatron's have), as its number.
    """
    trees = [_tree(chunk, ROOT) for chunk in chunks]
    every = [name for tree in trees for name, module in tree.items() if next(module.children(), None) is None]
    if len(every) > len(set(every)):
        trees = [_tree(chunk, f"{ROOT}.{number}") for number, chunk in enumerate(chunks)]
    modules = {name: module for tree in trees for name, module in tree.items()}
    last = {id(module): name for name, module in modules.items()}  # a shared module goes by one name, the last
    return {name: module for name, module in modules.items() if last[id(module)] == name}


def _tree(module: Any, name: str) -> dict[str, Any]:
    modules = {name: module}
    for child_name, child in module.named_children():
        number = getattr(child, "layer_number", None) if type(module).__name__ == "ModuleList" else None
        modules.update(_tree(child, f"{name}.{child_name if number is None else number}"))
    return modules


def _number(name: str) -> int | None:
    match = _NUMBER.search(name)
    return int(match.group()) if match else None


def _words(value: Any, where: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple)) or not value:
        raise UsageError(f"{where}={value!r}: give a list of names")
    return tuple(str(word) for word in value)


def _numbers(value: Any, where: str) -> frozenset[int] | None:
    if value is None or value == "all":
        return None
    numbers: set[int] = set()
    for item in value if isinstance(value, (list, tuple)) else [value]:
        if item == "all":
            return None
        match = re.fullmatch(r"(\d+)-(\d+)", str(item).strip())
        if match:
            numbers.update(range(int(match[1]), int(match[2]) + 1))
        elif type(item) is int:
            numbers.add(item)
        else:
            raise UsageError(f'{where}={item!r}: give numbers, or ranges as in "2-5"')
    return frozenset(numbers)


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
SETTINGS = ("stats", "fp8_format", *SCHEDULE_KEYS)


class StatisticsRequest(NamedTuple):
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
    requests: tuple[StatisticsRequest, ...]
    carried_out: tuple[str, ...]


def sections(features: Mapping[str, Any], *, others: bool = False, engine: bool = False) -> list[Section]:
    """The enabled sections of a configuration.

    Args:
        others: there are features of the user's own: an unknown name may be one of them.
        engine: TransformerEngine looks at its layers: statistics that it alone has are left to it.

    Raises:
        UsageError: something is missing, unknown or senseless; it says where, and what is known.
    """
    enabled = []
    for name, values in features.items():
        if not isinstance(values, Mapping):
            raise UsageError(f"{_shown(name)}: a section holds enabled, layers and features, not {values!r}")
        if _enabled(values, _shown(name)):
            enabled.append(_section(str(name), values, others, engine))
    return enabled


def _shown(name: Any) -> str:
    """A name of the user's as messages have it."""
    return one_line(str(name), NAME_LONGEST)


def _enabled(values: Mapping[str, Any], where: str) -> bool:
    if "enabled" not in values:
        raise UsageError(f"{where}: enabled is missing: write enabled: true, or false to leave it out")
    return bool(values["enabled"])


def _section(name: str, values: Mapping[str, Any], others: bool, engine: bool) -> Section:
    requests: list[StatisticsRequest] = []
    carried_out: list[str] = []
    shown = _shown(name)
    for field, settings in values.items():
        if field in ("enabled", "layers"):
            continue
        space, group = (field, settings) if field == NAMESPACE else (BASE, {field: settings})
        if not isinstance(group, Mapping):
            raise UsageError(f"{shown}: {_shown(field)} holds features by name, not {group!r}")
        for feature, inner in group.items():
            where = f"{shown}: {_shown(feature)}"
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
                raise UsageError(f"{shown}: unknown feature {feature!r}{_near(feature, known)}")
    return Section(name, Layers.read(values.get("layers"), shown), tuple(requests), tuple(carried_out))


def _near(word: Any, known: tuple[str, ...]) -> str:
    return f"{did_you_mean(str(word), known)} Known: {', '.join(known)}"


def _requests(
    space: str, feature: str, settings: Mapping[str, Any], where: str, engine: bool
) -> Iterator[StatisticsRequest]:
    own = {key: value for key, value in settings.items() if key not in ("enabled", "tensors", "tensors_struct")}
    if "tensors_struct" in settings:
        listed = settings["tensors_struct"]
        if not isinstance(listed, list) or not all(
            isinstance(entry, Mapping) and "tensor" in entry for entry in listed
        ):
            raise UsageError(f"{where}: tensors_struct holds a list, of which each entry names its tensor")
        each = [{**own, **entry} for entry in listed]
    elif "tensors" in settings:
        names = settings["tensors"]
        listed = [names] if isinstance(names, str) else names or ()
        if not isinstance(listed, (list, tuple)):
            raise UsageError(f"{where}: tensors is a list of {', '.join(TENSORS)}, not {names!r}")
        each = [{**own, "tensor": name} for name in listed]
    else:
        raise UsageError(f"{where}: tensors is missing: a list of {', '.join(TENSORS)}")
    for entry in each:
        if not engine or not isinstance(entry.get("stats"), list):
            yield _request(space, feature, entry, where)
        else:
            ours = [stat for stat in entry["stats"] if not _is_engines(stat)]
            if ours or not entry["stats"]:
                yield _request(space, feature, {**entry, "stats": ours}, where)


def _is_engines(stat: Any) -> bool:
    return set(stat) == {BLOCKWISE} if isinstance(stat, Mapping) else stat == OVERFLOWS or stat in DELAYED


def _request(space: str, feature: str, settings: Mapping[str, Any], where: str) -> StatisticsRequest:
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
    return StatisticsRequest(space, feature, tensor, tuple(read(space, names, settings, where)), schedule)


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
        statistic = fp8_statistic(str(name), format)
        if isinstance(statistic, str):
            raise UsageError(f"{where}: no statistic {name!r}: {statistic}")
        yield str(name), statistic
