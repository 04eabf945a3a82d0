"""Waiting for descriptors, of whatever number."""

from __future__ import annotations

import os
import resource

from trackers.support.descriptors import readable


def test_descriptors_beyond_1024_can_be_waited_for() -> None:
    """A process with thousands of open files waits as any other: an end of a pipe is heard under a high number."""
    high = 2000
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= high:
        resource.setrlimit(resource.RLIMIT_NOFILE, (high + 100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    reader, writer = os.pipe()
    os.dup2(reader, high)
    try:
        assert not readable(high, 0.0)
        os.write(writer, b"x")
        assert readable(high, 10.0)
    finally:
        for number in (reader, writer, high):
            os.close(number)


def test_an_end_counts_as_readable() -> None:
    """A closed pipe is heard at once, not at the end of the time."""
    reader, writer = os.pipe()
    os.close(writer)
    assert readable(reader, 600.0)
    os.close(reader)
