"""``wandb.data_types``: our media, and W&B's types that refuse in words."""

from __future__ import annotations

from typing import Any

from trackers import media
from trackers.as_wandb import names
from trackers.media.base import MediaValue

WBValue = Media = BatchableMedia = MediaValue
"""Bases of W&B's types, to compare with."""


def __getattr__(name: str) -> Any:
    value = getattr(media, name, None)
    return names.lookup(name) if value is None else value
