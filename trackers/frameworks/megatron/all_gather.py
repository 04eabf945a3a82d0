"""What each rank has to say for the console, brought together without anybody waiting.

Each rank posts a short text to a group of its own (gloo, on the host: no GPU is touched) by one asynchronous
``all_gather``, and asks at later iterations whether it is through. A rank that is late delays a report, not training.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import msgspec

SIZE_BYTES = 16384
"""A rank's text; ranks must post the same size. What doesn't fit is left out."""


class Posted:
    """One text of each rank, on its way."""

    def __init__(self, rows: list[Any], work: Any = None) -> None:
        self._rows = rows
        self._work = work

    @property
    def ready(self) -> bool:
        """Asks, never waits."""
        return self._work is None or bool(self._work.is_completed())

    def rows(self) -> list[Any]:
        """By rank, what it posted; None where it can't be read."""
        return self._rows if self._work is None else [_decode(bytes(row.tolist())) for row in self._rows]


class TextGather:
    """Brings ranks' texts together. Every rank makes one at the same place, and posts the same number of times."""

    def __init__(self) -> None:
        distributed = sys.modules.get("torch.distributed")
        self._distributed: Any = None
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            self._distributed = distributed if distributed.get_world_size() > 1 else None
        self._group = self._distributed.new_group(backend="gloo") if self._distributed is not None else None

    @property
    def alone(self) -> bool:
        """Whether there is no group of several ranks: each has only its own text."""
        return self._distributed is None

    def post(self, value: Any) -> Posted:
        """Send this rank's value: JSON types."""
        if self._distributed is None:
            return Posted([value])
        import torch

        text = msgspec.json.encode(value)
        if len(text) > SIZE_BYTES:
            text = b"null"
        own = torch.frombuffer(bytearray(text.ljust(SIZE_BYTES)), dtype=torch.uint8)
        rows = [torch.empty(SIZE_BYTES, dtype=torch.uint8) for _ in range(self._distributed.get_world_size())]
        return Posted(rows, self._distributed.all_gather(rows, own, group=self._group, async_op=True))


def wait(posted: Posted, seconds: float) -> bool:
    """Give a text so long to arrive: for the end of training."""
    until = time.monotonic() + seconds
    while not posted.ready and time.monotonic() < until:
        time.sleep(0.005)
    return posted.ready


def _decode(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None
