"""What is known of this process, and asked of the system for it."""

from __future__ import annotations

import os
import platform

import psutil
import pytest

from trackers.support import process_info


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library gives back by itself, or can't")
def test_freed_memory_is_given_back() -> None:
    """What lies below something that is still used is kept by the C library until it is asked for."""
    many = [bytes(2000) for _ in range(40_000)]
    last = [bytes(2000) for _ in range(200)]
    del many
    before = psutil.Process().memory_info().rss
    assert process_info.give_back_memory()
    assert before - psutil.Process().memory_info().rss > 40e6
    assert len(last) == 200


def test_pid_namespace_is_part_of_a_machine() -> None:
    """Two containers with one host name and one boot are two machines; an earlier version wrote no namespace."""
    here = process_info.machine()
    assert process_info.is_here(here)
    assert process_info.is_here(here._replace(pid_namespace=""))
    for name in here._fields:
        assert not process_info.is_here(here._replace(**{name: "other"}))
    assert here.pid_namespace == str(os.stat("/proc/self/ns/pid").st_ino)


def test_machine_without_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS: host name and boot are all there is, and what was written in a container is of elsewhere."""
    in_container = process_info.machine()

    def missing(path: str) -> os.stat_result:
        raise FileNotFoundError(path)

    monkeypatch.setattr(process_info.os, "stat", missing)
    assert process_info.is_here(process_info.machine())
    assert not process_info.is_here(in_container)
