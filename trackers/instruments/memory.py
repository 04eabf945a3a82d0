"""Memory under Megatron's names: statistics of the CUDA allocator, or the process's memory where there is no GPU.

``torch.cuda.memory_stats`` reads what the caching allocator has counted on the host
(https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory.memory_stats.html): no GPU is asked.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from trackers.errors import UsageError
from trackers.formats.word_list import split_words
from trackers.instruments.timers import cuda_in_use
from trackers.support.interruption import suppress

PREFIX = "memory/"
GIGA = 1e9
KEYS: Mapping[str, str] = {
    "allocated_bytes.all.current": "mem-allocated-bytes",
    "active_bytes.all.current": "mem-active-bytes",
    "inactive_split_bytes.all.current": "mem-inactive-bytes",
    "reserved_bytes.all.current": "mem-reserved-bytes",
    "allocated_bytes.all.peak": "mem-max-allocated-bytes",
    "active_bytes.all.peak": "mem-max-active-bytes",
    "inactive_split_bytes.all.peak": "mem-max-inactive-bytes",
    "reserved_bytes.all.peak": "mem-max-reserved-bytes",
    "num_alloc_retries": "mem-alloc-retires",
    "allocation.all.current": "mem-allocated-count",
}
"""The allocator's statistics and Megatron's names of them (``retires`` is its spelling)."""


class MemoryReader:
    """Reads memory. Statistics of bytes are logged in gigabytes (1e9), and a name's "bytes" is "gigabytes" then.

    Args:
        keys: which of the allocator's statistics: a mapping from statistic to name, or just their names, which may
            be given in one text with commas. Default: Megatron's.
        say: called, once, with a line that names statistics which the allocator doesn't have.
    """

    def __init__(
        self, keys: Mapping[str, str] | Iterable[str] | None = None, say: Callable[[str], None] = lambda line: None
    ) -> None:
        self._say = say
        self.check(keys)
        if isinstance(keys, str):
            keys = split_words(keys)
        if keys is None or not keys:
            self._keys = dict(KEYS)
        elif isinstance(keys, Mapping):
            self._keys = {str(key): str(name) for key, name in keys.items()}
        else:
            self._keys = {key: KEYS.get(key, key) for key in keys}

    @staticmethod
    def check(keys: Any) -> None:
        """Raise UsageError where these say no statistics."""
        known = keys is None or isinstance(keys, (str, Mapping))
        known = known or (isinstance(keys, (Sequence, Set)) and all(isinstance(key, str) for key in keys))
        if not known or (isinstance(keys, Mapping) and not all(isinstance(v, str) for kv in keys.items() for v in kv)):
            raise UsageError(
                f'memory_keys={keys!r}: give a mapping such as {{"num_ooms": "ooms"}}, or names with commas between'
            )

    def values(self) -> dict[str, float]:
        """What to log: the GPU's where CUDA is in use, else the process's; what the allocator lacks is absent."""
        cuda = cuda_in_use()
        if cuda is None:
            return process()
        statistics = cuda.memory_stats()
        usage: dict[str, float] = {}
        for key, name in self._keys.items():
            if key in statistics:
                usage.update([_in_gigabytes(key, name, statistics[key])])
        lacking = [key for key in self._keys if key not in statistics and key not in KEYS]
        if lacking:
            self._say(
                f"memory: torch.cuda.memory_stats() has no {', '.join(lacking)}: left out; it has "
                "allocated_bytes.all.current, num_ooms, … (its documentation lists them)"
            )
        return usage


def process() -> dict[str, float]:
    """This process's memory: resident now and at most so far, in gigabytes."""
    import psutil

    resident = psutil.Process(os.getpid()).memory_info().rss
    usage = {f"{PREFIX}process-gigabytes": resident / GIGA}
    most = _most_resident_bytes()
    if most is not None:
        usage[f"{PREFIX}max-process-gigabytes"] = max(most, resident) / GIGA  # the kernel's most may lag behind
    return usage


def _most_resident_bytes() -> int | None:
    """The most that was resident of this program; None where the system doesn't keep it.

    On Linux by proc(5): what getrusage(2) tells there survives execve(2), so that a small program would have the
    memory of the launcher that started it.
    """
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return None
    import resource

    unit = 1 if sys.platform == "darwin" else 1024  # getrusage(2): kibibytes, on macOS bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _in_gigabytes(key: str, name: str, value: Any) -> tuple[str, float]:
    """A statistic's name and value as they are logged: its own name says the unit, not the one it is logged under."""
    if "bytes" in key:
        return PREFIX + re.sub(r"(?<!giga)bytes", "gigabytes", name), value / GIGA
    return PREFIX + name, value
