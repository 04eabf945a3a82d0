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
    "POW_2_BYTES", "POW_10_BYTES", "FilePathStr", "StrPath", "add_import_hook", "auto_project_name",
    "from_human_size", "generate_id", "get_full_typename", "get_module", "is_matplotlib_typename", "is_numpy_array",
    "is_pandas_data_frame", "is_pytorch_tensor_typename", "is_tf_tensor_typename", "json_friendly",
    "json_friendly_val", "make_artifact_name_safe", "make_safe_for_json", "random_string", "to_forward_slash_path",
    "to_human_size",
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


def random_string(length: int = 12) -> str:
    """Random lower-case letters and digits."""
    return generate_id(length)


def auto_project_name(program: str | None) -> str:
    """The project of a run that was given none."""
    return "uncategorized"


def get_full_typename(o: Any) -> Any:
    """A value's type with its module, ``"builtins.int"``; of a class or module without one, its name."""
    name = f"{type(o).__module__}.{type(o).__name__}"
    return getattr(o, "__name__", name) if name in ("builtins.module", "__builtin__.module") else name


def make_safe_for_json(obj: Any) -> Any:
    """A value as JSON holds it; NaN and infinities as text."""
    if isinstance(obj, dict):
        return {key: make_safe_for_json(value) for key, value in obj.items()}
    if isinstance(obj, (list, tuple)):
        return [make_safe_for_json(value) for value in obj]
    if isinstance(obj, float) and obj - obj != 0:
        return "NaN" if obj != obj else "Infinity" if obj > 0 else "-Infinity"
    return obj


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


def is_matplotlib_typename(typename: str) -> bool:
    """The name of a type of matplotlib."""
    return typename.startswith("matplotlib.")


def is_pytorch_tensor_typename(typename: str) -> bool:
    """The name of a tensor's type in torch."""
    return typename.startswith("torch.") and ("Tensor" in typename or "Variable" in typename)


def is_tf_tensor_typename(typename: str) -> bool:
    """The name of a tensor's type in TensorFlow."""
    return typename.startswith("tensorflow.") and ("Tensor" in typename or "Variable" in typename)
