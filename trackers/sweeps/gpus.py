"""The GPUs that runs of a sweep get."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable

from trackers.errors import UsageError
from trackers.hardware.gpus.detect import NVIDIA_DEVICE
from trackers.hardware.host import NVIDIA_CARDS

VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
"""What says which GPUs a process sees: each run's share is put into both."""
_NAMED = re.compile(r"(GPU|MIG)-[\w/-]+|\d+:\d+(:\d+)?")


def gpus(given: str, each: int, say: Callable[[str], None] = lambda line: None) -> list[list[str]]:
    """GPUs for each run that trains at the same time; [] where the machine has none, or none shall be dealt out.

    Args:
        given: ``auto``, ``none``, or indices and UUIDs as in CUDA_VISIBLE_DEVICES. each: how many a run gets.
        say: called with a line where it can't be known whether the machine has those that are given.

    Raises:
        UsageError: fewer are there than a run gets, or one that is given can't be.
    """
    if given == "none":
        return []
    found = _split(given) if given != "auto" else _visible()
    if given == "auto" and not found:
        return []
    if given != "auto":
        _check(found, say)
    if len(found) < each:
        raise UsageError(f"{len(found)} GPUs are there, and each run gets {each}: --gpus-per-run {max(1, len(found))}")
    return [found[at : at + each] for at in range(0, len(found) - each + 1, each)]


def _check(found: list[str], say: Callable[[str], None]) -> None:
    how = "--gpus takes auto, none, or numbers as 0,1"
    if not found:
        raise UsageError(f"no GPUs are named: {how}")
    for name in found:
        if not name.isascii() or not (name.isdigit() or _NAMED.fullmatch(name)):
            raise UsageError(f"unknown GPU {name!r}: {how}")
        if found.count(name) > 1:
            raise UsageError(f"GPU {name} is given twice")
    numbers = [name for name in found if name.isdigit()]
    cards = _cards()
    if not cards:
        say(f"no NVIDIA GPU is seen on this machine: whether it has {', '.join(found)} isn't known")
    elif none := [name for name in numbers if int(name) >= cards]:
        there = f"GPUs 0 to {cards - 1}" if cards > 1 else "GPU 0"
        raise UsageError(f"there is no GPU {', '.join(none)}: this machine has {there}")
    own = [_split(os.environ[name]) for name in VARIABLES if name in os.environ][:1]
    if own and (others := [name for name in found if name not in own[0]]):
        say(f"GPU {', '.join(others)} isn't among those of this job: CUDA_VISIBLE_DEVICES has {','.join(own[0])}")


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _visible() -> list[str]:
    for name in VARIABLES:
        if name in os.environ:
            found = _split(os.environ[name])
            return found[: found.index("-1")] if "-1" in found else found  # the first that is none ends the list
    return [str(number) for number in range(_cards())]


def _cards() -> int:
    with contextlib.suppress(OSError):
        if NVIDIA_DEVICE.exists():
            return len(list(NVIDIA_CARDS.iterdir()))
    return 0
