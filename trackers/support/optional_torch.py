"""torch, for the instruments that can't measure without it: imported when one is made, never before."""

from __future__ import annotations

from typing import Any

from trackers.errors import MissingPackage


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
