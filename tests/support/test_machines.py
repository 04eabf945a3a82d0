"""Where a pid means something."""

from __future__ import annotations

import os

import pytest

from trackers.support import machines


def test_pid_namespace_is_part_of_a_machine() -> None:
    """Two containers with one host name and one boot are two machines; an earlier version wrote no namespace."""
    here = machines.machine()
    assert machines.is_here(here)
    assert machines.is_here(here._replace(pid_namespace=""))
    for name in here._fields:
        assert not machines.is_here(here._replace(**{name: "other"}))
    assert here.pid_namespace == str(os.stat("/proc/self/ns/pid").st_ino)


def test_machine_without_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As macOS: host name and boot are all there is, and what was written in a container is of elsewhere."""
    in_container = machines.machine()

    def missing(path: str) -> os.stat_result:
        raise FileNotFoundError(path)

    monkeypatch.setattr(machines.os, "stat", missing)
    assert machines.is_here(machines.machine())
    assert not machines.is_here(in_container)
