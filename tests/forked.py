"""Programs in forks of a process that has already imported what they need.

Most of the time of a test that starts a training script is torch's import. :func:`run` and :class:`Program` start a
program as ``subprocess`` does, but in a fork of a process that has imported vendors' packages and ours before: the
program and its environment are loaded anew in each fork, and what was imported before is in ``sys.modules`` only once
the program imports it. What a program starts with ``subprocess``, another Python or a
relay, is a fork, too; so are the deliveries of such a relay, as they are with a host agent. :func:`commands` gives
shells a ``python`` and a ``trackers`` that are forks; :class:`Helper` stands for ``subprocess.Popen`` where the package
starts relays; the workers of a test run are forks, too (``tests/conftest.py``).

What a real start of Python decides (how the interpreter is found, what lies on its command line) is not tested with it.
One process forks for all workers of a test run.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import hashlib
import importlib
import importlib.abc
import importlib.util
import io
import json
import marshal
import os
import pkgutil
import random
import runpy
import select
import shutil
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
import uuid
import weakref
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
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
    "wandb": ("wandb", "requests", "wandb.apis.public", "wandb.cli.cli"),
}
"""What deliveries to a tracker import besides."""
HELPERS = (*PACKAGE, *(name for names in VENDORS.values() for name in names))
"""What relays and deliveries import."""
ALL = (
    *TORCH, *HELPERS, "pandas", "pyarrow.parquet", "duckdb", "matplotlib.pyplot", "sklearn.datasets", "accelerate",
    "lightgbm", "optuna", "PIL.Image", "pytorch_lightning", "requests", "scipy.stats", "sklearn.ensemble",
    "stable_baselines3", "transformers", "transformers.models.gpt2.modeling_gpt2", "transformers.trainer", "xgboost",
)  # fmt: skip
"""What scripts, commands, deliveries and the workers of a test run import, in one process."""
LIGHT = (*PACKAGE, "numpy", "pandas", "pyarrow.parquet", "duckdb", "hypothesis", "PIL.Image")
"""What the workers of a test run import that leaves out what is heavy."""
MLFLOW_SERVER = ("fastapi", "uvicorn.protocols.http.auto", *VENDORS["mlflow"], "mlflow.server.handlers")
"""What an MLflow server imports."""
_FRESH = ("trackio", "stable_baselines3", "torch.utils.tensorboard", "tensorboard.summary.writer")
"""Packages that forks import again, but not what they need: trackio reads the environment as it is imported, and what
``sync_tensorboard`` wraps must be seen to be imported, or be what those have that use it."""
_ASIDE = ("anyio", "matplotlib", "mlflow", "pandas", "polars", "tensorboard", "torch", "tqdm", "wandb")
"""Packages that a fork hasn't imported before it imports them: ours look for some of them."""
_ANEW = (
    "trackers.__main__", "trackers.training.init", "trackers.training.console_capture", "trackers.as_wandb",
    "trackers.frameworks", "trackers.testing",
)  # fmt: skip
"""Our modules that forks run anew, with all below them: they have state of their process, or replace others."""
_ELASTIC = {
    "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_NAME": "default", "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "forked", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip
_AT_EXIT = ("filelock", "logging", "mlflow", "multiprocessing", "pyarrow", "tempfile", "wandb", "weakref")
"""Packages whose functions a fork calls as it ends: what others registered touches a third of all that a fork does."""
_NUMBER = struct.Struct("!i")
_START_S = 2.0
"""How often a process that forks looks whether who started it is still there, before the first test process comes."""
_ANSWER_S = 5
"""How long it waits for the job of who has asked, at most."""
_LOW = 200
"""Descriptors below are for programs; libraries that are imported before get higher ones."""
_LARGE = 1 << 21
_ROOM = "_TRACKERS_TEST_ROOM"
_ROOM_BYTES = 16384
"""A variable and an argument of the process that forks, of that length: in their memory forks show their own."""
_STAGE = "=stage"
_RELAY = "from trackers.relay.worker import main\n"
_PARENT = ["/bin/sh", "-c", '"$@" &', "sh"]
"""What starts a helper that is no child of training, and ends."""
_LIGHT_TRACKERS = ("console", "csv", "json")
"""Trackers whose deliveries load no vendor's package."""
_COMMAND = """#!{python} -IS
import marshal, os, _signal, _socket
import sys
words = {words} + sys.argv[1:]
if not words or words[0][0] == "-" and words[0] not in ("-", "-c", "-m", "-u"):
    os.execv({python!r}, [{python!r}, *words])
line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
line.connect({address!r})
umask = os.umask(0)
os.umask(umask)
job = marshal.dumps(dict(words=words, env=dict(os.environb), cwd=os.getcwdb(), umask=umask, fds=[],
                         parent=os.getpid()))
line.sendmsg([len(job).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, bytes().join(
    fd.to_bytes(4, sys.byteorder) for fd in range(3)))])
left = memoryview(job)
while left:
    left = left[line.send(left):]
pid = int.from_bytes(line.recv(4), "big")
for name in ("SIGTERM", "SIGINT", "SIGHUP"):
    _signal.signal(getattr(_signal, name), lambda number, _: os.kill(pid, number))
code = int.from_bytes(line.recv(4) or b"\\0\\0\\0\\1", "big", signed=True)
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL) if -code not in (9, 19) else None
    os.kill(os.getpid(), -code)
os._exit(code)
"""


def run(
    words: Sequence[str],
    *,
    preload: Sequence[str] = ALL,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    timeout: float = 150.0,
    input: str | None = None,
    stdout: IO[Any] | None = None,
    merged: bool = False,
    check: bool = False,
    ranks: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end, as ``subprocess.run`` would.

    Args:
        words: ``[sys.executable, "script.py" | "-m", "module" | "-c", "code", *arguments]``.
        preload: modules that the parent of all programs with the same ``preload`` has imported.
        timeout: seconds, after which the program is killed and TimeoutExpired raised.
        input: what it can read.
        stdout: a file for both outputs; None: both are returned.
        merged: return both outputs as one.
        check: CalledProcessError, unless its exit code is 0.
        ranks: above 0: so many processes, with the variables that torchrun gives them; ``preload`` has torch.

    Returns:
        With the exit code, or minus the number of the signal that ended it, and the outputs.
    """
    with contextlib.ExitStack() as stack:
        out, err, given = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write((input or "").encode())
        given.seek(0)
        streams = (stdout or out, stdout or (out if merged else err))
        program = Program(
            words, preload=preload, env=env, cwd=cwd, stdin=given, stdout=streams[0], stderr=streams[1], ranks=ranks
        )
        try:
            code = program.wait(timeout)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait(60.0)
            raise
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    done = subprocess.CompletedProcess(list(words), code, *said)
    if check:
        done.check_returncode()
    return done


def begin(first: Sequence[str], *others: Sequence[str]) -> None:
    """Have processes that fork programs import, while this one does something else.

    Args:
        first: what the first imports.
        others: what others import. The second is a fork of the first, those after it are forks of the second, as most
            of the time goes into what all import.
    """
    stages = [(_address(preload), preload) for preload in (first, *others)]
    _begun.append(_start(*stages))


_begun: list[subprocess.Popen[bytes]] = []


def commands(preload: Sequence[str] = ALL) -> str:
    """A directory for the front of PATH, whose ``python``, ``trackers`` and ``torchrun`` are forks."""
    parent = _parent(_served(tuple(preload)))
    folder = Path(f"{parent.address}.bin")
    folder.mkdir(exist_ok=True)
    programs = {name: [str(Path(sys.executable).with_name(name))] for name in ("trackers", "torchrun")}
    for name, words in {"python": [], "python3": [], **programs}.items():
        if not (folder / name).exists():
            fresh = folder / f".{name}-{os.getpid()}"
            fresh.write_text(_COMMAND.format(python=sys.executable, address=parent.address, words=words))
            fresh.chmod(0o755)
            fresh.rename(folder / name)
    return str(folder)


class _Forked(subprocess.Popen[Any]):
    """A ``Popen`` whose process is a fork, where it is to be a Python with a program."""

    _address = ""
    _helpers = ""
    _ranks = 0
    _forks = True
    _line: socket.socket | None = None

    def _execute_child(
        self,
        args: Any,
        executable: Any,
        preexec_fn: Any,
        close_fds: bool,
        pass_fds: Sequence[int],
        cwd: Any,
        env: Mapping[str, str] | None,
        startupinfo: Any,
        creationflags: int,
        shell: bool,
        p2cread: int,
        p2cwrite: int,
        c2pread: int,
        c2pwrite: int,
        errread: int,
        errwrite: int,
        *rest: Any,
    ) -> None:
        streams = (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        _, *account, session = rest[:6]
        detached = isinstance(args, list) and args[: len(_PARENT)] == _PARENT
        args = args[len(_PARENT) :] if detached else args
        special = executable is not None or preexec_fn is not None or shell or not close_fds
        if special or account != [None, None, None, -1] or rest[6:] not in ((), (-1,)) or not _can_be_forked(args):
            super()._execute_child(  # type: ignore[misc]
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo, creationflags, shell,
                *streams, *rest,
            )  # fmt: skip
            return
        umask = os.umask(0o077)
        os.umask(umask)
        job = {
            "words": [os.fsencode(word) for word in args[1:]],
            "env": {
                os.fsencode(name): os.fsencode(value)
                for name, value in (os.environ if env is None else env).items()
            },
            "cwd": os.fsencode(os.getcwd() if cwd is None else cwd),
            "ranks": self._ranks, "forks": self._forks, "session": bool(session), "umask": umask, "fds": list(pass_fds),
            "parent": os.getpid(),
        }  # fmt: skip
        text = marshal.dumps(job)
        given = [0 if p2cread < 0 else p2cread, 1 if c2pwrite < 0 else c2pwrite, 2 if errwrite < 0 else errwrite]
        line = self._connected(args)
        socket.send_fds(line, [_NUMBER.pack(len(text))], [*given, *pass_fds])
        line.sendall(text)
        self._close_pipe_fds(*streams)  # type: ignore[attr-defined]
        self._line = line
        self.pid = self._number()
        self._child_created = True
        if detached:  # the shell that started it has ended
            self.returncode = 0
            line.close()

    def _connected(self, words: Sequence[Any]) -> socket.socket:
        """A line to the process that forks. That for relays has imported vendors' clients and nothing larger, or not
        even these: its forks cost half, or a quarter.
        """
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        addresses = []
        if self._helpers and len(words) > 2 and _RELAY in os.fsdecode(words[2]):
            addresses = [*([_address(PACKAGE)] if _is_light(words[3:]) else []), self._helpers]
        for address in addresses:
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):  # a test run of one process has none
                line.connect(address)
                return line
        line.connect(self._address)
        return line

    def _internal_poll(self, *rest: Any, **more: Any) -> int | None:
        if self._line is None:
            return super()._internal_poll(*rest, **more)  # type: ignore[misc,no-any-return]
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._wait(0.0)
        return None

    def _wait(self, timeout: float | None) -> int:
        if self._line is None:
            return super()._wait(timeout)  # type: ignore[misc,no-any-return]
        if self.returncode is None:
            poll = select.poll()
            poll.register(self._line, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            self.returncode = self._number()
            self._line.close()
        return self.returncode

    def _number(self) -> int:
        assert self._line is not None
        said = self._line.recv(_NUMBER.size, socket.MSG_WAITALL)
        if len(said) < _NUMBER.size:
            raise RuntimeError("the process that forks has died")
        return int(_NUMBER.unpack(said)[0])


def _can_be_forked(words: Any) -> bool:
    """Whether a command line is that of a Python with a program."""
    if not isinstance(words, (list, tuple)) or len(words) < 2 or words[0] != sys.executable:
        return False
    what = os.fsdecode(words[1])
    return what in ("-c", "-m", "-u") or not what.startswith("-")


def _is_light(arguments: Sequence[Any]) -> bool:
    """Whether a helper with these arguments loads no vendor's package."""
    role, _, *rest = map(os.fsdecode, (*arguments, "", ""))
    if role == "relay":
        return set(json.loads(rest[0])["trackers"]) <= set(_LIGHT_TRACKERS)
    return role == "code" or (role == "delivery" and rest[0] in _LIGHT_TRACKERS)


class Program(_Forked):
    """A program that runs. Arguments as for :func:`run` and ``subprocess.Popen``, whose methods it has.

    Args:
        forks: whether what it starts with ``subprocess`` is a fork, too.
    """

    def __init__(
        self, words: Sequence[str], *, preload: Sequence[str] = ALL, ranks: int = 0, forks: bool = True, **more: Any
    ) -> None:
        self._address = _parent(_served(tuple(preload))).address
        self._ranks = ranks
        self._forks = forks
        super().__init__(list(words), **{"stdin": subprocess.DEVNULL, **more})


class Helper(_Forked):
    """A helper or a program with what relays and deliveries import, by the arguments of ``subprocess.Popen``."""

    def __init__(self, words: Sequence[str], **more: Any) -> None:
        self._address = self._helpers = _parent(HELPERS).address
        if os.path.exists(_address(PACKAGE)):
            _parent(PACKAGE)  # it stays as long as this process
        super().__init__(words, **more)


SUBPROCESS = types.SimpleNamespace(**{**vars(subprocess), "Popen": Helper})
"""In the place of a module's ``subprocess``: the helpers and programs that it starts are forks."""


def _address(preload: Sequence[str]) -> str:
    words = [sys.executable, sys.version, __file__, *preload]
    return str(_folder() / hashlib.sha256("\0".join(words).encode()).hexdigest()[:12])


def _served(preload: tuple[str, ...]) -> tuple[str, ...]:
    """What is imported by the process that is asked: one that is there and has more spares a start of seconds."""
    if not set(preload) <= set(PACKAGE):
        for more in (HELPERS, ALL):
            if set(preload) <= set(more) and os.path.exists(_address(more)):
                return more
    return preload


def _start(*stages: tuple[str, Sequence[str]]) -> subprocess.Popen[bytes]:
    room = "=" * _ROOM_BYTES
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": "", _ROOM: room}
    env.pop("PYTEST_XDIST_WORKER", None)  # it is no worker's own: what such a one started is killed with it
    words = [word for address, preload in stages for word in (_STAGE, address, *preload)]
    return subprocess.Popen(
        [sys.executable, __file__, *words, room],
        env=env, cwd="/", start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip


class _Parent:
    """The process that forks, from this side.

    Attributes:
        address: of its socket.
    """

    def __init__(self, preload: Sequence[str]) -> None:
        self.address = _address(preload)
        self._process: subprocess.Popen[bytes] | None = None
        while True:
            self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                self._line.connect(self.address)
                self._line.sendall(_NUMBER.pack(0))
                said = self._line.recv(_NUMBER.size)
            except (FileNotFoundError, ConnectionError):
                said = b""
            if said:
                break
            self._line.close()
            if self._process is not None and self._process.poll():
                raise RuntimeError(
                    f"the process that is to import {', '.join(preload)} ended by {self._process.poll()}"
                )
            if self._process is None or self._process.poll() is not None:
                self._process = _start((self.address, preload))
            time.sleep(0.01)
        atexit.register(self._end)

    def _end(self) -> None:
        self._line.close()
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):  # other workers of the test run may use it still
                self._process.wait(1)
            self._process.returncode = self._process.returncode or 0
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(self.address))


@functools.cache
def _parent(preload: tuple[str, ...]) -> _Parent:
    return _Parent(preload)


def _folder() -> Path:
    """Where the processes that fork for a test run listen: a directory of this user's."""
    name = os.environ.setdefault("PYTEST_XDIST_TESTRUNUID", uuid.uuid4().hex)
    folder = Path(tempfile.gettempdir(), f"trackers-tests-{os.getuid()}-{name[:12]}")
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    assert folder.stat().st_uid == os.getuid(), f"{folder} is somebody else's"
    return folder


def _serve(stages: Sequence[Sequence[str]]) -> None:
    """Import, then fork for each job until no test process is there; tell of each program's pid and exit code.

    Args:
        stages: address and modules, for this process, for a fork of it, and for forks of that one.
    """
    (address, *preload), *more = stages
    door = _door(address)
    if door is None:  # another worker was faster
        return
    others = [(stage, its) for stage in more if (its := _door(stage[0]))]
    try:
        starter = os.getppid()
        null = os.open(os.devnull, os.O_RDONLY)
        low = [null]
        while low[-1] < _LOW:
            low.append(os.dup(null))
        own = set(map(int, os.listdir("/proc/self/fd"))) if sys.platform == "linux" else set()
        atexit.register = _register_of_few
        _import(preload)
        for forks in (others[:1], others[1:]):
            for stage, its in forks:
                if os.fork() == 0:
                    door.close()
                    (address, *preload), door, starter = stage, its, os.getppid()
                    _import(preload)
                    break
            else:  # the forks go on with what is left
                break
        for _, its in others:
            if its is not door:
                its.close()
        atexit.register = _register
        subprocess.Popen = type("Popen", (_Forked,), {"_address": address, "_helpers": _address(HELPERS)})  # type: ignore
        if sys.platform == "linux":
            _kept.update(set(map(int, os.listdir("/proc/self/fd"))) - own)
        for number in low:
            os.close(number)
        for name in [name for name in sys.modules if f"{name}.".startswith(tuple(f"{one}." for one in _FRESH))]:
            del sys.modules[name]
        _prepare_mlflow()
        _prepare_wandb()
        _directories.update(
            runpy.run_path(str(Path(__file__).parents[1] / "trackers/support/temporary_directories.py"))
        )
        _directories["leave"]()
        ours = _import_ours() if PACKAGE[0] in preload else {}
        _Imported(_ASIDE)
        if ours:
            _ours.append(_Ours(ours))
        for finalizer in weakref.finalize._registry.values():  # type: ignore[attr-defined]
            finalizer.atexit = False  # what was made here isn't for forks to remove
        gc.collect()
        _join_pages()
        gc.freeze()  # a collection would write to all that was imported, and forks would copy it
        _Server(door, starter).serve()
    finally:
        os.unlink(address)
        shutil.rmtree(f"{address}.bin", ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(address))


def _door(address: str) -> socket.socket | None:
    """A socket that listens; None if another process's does."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.bind(address)
    except OSError:
        door.close()
        return None
    door.listen(128)
    return door


def _import(preload: Iterable[str]) -> None:
    for name in preload:
        if importlib.util.find_spec(name.partition(".")[0]):  # not every environment has all packages
            __import__(name)


def _register_of_few(function: Any, *arguments: Any, **more: Any) -> Any:
    """``atexit.register`` while packages are imported."""
    if (getattr(function, "__module__", None) or "").partition(".")[0] in _AT_EXIT:
        _register(function, *arguments, **more)
    return function


_register = atexit.register
_popen = subprocess.Popen
_kept: set[int] = set()
"""Descriptors of what was imported."""


def _prepare_mlflow() -> None:
    """Have MLflow make the tables of a SQLite database once, for all forks."""
    utils: Any = sys.modules.get("mlflow.store.db.utils")
    if utils is None:
        return
    initialize = importlib.import_module("mlflow_tables").initialize
    utils._initialize_tables = functools.partial(initialize, utils._initialize_tables)
    import sqlalchemy.orm

    with tempfile.TemporaryDirectory() as folder:
        engine = sqlalchemy.create_engine(f"sqlite:///{folder}/tables.db")
        utils._initialize_tables(engine)
        engine.dispose()
    latest = getattr(utils, "_get_latest_schema_revision", None)
    if latest is not None:  # read from fifty modules, for each store that is opened
        utils._get_latest_schema_revision = functools.partial(str, latest())
    sqlalchemy.orm.configure_mappers()


def _prepare_wandb() -> None:
    """Have W&B's client list the installed packages once: to read what each says of itself is most of a start."""
    util: Any = sys.modules.get("wandb.util")
    if util is not None and hasattr(util, "working_set"):
        util.working_set = functools.partial(tuple, list(util.working_set()))


def _join_pages() -> None:
    """Make large pages of this process's memory, where the system has them: a fork costs a third."""
    with contextlib.suppress(OSError, AttributeError):
        madvise = ctypes.CDLL(None).madvise
        madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        for line in Path("/proc/self/maps").read_text().splitlines():
            place, how, _, device, *rest = line.split()
            start, end = (int(part, 16) for part in place.split("-"))
            start, end = -(-start // _LARGE) * _LARGE, end // _LARGE * _LARGE
            if how.startswith("rw") and device == "00:00" and rest[1:] in ([], ["[heap]"]) and end > start:
                madvise(start, end - start, 14)
                madvise(start, end - start, 25)


def _import_ours() -> dict[str, types.ModuleType]:
    """Our modules, but for those that forks run anew and those that hold parts of these; ``sys.modules`` has none."""
    import trackers
    from trackers.configuration.kconfig import declared

    declared()  # parsed once
    for _, name, _ in pkgutil.walk_packages(trackers.__path__, "trackers."):
        if not name.startswith(_ANEW):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    found = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("trackers")}
    for name in found:
        package, _, last = name.rpartition(".")
        if package and isinstance(vars(found[package]).get(last), types.ModuleType):
            delattr(found[package], last)  # to have it is to have been imported
    anew = {name for name in found if name == "trackers" or name.startswith(_ANEW)}
    while more := {name for name, module in found.items() if name not in anew and _needs(module) & anew}:
        anew |= more
    return {name: module for name, module in found.items() if name not in anew}


def _needs(module: types.ModuleType) -> set[str]:
    """The modules of which a module has parts."""
    values = [value for name, value in vars(module).items() if not name.startswith("__")]
    return {value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None) or ""
            for value in values}  # fmt: skip


