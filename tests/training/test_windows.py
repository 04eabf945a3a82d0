"""Python without what it lacks on Windows: modules, signals, flags and calls of POSIX are taken away from it here.

What a real Windows does otherwise (paths with drives, files that are open and can't be replaced) nobody has tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT
from tests.stores import read_json, read_tensorboard
from trackers.journal.run_directory import RunDirectory

MODULES = "fcntl grp pty pwd resource syslog termios tty"
CALLS = """
    O_CLOEXEC O_DIRECTORY O_NOFOLLOW O_NONBLOCK P_ALL P_PIDFD SCHED_BATCH SCHED_OTHER WNOHANG WNOWAIT chown confstr
    copy_file_range eventfd fchmod fdatasync fork forkpty getegid geteuid getgid getgroups getloadavg getpgid getpgrp
    getpriority getresuid getuid killpg lchown lockf memfd_create mkfifo mknod nice openpty pidfd_open pipe2
    posix_fadvise posix_fallocate posix_spawn pread preadv pwrite pwritev readv register_at_fork sched_getaffinity
    sched_getscheduler sched_param sched_setaffinity sched_setscheduler sendfile set_blocking setpriority setsid statvfs
    sync sysconf ttyname wait wait3 wait4 waitid writev
"""
SIGNALS = """
    SIGALRM SIGCHLD SIGCONT SIGHUP SIGIO SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2
    SIGWINCH SIGXCPU SIGXFSZ SIG_BLOCK SIG_SETMASK SIG_UNBLOCK alarm getitimer pause pidfd_send_signal pthread_kill
    pthread_sigmask setitimer siginterrupt sigpending sigtimedwait sigwait sigwaitinfo
"""
SCRIPT = f"""
import asyncio, ctypes, http.client, importlib.metadata, multiprocessing, os, platform, shutil, signal, subprocess, sys
import tempfile, urllib.request, uuid, zipfile  # Python's own modules begin as they do here
for module, names in ((os, {CALLS!r}), (signal, {SIGNALS!r})):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.modules.update(dict.fromkeys({MODULES!r}.split()))
import trackers
run = trackers.init("json,tensorboard", project="p", name="n", id="r", config={{"lr": 0.5}})
for step in range(5):
    run.log({{"loss": 1 / (step + 1)}}, step=step)
run.log({{"final/best": 0.2}})
run.finish()
from trackers.cli.app import app
for words in (["ls"], ["show", "runs/p/r"], ["best", "runs/p", "--metric", "loss"]):
    try:
        app(words)
    except SystemExit as ended:
        assert not ended.code, words
"""


@pytest.mark.processes
def test_run_is_recorded_and_delivered_without_what_windows_lacks(tmp_path: Path) -> None:
    """Nothing can be started beside training: the trackers run inside it. Every value is in both, and can be read."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    run = RunDirectory(Path("runs/p/r"))
    values = [(step, 1 / (step + 1)) for step in range(5)]
    for read in (read_json, read_tensorboard):
        found = read(run.read_info())
        assert [(one.step, one.value) for one in found.metrics["loss"]] == [(s, pytest.approx(v)) for s, v in values]
