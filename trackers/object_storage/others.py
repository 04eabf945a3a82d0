"""What a store says of a run's other trackers. It is sent as files, which change after the last record was sent."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE
from trackers.object_storage import layout, place
from trackers.support import confined

KEY = "others"
"""In the state of the delivery to a store: :func:`standing` when everything was sent last."""
CODE = "/code"
"""Among the trackers' names: the code that ran is still to be kept. No tracker has such a name."""
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
    found: dict[str, list[Any]] = {}
    with contextlib.suppress(OSError):
        for file in sorted(os.listdir(run / "delivery")):
            name = file.removesuffix(_END)
            if not file.endswith(_END) or file.startswith(".") or name == place.TRACKER:
                continue
            with contextlib.suppress(OSError, *UNDECODABLE):
                account = msgspec.json.decode(confined.read(run / "delivery" / file, root=run), type=_Account)
                found[name] = [
                    account.closed, account.stopped, account.delivered, account.rejected, bool(account.error),
                    account.verified.get("time"),
                ]  # fmt: skip
    if code_is_awaited(run):
        found[CODE] = []
    return found


def outdated(run: Path, state: Mapping[str, Any]) -> bool:
    """Whether a store to which everything was sent says of a run's other trackers what isn't so any more.

    Args:
        run: its directory. state: of the delivery to the store.
    """
    said = state.get(KEY)
    return said is not None and said != standing(run)


def code_is_awaited(run: Path) -> bool:
    """Whether the code that ran is still to be kept."""
    try:
        return any(name.endswith(layout.CODE_SPOOL) for name in os.listdir(run))
    except OSError:
        return False
