"""Packages of extras, looked for before they are imported.

torch, for the instruments that can't measure without it: imported when one is made, never before.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from typing import Any

from trackers.errors import MissingPackage


def found_package(name: str) -> bool:
    """Whether a package is installed, whatever answers imports of its name in this process (``install_as_wandb``)."""
    spec = importlib.util.find_spec(name)
    if spec is not None and getattr(spec.loader, "stands_in", False):  # ours, for `import wandb`
        spec = importlib.machinery.PathFinder.find_spec(name)
    return spec is not None


EXTRAS = {
    "duckdb": "analysis", "matplotlib": "analysis", "pandas": "analysis", "pyarrow": "analysis", "textual": "watch",
    "obstore": "storage", "zstandard": "archive", "pyspark": "spark", "mcp": "mcp", "uvicorn": "mcp",
}  # fmt: skip
"""Packages that the package itself doesn't require, and the extras that bring them."""


def need(packages: str, what: str) -> None:
    """See that some packages are installed (names, with spaces between).

    Raises:
        MissingPackage: one isn't; the message says what needs them, and the extra that brings all of them.
    """
    names = packages.split()
    if any(importlib.util.find_spec(name) is None for name in names):
        raise MissingPackage(_message(what, names))


def missing(error: ModuleNotFoundError, what: str) -> MissingPackage | None:
    """What is to be said when one of these packages couldn't be imported; None if it is another module."""
    name = (error.name or "").partition(".")[0]
    return MissingPackage(_message(what, [name])) if name in EXTRAS else None


def _message(what: str, names: list[str]) -> str:
    listed = " and ".join(names) + (" package" if len(names) == 1 else " packages")
    extras = ",".join(dict.fromkeys(EXTRAS.get(name, "analysis") for name in names))
    return f"{what} needs the {listed}: pip install 'trackers-relay[{extras}]'"


def torch_for(what: str) -> Any:
    """The torch module.

    Raises:
        MissingPackage: it isn't installed.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingPackage(f"{what} needs torch: pip install 'trackers-relay[torch]'") from error
    return torch
