"""Programs in forks of a process that has already imported what they need.

Most of the time of a test that starts a training script is torch's import. :func:`run` and :class:`Program` start a
program as ``subprocess`` does, but in a fork of a process that has imported vendors' packages before and nothing of
ours: the package itself, the program and its environment are loaded anew in each fork. What a real start of Python
decides (how the interpreter is found, what lies on its command line) is not tested with it.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import math
import os
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

PACKAGE = (
    "csv", "email.message", "hashlib", "importlib.metadata", "importlib.resources", "kconfiglib", "logging", "msgspec",
    "psutil", "rich.console", "sqlite3", "typer", "zipfile",
)  # fmt: skip
"""What the package imports in most processes."""
TORCH = (*PACKAGE, "numpy", "torch", "torch._dynamo", "torch.distributed.fsdp")
"""What training scripts import."""
VENDORS = {
    "mlflow": ("mlflow", "mlflow.store.tracking.sqlalchemy_store"),
    "tensorboard": ("tensorboard.compat.proto.event_pb2", "tensorboard.plugins.hparams.plugin_data_pb2"),
    "trackio": ("trackio", "trackio.sqlite_storage"),
    "wandb": ("wandb", "requests", "wandb.apis.public"),
}
"""What deliveries to a tracker import besides."""
MLFLOW_SERVER = ("fastapi", "uvicorn.protocols.http.auto", *VENDORS["mlflow"], "mlflow.server.handlers")
"""What an MLflow server imports."""
_FRESH = ("trackio",)
"""Packages that read the environment as they are imported: forks import them again, but not what they need."""
_ELASTIC = {
    "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default", "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "forked", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip
_NUMBER = struct.Struct("!i")


def run(
    words: Sequence[str],
    *,
    preload: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float,
    stdout: IO[Any] | None = None,
    ranks: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end, as ``subprocess.run`` would.

    Args:
        words: ``[sys.executable, "script.py" | "-m", "module" | "-c", "code", *arguments]``.
        preload: modules that the parent of all programs with the same ``preload`` has imported.
        timeout: seconds, after which the program is killed and TimeoutExpired raised.
        stdout: a file for both outputs; None: both are returned.
        ranks: above 0: so many processes, with the variables that torchrun gives them; ``preload`` has torch.

    Returns:
        With the exit code, or minus the number of the signal that ended it, and the outputs.
    """
    with contextlib.ExitStack() as stack:
        out, err = (stdout or stack.enter_context(tempfile.TemporaryFile()) for _ in range(2))
        program = Program(words, preload=preload, env=env, cwd=cwd, stdout=out, stderr=err, ranks=ranks)
        try:
            code = program.wait(timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait(60.0)
            raise
        said = ["", ""]
        if stdout is None:
            for number, file in enumerate((out, err)):
                file.seek(0)
                said[number] = file.read().decode()
    return subprocess.CompletedProcess(list(words), code, *said)


def parent_pid(preload: Sequence[str]) -> int:
    """The process whose forks the programs are."""
    return _parent(tuple(preload)).pid


class Program:
    """A program that runs, with what tests use of ``subprocess.Popen``; arguments as for :func:`run`.

    Attributes:
        stdout: what can be read of the program where ``stdout`` is PIPE.
    """

    def __init__(
        self,
        words: Sequence[str],
        *,
        preload: Sequence[str],
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        stdout: int | IO[Any],
        stderr: IO[Any],
        start_new_session: bool = False,
        ranks: int = 0,
    ) -> None:
        self.args = list(words)
        self.returncode: int | None = None
        self.stdout: IO[bytes] | None = None
        job = {
            "words": self.args[1:], "env": dict(os.environ if env is None else env),
            "cwd": os.fspath(cwd or Path.cwd()), "ranks": ranks, "session": start_new_session,
        }  # fmt: skip
        status, theirs = os.pipe()
        self._status = os.fdopen(status, "rb", buffering=0)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, theirs)
            if isinstance(stdout, int):
                assert stdout == subprocess.PIPE
                ours, written = os.pipe()
                self.stdout = os.fdopen(ours, "rb")
                stack.callback(os.close, written)
            else:
                written = stdout.fileno()
            null = stack.enter_context(open(os.devnull, "rb"))
            _parent(tuple(preload)).start(job, [null.fileno(), written, stderr.fileno(), theirs])
        self.pid = self._number()

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0.0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended; TimeoutExpired after ``timeout`` seconds."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = self._number()
            self._status.close()
        return self.returncode

    def communicate(self, timeout: float | None = None) -> None:
        """Wait, and drop what it still prints."""
        if self.stdout is not None:
            until = math.inf if timeout is None else time.monotonic() + timeout
            while self.poll() is None and time.monotonic() < until:
                if self.stdout in select.select([self.stdout, self._status], [], [], 1.0)[0]:
                    os.read(self.stdout.fileno(), 65536)
            self.stdout.close()
            timeout = 0.0
        self.wait(timeout)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)

    def _number(self) -> int:
        said = self._status.read(4)
        if len(said) < 4:
            raise RuntimeError("the process that forks has died")
        return int(_NUMBER.unpack(said)[0])


