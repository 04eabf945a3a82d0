"""What the system is asked of this process."""

from __future__ import annotations

import platform

import psutil
import pytest

from trackers.support import processes


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library gives back by itself, or can't")
def test_freed_memory_is_given_back() -> None:
    """What lies below something that is still used is kept by the C library until it is asked for."""
    many = [bytes(2000) for _ in range(40_000)]
    last = [bytes(2000) for _ in range(200)]
    del many
    before = psutil.Process().memory_info().rss
    assert processes.give_back_memory()
    assert before - psutil.Process().memory_info().rss > 40e6
    assert len(last) == 200
