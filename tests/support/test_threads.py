"""The threads' frames, while garbage waits: up to Python 3.11 the interpreter's own call may never end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading

import pytest

from trackers.support import threads

COLLECTS_IN_IT = """
import gc, os, sys, threading
from trackers.support.threads import frames

def garbage():
    for _ in range(20):
        local = threading.local()
        local.x = 1
        cycle = [local]
        cycle.append(cycle)

for n in range(60):
    event = threading.Event()
    waiting = [threading.Thread(target=event.wait, daemon=True) for _ in range(20)]
    for thread in waiting:
        thread.start()
    gc.disable()
    gc.collect()
    garbage()
    gc.set_threshold(gc.get_count()[0] + n % 20)  # reached as the frames of the new threads are made
    gc.enable()
    assert len(frames()) == 21
    gc.set_threshold(700)
    event.set()
    for thread in waiting:
        thread.join()
os._exit(0)
"""


def test_garbage_is_no_reason_to_wait_for_ever() -> None:
    """Locals of threads among the garbage: what frees them asks for the lock that the call holds."""
    subprocess.run([sys.executable, "-c", COLLECTS_IN_IT], check=True, timeout=60)


@pytest.mark.parametrize("collects", [True, False])
def test_what_collects_goes_on(collects: bool) -> None:
    """Garbage is collected afterwards where it was before, after two calls at once, too."""
    (gc.enable if collects else gc.disable)()
    try:
        calls = [threading.Thread(target=lambda: [threads.frames() for _ in range(200)]) for _ in range(4)]
        for call in calls:
            call.start()
        for call in calls:
            call.join()
        assert gc.isenabled() is collects
        assert threading.get_ident() in threads.frames()
    finally:
        gc.enable()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_child_that_is_forked_amid_a_call() -> None:
    """The lock is free in it, and it collects."""
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            threads.frames()

    caller = threading.Thread(target=call)
    caller.start()
    try:
        for _ in range(20):
            child = os.fork()
            if not child:
                os._exit(0 if threads.frames() and gc.isenabled() else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        over.set()
        caller.join()