class _Parent:
    """The process that forks, from this side."""

    def __init__(self, preload: Sequence[str]) -> None:
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno()), *preload]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}
            self._process = subprocess.Popen(
                command, env=environment, cwd="/", pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        self.pid = self._process.pid
        atexit.register(self._end)

    def start(self, job: Mapping[str, Any], descriptors: list[int]) -> None:
        text = json.dumps(job).encode("utf-8", "surrogatepass")
        with self._lock:
            socket.send_fds(self._socket, [_NUMBER.pack(len(text))], descriptors)
            self._socket.sendall(text)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait(10)


@functools.cache
def _parent(preload: tuple[str, ...]) -> _Parent:
    return _Parent(preload)


def _serve(number: int, preload: Sequence[str]) -> None:
    """Import, then fork for each job until nobody is there to send one; tell of each program's pid and exit code."""
    for name in preload:
        __import__(name)
    for name in [name for name in sys.modules if name.partition(".")[0] in _FRESH]:
        del sys.modules[name]
    running: dict[int, int] = {}
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with socket.socket(fileno=number) as line:
        while True:
            ready, _, _ = select.select([line, woken], [], [])
            if woken in ready:
                os.read(woken, 1000)
                for pid in list(running):
                    ended, how = os.waitpid(pid, os.WNOHANG)
                    if ended:
                        _tell(running.pop(pid), os.waitstatus_to_exitcode(how), last=True)
            if line not in ready:
                continue
            head, descriptors, _, _ = socket.recv_fds(line, _NUMBER.size, 4)
            if not head:
                return
            (left,) = _NUMBER.unpack(head)
            job = json.loads(line.recv(left, socket.MSG_WAITALL).decode("utf-8", "surrogatepass"))
            *streams, status = descriptors
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                line.close()
                for one in (woken, wake, status, *running.values()):
                    os.close(one)
                _become(job, streams)
            for stream in streams:
                os.close(stream)
            _tell(status, pid)
            running[pid] = status


def _tell(status: int, number: int, last: bool = False) -> None:
    with contextlib.suppress(BrokenPipeError):
        os.write(status, _NUMBER.pack(number))
    if last:
        os.close(status)


def _become(job: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Be the program of a job, to its end."""
    code = 1
    try:
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if job["session"]:
            os.setsid()
        os.chdir(job["cwd"])
        os.environ.clear()
        os.environ.update(job["env"])
        for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
            for library in Path(folder).glob("*.so*"):  # the loader read the variable when the parent started
                ctypes.CDLL(str(library))
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        if "wandb" in sys.modules:
            own = runpy.run_path(str(Path(__file__).parents[1] / "trackers/support/temporary_directories.py"))
            own["leave"]()
            own["make"]()
        code = _ranks(job["ranks"], job["words"]) if job["ranks"] else _program(job["words"])
    finally:
        _end(code)


def _ranks(count: int, words: list[str]) -> int:
    """Fork the ranks of a job and keep their store, as torchrun's agent does; 1 as soon as one fails."""
    pids, pipes = [], []
    for rank in range(count):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(theirs)
                for pipe in pipes:
                    os.close(pipe)
                with open(ours) as file:
                    port = file.read()
                os.environ.update({name: str(rank) for name in ("RANK", "LOCAL_RANK", "ROLE_RANK")})
                sizes = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")
                os.environ.update({name: str(count) for name in sizes}, MASTER_ADDR="localhost", MASTER_PORT=port)
                os.environ.update(_ELASTIC)
                code = _program(words)
            finally:
                _end(code)
        os.close(ours)
        pids.append(pid)
        pipes.append(theirs)
    import torch.distributed

    # Only now, since it starts threads.
    store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    for pipe in pipes:
        os.write(pipe, str(store.port).encode())
        os.close(pipe)
    while pids:
        pid, status = os.wait()
        if pid in pids:
            pids.remove(pid)
            if status:
                for other in pids:
                    os.kill(other, signal.SIGTERM)
                for other in pids:
                    os.waitpid(other, 0)
                return 1
    return 0


def _end(code: int) -> None:
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            file.flush()
    os._exit(code)


def _program(words: list[str]) -> int:
    """Do what Python does with its command line; the exit code."""
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    while words[0] == "-u":
        words, unbuffered = words[1:], True
    for file in (sys.stdout, sys.stderr):
        file.reconfigure(write_through=unbuffered)  # type: ignore[union-attr]
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*paths, *sys.path[1:]]  # without this file's directory
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    try:
        for path in paths:
            if (hook := Path(path) / "sitecustomize.py").exists():
                runpy.run_path(str(hook))
                break
        first = ""
        if words[0] == "-c":
            sys.argv, code = ["-c", *words[2:]], compile(words[1], "<string>", "exec")
        elif words[0] == "-m":
            _, spec, code = runpy._get_module_details(words[1])  # type: ignore[attr-defined]
            sys.argv, first = [spec.origin, *words[2:]], os.getcwd()
            main.__spec__, main.__file__, main.__package__ = spec, spec.origin, spec.parent
        else:
            sys.argv, first = list(words), os.path.dirname(os.path.abspath(words[0]))
            main.__file__, code = words[0], compile(Path(words[0]).read_bytes(), words[0], "exec")
        if not os.environ.get("PYTHONSAFEPATH"):
            sys.path.insert(0, first)
        exec(code, main.__dict__)
        ended = 0
    except SystemExit as exit:
        ended = exit.code if isinstance(exit.code, int) else exit.code is not None
        if exit.code is not None and not isinstance(exit.code, int):
            print(exit.code, file=sys.stderr)
    except BaseException:
        try:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        except BaseException:
            traceback.print_exc()
        ended = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return int(ended)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), sys.argv[2:])
