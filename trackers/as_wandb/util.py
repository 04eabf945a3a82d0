"""The part of ``wandb.util`` that scripts and W&B's integrations use."""

from __future__ import annotations

import importlib
import importlib.util
import re
import secrets
import string
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from trackers.errors import MissingPackage
from trackers.formats.json_values import to_json_values

__all__ = [
    "POW_2_BYTES", "POW_10_BYTES", "FilePathStr", "StrPath", "add_import_hook", "from_human_size", "generate_id",
    "get_module", "is_numpy_array", "is_pandas_data_frame", "is_pytorch_tensor_typename", "is_tf_tensor_typename",
    "json_friendly", "json_friendly_val", "make_artifact_name_safe", "to_forward_slash_path", "to_human_size",
]  # fmt: skip

Units = list[tuple[str, int]]
POW_10_BYTES: Units = [(unit, 1000**power) for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB", "EB"))]
POW_2_BYTES: Units = [(unit, 1024**power) for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))]
FilePathStr = str
StrPath = Path


def generate_id(length: int = 8) -> str:
    """A random id for a run: lower-case letters and digits."""
    return "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(length))


def make_artifact_name_safe(name: str) -> str:
    """An artifact's name of letters, digits, "_", "-" and ".", of 128 characters at most, its middle left out."""
    cleaned = re.sub(r"[^a-zA-Z0-9_\-.]", "_", name)
    return cleaned if len(cleaned) <= 128 else cleaned[:63] + ".." + cleaned[-63:]


def to_human_size(size: int, units: Units | None = None) -> str:
    """Bytes in the first unit in which they are fewer than 1024, with one decimal: ``"1.5MB"``."""
    units = units or POW_10_BYTES
    for unit, value in units:
        text = f"{round(size / value, 1)}{unit}"
        if round(size / value, 1) < 1024:
            break
    return text


def from_human_size(size: str, units: Units | None = None) -> int:
    """Bytes of a text such as ``"10"``, ``"10B"`` or ``"1.5 gb"``; what follows the unit is passed over.

    Raises:
        ValueError: it begins with no number.
    """
    known = {unit.upper(): value for unit, value in units or POW_10_BYTES}
    match = re.match(rf"(\d+\.?\d*)\s*({'|'.join(known)})?", size, re.IGNORECASE)
    if match is None:
        raise ValueError(f"size {size!r}: give a number, with or without a unit: 10, 10B or 10 MB")
    return int(float(match[1]) * known.get((match[2] or "").upper(), 1))


def get_module(name: str, required: str | bool | None = None, lazy: bool = True) -> Any:
    """A module or a name in one; None where it can't be imported.

    Raises:
        MissingPackage: it can't, and ``required`` says what for.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        module, _, attribute = name.rpartition(".")
        if module and hasattr(sys.modules.get(module), attribute):
            return getattr(sys.modules[module], attribute)
        if required:
            raise MissingPackage(required if isinstance(required, str) else f"{name} can't be imported") from error
        return None


def add_import_hook(fullname: str, on_import: Callable[[Any], Any]) -> None:
    """Call a function with a module that is imported already; one that comes later isn't waited for."""
    if fullname in sys.modules:
        on_import(sys.modules[fullname])


def json_friendly(obj: Any) -> tuple[Any, bool]:
    """A value as JSON holds it, and whether it had to be changed for that."""
    converted = to_json_values(obj)
    return converted, converted is not obj


def json_friendly_val(val: Any) -> Any:
    """A value as JSON holds it."""
    return to_json_values(val)


def to_forward_slash_path(path: str) -> str:
    """A path of Windows with slashes."""
    return path.replace("\\", "/")


def is_numpy_array(obj: Any) -> bool:
    """A NumPy array."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(obj, numpy.ndarray)


def is_pandas_data_frame(obj: Any) -> bool:
    """A data frame of pandas."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(obj, pandas.DataFrame)


def is_pytorch_tensor_typename(typename: str) -> bool:
    """The name of a tensor's type in torch."""
    return typename.startswith("torch.") and ("Tensor" in typename or "Variable" in typename)


def is_tf_tensor_typename(typename: str) -> bool:
    """The name of a tensor's type in TensorFlow."""
    return typename.startswith("tensorflow.") and ("Tensor" in typename or "Variable" in typename)
