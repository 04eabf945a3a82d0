"""Packages of the extra ``analysis``, looked for before they are imported.

torch, for the instruments that can't measure without it: imported when one is made, never before.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from trackers.errors import MissingPackage


def need(package: str, what: str) -> None:
    """See that a package is installed.

    Raises:
        MissingPackage: it isn't; the message says what needs it, and the extra that brings it.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingPackage(f"{what} needs the {package} package: pip install 'trackers-relay[analysis]'")


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
