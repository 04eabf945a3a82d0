"""Configuration of tensor inspection (Megatron Bridge's ``TensorInspectConfig``), from code or from a YAML file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.errors import MissingPackage, UsageError

SECTION = "tensor_inspect"
"""The name under which a YAML file may hold the whole configuration; without it, a file holds features."""


@dataclasses.dataclass(kw_only=True)
class TensorInspectConfig:
    """What to look at in a model's tensors: fields and defaults as in Megatron Bridge.

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
            raise UsageError(f"{where}: unknown {', '.join(strange)}; known are {', '.join(known)}")
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
            raise UsageError(f"{os.fspath(path)}: {SECTION} holds no mapping of names to values")
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
        return read_yaml(self.features)

    def directories(self) -> list[str]:
        """``feature_dirs`` as a list."""
        return [self.feature_dirs] if isinstance(self.feature_dirs, str) else list(self.feature_dirs or ())


def read_yaml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A YAML file's mapping; nothing in it is carried out.

    Raises:
        UsageError: it can't be read, or holds something else. MissingPackage: PyYAML isn't installed.
    """
    name = os.fspath(path)
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise MissingPackage(f"{name} is YAML: pip install 'trackers-relay[inspect]'") from error
    try:
        values = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"tensor inspection: {name} can't be read: {error}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"tensor inspection: {name} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise UsageError(f"tensor inspection: {name} holds no mapping of sections")
    return values
