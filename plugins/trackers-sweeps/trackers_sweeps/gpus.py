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


def gpus(choice: str, each: int, say: Callable[[str], None] = lambda line: None) -> list[list[str]]:
    """GPUs for each run that trains at the same time; [] where the machine has none, or none shall be dealt out.

    Args:
        choice: ``auto``, ``none``, or indices and UUIDs as in CUDA_VISIBLE_DEVICES. each: how many a run gets.
        say: called with a line where it can't be known whether the machine has those that are given.

    Raises:
        UsageError: fewer are there than a run gets, or one that is given can't be.
    """
    if choice == "none":
        return []
    devices = _split(choice) if choice != "auto" else _visible()
    if choice == "auto" and not devices:
        return []
    if choice != "auto":
        _check(devices, say)
    if len(devices) < each:
        raise UsageError(
            f"{len(devices)} GPUs are there, and each run gets {each}: --gpus-per-run {max(1, len(devices))}"
        )
    return [devices[at : at + each] for at in range(0, len(devices) - each + 1, each)]


def _check(devices: list[str], say: Callable[[str], None]) -> None:
    how = "--gpus takes auto, none, or numbers as 0,1"
    if not devices:
        raise UsageError(f"no GPUs are named: {how}")
    for name in devices:
        if not name.isascii() or not (name.isdigit() or _NAMED.fullmatch(name)):
            raise UsageError(f"unknown GPU {name!r}: {how}")
        if devices.count(name) > 1:
            raise UsageError(f"GPU {name} is given twice")
    numbers = [name for name in devices if name.isdigit()]
    cards = _cards()
    if not cards:
        say(f"no NVIDIA GPU is seen on this machine: whether it has {', '.join(devices)} isn't known")
    elif none := [name for name in numbers if int(name) >= cards]:
        present = f"GPUs 0 to {cards - 1}" if cards > 1 else "GPU 0"
        raise UsageError(f"there is no GPU {', '.join(none)}: this machine has {present}")
    own = [_split(os.environ[name]) for name in VARIABLES if name in os.environ][:1]
    if own and (others := [name for name in devices if name not in own[0]]):
        say(f"GPU {', '.join(others)} isn't among those of this job: CUDA_VISIBLE_DEVICES has {','.join(own[0])}")


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _visible() -> list[str]:
    for name in VARIABLES:
        if name in os.environ:
            devices = _split(os.environ[name])
            # The first entry that is no device ends the list.
            return devices[: devices.index("-1")] if "-1" in devices else devices
    return [str(number) for number in range(_cards())]


def _cards() -> int:
    with contextlib.suppress(OSError):
        if NVIDIA_DEVICE.exists():
            return len(list(NVIDIA_CARDS.iterdir()))
    return 0
