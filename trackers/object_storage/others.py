"""State of a run's other trackers in a store: files that still change after the last record was sent."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE
from trackers.object_storage import addresses, layout
from trackers.support import confined

KEY = "others"
"""In the state of the delivery to a store: :func:`standing` when everything was sent last."""
CODE = "/code"
"""Key beside the trackers' names while the code that ran is still to be kept. No tracker has such a name."""
_END = ".json"


class _Account(msgspec.Struct):
    """The part of a delivery's account that shows how far it is. A text of an error changes with each try."""

    closed: str = ""
    stopped: bool = False
    delivered: int = 0
    rejected: int = 0
    error: str = ""
    verified: dict[str, Any] = {}


def standing(run: Path) -> dict[str, list[Any]]:
    """How far a run's other deliveries are, by tracker, and the code that is kept of it. JSON values."""
    states: dict[str, list[Any]] = {}
    with contextlib.suppress(OSError):
        for file in sorted(os.listdir(run / "delivery")):
            name = file.removesuffix(_END)
            if not file.endswith(_END) or file.startswith(".") or name == addresses.STORAGE:
                continue
            with contextlib.suppress(OSError, *UNDECODABLE):
                account = msgspec.json.decode(confined.read(run / "delivery" / file, root=run), type=_Account)
                states[name] = [
                    account.closed, account.stopped, account.delivered, account.rejected, bool(account.error),
                    account.verified.get("time"),
                ]  # fmt: skip
    if code_is_awaited(run):
        states[CODE] = []
    return states


def outdated(run: Path, state: Mapping[str, Any]) -> bool:
    """Whether a store to which everything was sent has an outdated state of a run's other trackers.

    Args:
        run: its directory. state: of the delivery to the store.
    """
    recorded = state.get(KEY)
    return recorded is not None and recorded != standing(run)


def code_is_awaited(run: Path) -> bool:
    """Whether the code that ran is still to be kept."""
    try:
        return any(name.endswith(layout.CODE_SPOOL) for name in os.listdir(run))
    except OSError:
        return False