_ours: list[_Ours] = []
"""What gives our modules back, once they are imported."""
_directories: dict[str, Any] = {}
"""What keeps the temporary directories of forks apart."""


class _Server:
    def __init__(self, door: socket.socket, starter: int) -> None:
        self._door = door
        self._starter = starter
        self._present: set[socket.socket] = set()
        self._running: dict[int, socket.socket] = {}

    def serve(self) -> None:
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        seen = False
        while self._present or not seen:
            watched: list[socket.socket | int] = [self._door, woken, *self._present]
            ready, _, _ = select.select(watched, [], [], None if seen else _START_S)
            if not ready and os.getppid() != self._starter:
                return
            if woken in ready:
                os.read(woken, 1000)
                self._reap()
            for line in self._present.intersection(ready):
                self._present.remove(line)
                line.close()
            if self._door in ready:
                self._answer(self._door.accept()[0], (woken, wake))
            seen = seen or bool(self._present)

    def _reap(self) -> None:
        for pid in list(self._running):
            ended, how = os.waitpid(pid, os.WNOHANG)
            if ended:
                line = self._running.pop(pid)
                with contextlib.suppress(OSError):
                    line.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(how)))
                line.close()

    def _answer(self, line: socket.socket, others: tuple[int, int]) -> None:
        descriptors: list[int] = []
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", _ANSWER_S, 0))
        try:
            head, descriptors, _, _ = socket.recv_fds(line, _NUMBER.size, 16)
            (left,) = _NUMBER.unpack(head)
            if not left:
                line.sendall(_NUMBER.pack(os.getpid()))
                self._present.add(line)
                return
            job = marshal.loads(line.recv(left, socket.MSG_WAITALL))
        except (OSError, struct.error, EOFError, ValueError, TypeError):  # who asked was killed or stopped meanwhile
            for descriptor in descriptors:
                os.close(descriptor)
            line.close()
            return
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in (self._door, line, *self._present, *self._running.values()):
                one.close()
            for number in others:
                os.close(number)
            _become(job, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            line.sendall(_NUMBER.pack(pid))
        self._running[pid] = line


def _become(job: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Be the program of a job, to its end."""
    code = 1
    try:
        import fcntl

        above = max((2, *job["fds"])) + 1
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, above) for descriptor in descriptors]
        for descriptor in descriptors:
            os.close(descriptor)
        for number, descriptor in zip((0, 1, 2, *job["fds"]), high, strict=True):
            os.dup2(descriptor, number)
            os.close(descriptor)
        if job.get("session"):
            os.setsid()
        if not job.get("forks", True):
            subprocess.Popen = _popen  # type: ignore[misc]
            sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in _ours]
        os.umask(job["umask"])
        os.chdir(job["cwd"])
        real, os.getppid = os.getppid, functools.partial(_living, job["parent"])
        os.register_at_fork(after_in_child=lambda: setattr(os, "getppid", real))
        words = [os.fsdecode(word) for word in job["words"]]
        os.environ.clear()
        os.environb.update(job["env"])
        _show([sys.executable, *words], job["env"])
        time.tzset()
        tempfile.tempdir = None
        for folder in filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
            for library in Path(folder).glob("*.so*"):  # the loader read the variable when the parent started
                ctypes.CDLL(str(library))
        with contextlib.suppress(AttributeError):  # at the end what was registered since is done, and nothing else
            libc = ctypes.CDLL(None)
            libc.on_exit(libc._exit, None)
        random.seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        _directories["make"]()
        for ours in _ours:
            ours.arm()
        code = _ranks(ranks, words) if (ranks := job.get("ranks")) else _program(words)
    finally:
        if not job.get("forks", True):  # a worker of a test run: vendors' threads that tests started are in it
            os._exit(code)
        _end(code)


def _living(pid: int) -> int:
    """The process that has started this one, or 1 once it has ended."""
    try:
        os.kill(pid, 0)
    except OSError:
        return 1
    return pid


def _show(words: Sequence[str], env: Mapping[bytes, bytes]) -> None:
    """Have the system show a fork's own command line and environment, as far as there is room."""
    with contextlib.suppress(OSError, ValueError):
        text = Path("/proc/self/stat").read_text()
        first, last, env_first, env_last = map(int, text[text.rindex(")") + 2 :].split()[45:49])
        variables = [name + b"=" + value for name, value in env.items()]
        variables.sort(key=lambda one: not one.startswith(b"TRACKER"))
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            for start, end, parts in ((first, last, list(map(os.fsencode, words))), (env_first, env_last, variables)):
                memory.seek(start)
                memory.write((b"\0".join(parts) + b"\0")[: end - start - 1].ljust(end - start, b"\0"))


def _ranks(count: int, words: list[str]) -> int:
    """Fork the ranks of a job and keep their store, as torchrun's agent does; 1 as soon as one fails."""
    pids: list[int] = []
    pipes: list[int] = []
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


class _Imported(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Takes packages from ``sys.modules``, and gives them back as they are imported."""

    def __init__(self, packages: Iterable[str]) -> None:
        self._packages: dict[str, dict[str, types.ModuleType]] = {name: {} for name in packages if name in sys.modules}
        for name in list(sys.modules):
            if (package := name.partition(".")[0]) in self._packages:
                self._packages[package][name] = sys.modules.pop(name)
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._packages:
            return None
        found = self._packages[name][name].__spec__
        assert found is not None
        spec = ModuleSpec(name, self, origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        spec.has_location = found.has_location
        return spec

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        modules = self._packages.pop(spec.name)
        sys.modules.update(modules)
        self._spec = modules[spec.name].__spec__
        return modules[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._spec


class _Ours(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Gives our modules back as they or others that have parts of them are imported, unless another place has them."""

    def __init__(self, modules: Mapping[str, types.ModuleType]) -> None:
        self._modules = modules
        self._specs = {name: module.__spec__ for name, module in modules.items()}
        self._needs = {name: sorted(_needs(module) & modules.keys()) for name, module in modules.items()}
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        own = self._specs.get(name)
        if own is None:
            return None
        found = PathFinder.find_spec(name, path, target)
        if found is not None and found.origin == own.origin:
            found.loader = self
        return found

    def create_module(self, spec: ModuleSpec) -> types.ModuleType:
        return self._modules[spec.name]

    def exec_module(self, module: types.ModuleType) -> None:
        module.__spec__ = self._specs[module.__name__]
        waiting = list(self._needs[module.__name__])
        while waiting:
            name = waiting.pop()
            if name not in sys.modules:
                package, _, last = name.rpartition(".")
                sys.modules[name] = self._modules[name]
                waiting += [*self._needs[name], *([package] if package in self._modules else ())]
                setattr(self._modules.get(package, sys.modules["trackers"]), last, self._modules[name])

    def get_source(self, fullname: str) -> str:
        return Path(self._modules[fullname].__file__ or "").read_text()

    def arm(self) -> None:
        """Have the modules' points of failure do what the environment says, as they do when they are imported."""
        if "TRACKERS_FAILPOINT" in os.environ:
            self._modules["trackers.support.failpoints"].arm(os.environ["TRACKERS_FAILPOINT"])

    def forget_options(self) -> None:
        """Have options declared anew: with plug-ins that the parent of all forks hasn't seen."""
        kconfig = self._modules["trackers.configuration.kconfig"]
        kconfig.declared.cache_clear()
        kconfig._unused.clear()
        for found in ("fragments", "undeclared"):
            getattr(self._modules["trackers.configuration.plugin_options"], found).cache_clear()


def _end(code: int) -> None:
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            file.flush()
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).exit(code)
    os._exit(code)


def _program(words: list[str]) -> int:
    """Do what Python does with its command line; the exit code."""
    sys.orig_argv[:] = [sys.executable, *words]
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    while words[0] == "-u":
        words, unbuffered = words[1:], True
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        raw = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115 - to the end of the program
        how: dict[str, Any] = {"errors": "backslashreplace"} if name == "stderr" else {}
        how |= {"line_buffering": name == "stderr" or raw.isatty(), "write_through": unbuffered}
        setattr(sys, name, io.TextIOWrapper(raw, encoding="utf-8", **how))
        setattr(sys, f"__{name}__", getattr(sys, name))
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*paths, *sys.path[1:]]  # without this file's directory
    if any(name.endswith(".dist-info") for path in paths if os.path.isdir(path) for name in os.listdir(path)):
        for ours in _ours:
            ours.forget_options()
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    try:
        for path in paths:
            if (hook := Path(path) / "sitecustomize.py").exists():
                if os.environ.get("TRACKERS_TEST_CHANGES") != "":  # it may change what is imported later
                    sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in _ours]
                runpy.run_path(str(hook))
                break
        first = ""
        if words[0] == "-c":
            text = words[1]
            if _RELAY in text and words[2] == "relay":  # a relay forks its deliveries, as it does with a host agent
                fork = f"helper_process.forks_with(main, {sorted(_kept)})\n"
                text = text.replace(_RELAY, f"{_RELAY}from trackers.journal import helper_process\n{fork}")
            sys.argv, code = ["-c", *words[2:]], compile(text, "<string>", "exec")
        elif words[0] == "-m":
            _, spec, code = runpy._get_module_details(words[1])  # type: ignore[attr-defined]
            sys.argv, first = [spec.origin, *words[2:]], os.getcwd()
            main.__spec__, main.__file__, main.__package__ = spec, spec.origin, spec.parent
        elif words[0] == "-":
            sys.argv, code = list(words), compile(sys.stdin.read(), "<stdin>", "exec")
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
            sys.excepthook(*sys.exc_info())
        except BaseException:
            traceback.print_exc()
        ended = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    return int(ended)


if __name__ == "__main__":
    starts = [number for number, word in enumerate(sys.argv) if word == _STAGE]
    ends = [*starts[1:], -1]
    _serve([sys.argv[first + 1 : last] for first, last in zip(starts, ends, strict=True)])
