"""Configuration of tensor inspection (Megatron Bridge's ``TensorInspectConfig``), from code or from a YAML file.

When a feature looks at tensors: every so many iterations, within bounds.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trackers.errors import MissingPackage, UsageError, examples
from trackers.formats.yaml_text import load_yaml

SECTION = "tensor_inspect"
"""The name under which a YAML file may hold the whole configuration; without it, a file holds features."""


@dataclasses.dataclass(kw_only=True)
class TensorInspectConfig:
    """Configuration of tensor inspection: fields and defaults as in Megatron Bridge.

    Attributes:
        enabled: whether anything is looked at.
        features: nvdlfw-inspect's features: a mapping, or the path of a YAML file that holds one.
        feature_dirs: directories with features of your own, for nvdlfw-inspect.
        log_dir: where text logs go, below ``nvdlfw_inspect_statistics_logs/``; default ``tensor_inspect`` in the
            run's directory, on the rank that has one.
        init_training_step: the number of the first iteration.
    """

    enabled: bool = False
    features: Mapping[str, Any] | str | os.PathLike[str] | None = None
    feature_dirs: list[str] | str | None = None
    log_dir: str | os.PathLike[str] | None = None
    init_training_step: int = 0

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], where: str = SECTION) -> TensorInspectConfig:
        """From names and values.

        Raises:
            UsageError: a name that isn't a field's.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        strange = [str(name) for name in values if name not in known]
        if strange:
            raise UsageError(f"{where}: unknown {examples(strange)}; known are {', '.join(known)}")
        return cls(**values)

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], **more: Any) -> TensorInspectConfig:
        """From a YAML file: of features, or of a configuration under ``tensor_inspect``.

        Args:
            **more: fields that the file doesn't name.

        Raises:
            UsageError: the file can't be read, or holds something else. MissingPackage: PyYAML isn't installed.
        """
        values = read_yaml(path)
        inner = values.get(SECTION)
        if inner is None:
            return cls(**{"enabled": True, "features": values, **more})
        if not isinstance(inner, dict):
            raise UsageError(f"{os.fspath(path)}: {SECTION} must hold a mapping of names to values")
        return cls.from_mapping({**more, **inner}, f"{os.fspath(path)}: {SECTION}")

    def read_features(self) -> dict[str, Any]:
        """The features as a mapping.

        Raises:
            UsageError: none are given, or the file can't be read. MissingPackage: PyYAML isn't installed.
        """
        if self.features is None:
            raise UsageError("tensor inspection: features is missing: give a mapping, or the path of a YAML file")
        if isinstance(self.features, Mapping):
            return dict(self.features)
        if not isinstance(self.features, (str, os.PathLike)):
            raise UsageError(
                f"tensor inspection: features is a mapping, or the path of a YAML file, not {self.features!r}"
            )
        return read_yaml(self.features)

    def directories(self) -> list[str]:
        """``feature_dirs`` as a list."""
        return [self.feature_dirs] if isinstance(self.feature_dirs, str) else list(self.feature_dirs or ())


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A YAML file's mapping; nothing in it is carried out.

    Raises:
        UsageError: it can't be read, or holds something else. MissingPackage: PyYAML isn't installed.
    """
    name = os.fspath(path)[:300]
    name = name if name.isprintable() else repr(name)
    try:
        values = load_yaml(Path(path).expanduser().read_text(encoding="utf-8"))
    except ImportError as error:
        raise MissingPackage(f"{name} is YAML: pip install 'trackers-relay[inspect]'") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"tensor inspection: {name} can't be read: {getattr(error, 'strerror', error)}") from None
    except ValueError as error:
        raise UsageError(f"tensor inspection: {name} isn't valid YAML: {error}") from None
    if not isinstance(values, dict):
        raise UsageError(f"tensor inspection: {name} must hold a mapping of sections")
    return values


KEYS = ("freq", "start_step", "end_step", "start_end_list")


@dataclass(frozen=True)
class InspectionSchedule:
    """The iterations at which to look: multiples of ``freq`` within any of the spans.

    Attributes:
        freq: 1 or more. spans: first and last iteration; None: no last one.
    """

    freq: int = 1
    spans: tuple[tuple[int, int | None], ...] = ((0, None),)

    def due(self, iteration: int) -> bool:
        """Whether to look at this iteration."""
        if iteration % self.freq:
            return False
        return any(start <= iteration and (end is None or iteration <= end) for start, end in self.spans)

    @classmethod
    def read(cls, settings: Mapping[str, Any], where: str, *, base: bool = False) -> InspectionSchedule:
        """From a feature's settings.

        Args:
            where: what error messages begin with.
            base: a feature of nvdlfw-inspect's own, whose ``start_end_list`` excludes each end; TransformerEngine's
                includes it. ``end_step`` is included in both, and -1 is no end.

        Raises:
            UsageError: a value that makes no sense.
        """
        freq = _whole(settings.get("freq"), 1, f"{where}: freq")
        if freq < 1:
            raise UsageError(f"{where}: freq={freq}: give 1 or more")
        listed = settings.get("start_end_list")
        if not listed:
            start = _whole(settings.get("start_step"), 0, f"{where}: start_step")
            return cls(freq, ((start, _end(settings.get("end_step"), f"{where}: end_step")),))
        if not isinstance(listed, list) or not all(
            isinstance(pair, (list, tuple)) and len(pair) == 2 for pair in listed
        ):
            raise UsageError(f"{where}: start_end_list={listed!r}: give pairs, as in [[0, 20], [80, 100]]")
        spans = []
        for first, last in listed:
            end = _end(last, f"{where}: start_end_list")
            spans.append((_whole(first, 0, f"{where}: start_end_list"), end if end is None or not base else end - 1))
        return cls(freq, tuple(spans))


def _whole(value: Any, default: int, where: str) -> int:
    if value is None:
        return default
    if type(value) is not int:
        raise UsageError(f"{where}={value!r}: give a whole number")
    return value


def _end(value: Any, where: str) -> int | None:
    end = _whole(value, -1, where)
    return None if end == -1 else end
