"""Why an AMD GPU's clocks are held down: from what its driver calls GPU metrics, as words.

Older GPUs (MI200, Navi) have a word of bits that are the same on all of them, ``indep_throttle_status``
(``SMU_THROTTLER_*_BIT`` in Linux' ``drivers/gpu/drm/amd/pm/swsmu/inc/amdgpu_smu.h``). MI300 and later count for how
long each limit held instead: what grew since the reading before held the GPU down in between. Both stand in
``amdsmi_gpu_metrics_t``, and in the kernel's file ``gpu_metrics``, whose layouts are ``struct gpu_metrics_v1_*`` of
``drivers/gpu/drm/amd/include/kgd_pp_interface.h``. Other layouts tell neither.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, NamedTuple

_WORDS: dict[str, range | tuple[int, ...]] = {
    "package power limit": range(0, 4),
    "sustained power limit": (4,),
    "fast power limit": (5,),
    "slow power limit": (6, 7),
    "current limit": range(16, 21),
    "peak current limit": range(21, 24),
    "GPU temperature": (32,),
    "core temperature": (33,),
    "memory temperature": (34,),
    "edge temperature": (35,),
    "hot spot temperature": (36,),
    "SoC temperature": (37,),
    "voltage regulator temperature": (*range(38, 42), 44, 45),
    "liquid temperature": (42, 43),
    "hot signal from outside (PROCHOT)": (46, 47),
    "power management (PPM)": (56,),
    "reliability limit (FIT)": (57,),
}
REASONS: dict[str, int] = {word: sum(1 << bit for bit in bits) for word, bits in _WORDS.items()}
"""The bits of ``indep_throttle_status`` that a word stands for."""
RESIDENCIES: dict[str, str] = {
    "prochot_residency_acc": "hot signal from outside (PROCHOT)",
    "ppt_residency_acc": "package power limit",
    "socket_thm_residency_acc": "GPU temperature",
    "vr_thm_residency_acc": "voltage regulator temperature",
    "hbm_thm_residency_acc": "memory temperature",
}
"""Counters of ``amdsmi_gpu_metrics_t``, in the kernel's order too, and the words for them."""

NO_BITS = (1 << 64) - 1
NO_COUNT = frozenset({(1 << 32) - 1, (1 << 64) - 1})
_LAYOUT = struct.Struct("<HBB")
_BITS_AT = {(1, 3): 112}
_COUNTS_AT = {(1, 6): 108, (1, 7): 44, (1, 8): 44}
"""Format and content revision, and where the bits (64 bit) or the first counter (32 bit) stands."""


class Told(NamedTuple):
    """What a GPU tells: the word of bits, or the counters by the words for them."""

    bits: int | None
    counts: dict[str, int]


class Throttling:
    """Turns what GPUs tell into reasons; remembers each GPU's counters from one reading to the next."""

    def __init__(self) -> None:
        self._before: dict[str, dict[str, int]] = {}

    def reasons(self, label: str, told: Told) -> tuple[str, ...] | None:
        """Why a GPU is held down, () for not at all; None where it can't be known yet, or the GPU doesn't tell."""
        if told.bits is not None:
            return tuple(word for word, mask in REASONS.items() if told.bits & mask)
        before = self._before.get(label)
        self._before[label] = told.counts
        if before is None or not told.counts:
            return None
        return tuple(word for word, count in told.counts.items() if count > before.get(word, count))


def from_library(metrics: Any) -> Told | None:
    """From amdsmi's structure; None where it tells nothing."""
    bits = getattr(metrics, "indep_throttle_status", NO_BITS)
    counts = {word: int(getattr(metrics, name, NO_BITS)) for name, word in RESIDENCIES.items()}
    return _told(None if bits == NO_BITS else int(bits), counts)


def from_file(path: Path) -> Told | None:
    """From the kernel's file; None where it is missing, or tells nothing.

    Raises:
        OSError: it can't be read now, as during a reset.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    if len(content) < _LAYOUT.size:
        return None
    _, *revision = _LAYOUT.unpack_from(content)
    layout = tuple(revision)
    try:
        if layout in _BITS_AT:
            (bits,) = struct.unpack_from("<Q", content, _BITS_AT[layout])
            return _told(None if bits == NO_BITS else bits, {})
        if layout in _COUNTS_AT:
            counts = struct.unpack_from(f"<{len(RESIDENCIES)}I", content, _COUNTS_AT[layout])
            return _told(None, dict(zip(RESIDENCIES.values(), counts, strict=True)))
    except struct.error:  # shorter than its revision says
        pass
    return None


def _told(bits: int | None, counts: dict[str, int]) -> Told | None:
    known = {word: count for word, count in counts.items() if count not in NO_COUNT}
    return None if bits is None and not known else Told(bits, known)
