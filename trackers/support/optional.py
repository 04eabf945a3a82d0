"""Packages of the extras ``analysis`` and ``watch``, looked for before they are imported.

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
    if spec is not None and getattr(spec.loader, "stands_in", False):
        spec = importlib.machinery.PathFinder.find_spec(name)
    return spec is not None


def need(package: str, what: str, extra: str = "analysis") -> None:
    """See that a package is installed.

    Raises:
        MissingPackage: it isn't; the message says what needs it, and the extra that brings it.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingPackage(f"{what} needs the {package} package: pip install 'trackers-relay[{extra}]'")


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
