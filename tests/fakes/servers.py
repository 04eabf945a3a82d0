"""Real servers on loopback for tests: MLflow on SQLite or PostgreSQL, trackio, TensorBoard.

Each is stopped by its own pid.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests import forked

READY_S = 120
"""A server that isn't ready by then has failed."""

WRITE_TOKEN = "only-for-tests"


class QuietHandler(BaseHTTPRequestHandler):
    """Answers requests without a line on stderr for each."""

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@contextlib.contextmanager
def listening(handler: type[BaseHTTPRequestHandler], host: str = "127.0.0.1") -> Iterator[str]:
    """A server in this process that answers by ``handler``; its address, with ``host`` as loopback's name."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield f"http://{host}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class Server:
    """One server process, with whatever it starts, in a session of its own.

    Args:
        command: what to start; its output goes to ``log``.
        ready: an address that answers once the server works.
        preload: it is a fork of a process that has imported these modules; empty: a process as any other.
    """

    def __init__(
        self, command: Sequence[str], log: Path, url: str, ready: str, env: Mapping[str, str],
        preload: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.url = url
        self._command, self._log, self._ready, self._env, self._preload = command, log, ready, env, preload
        self._process: subprocess.Popen[bytes] | forked.Program | None = None

    def start(self) -> None:
        """Start, and wait until it answers."""
        start = functools.partial(forked.Program, preload=self._preload) if self._preload else subprocess.Popen
        with self._log.open("ab") as log:
            self._process = start(
                self._command,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self._log.parent,
                env={**os.environ, **self._env},
            )
        deadline = time.monotonic() + READY_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self._command[0]} didn't start:\n{self._log.read_text()[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End it and what it started."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None

    def pause(self) -> None:
        """Let it hang: it takes connections, and never answers."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(self._ready, timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, urllib.error.URLError):
            return False


def free_port() -> int:
    """A port of loopback that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def mlflow_server(directory: Path, store: str | None = None, *, by_command: bool = False) -> Server:
    """An MLflow server with its artifacts in ``directory``, on SQLite there unless ``store`` says otherwise.

    Args:
        by_command: started by ``mlflow server``; otherwise as that does it, without its second process that imports
            MLflow.
    """
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    ready = f"{url}/api/2.0/mlflow/experiments/get-by-name?experiment_name=Default"
    store = store or f"sqlite:///{directory}/server.db"
    log, artifacts = directory / "mlflow-server.log", str(directory / "server-artifacts")
    env = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    if by_command or importlib.util.find_spec("mlflow.server.fastapi_app") is None:  # MLflow 2
        command = ["-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
        command += ["--backend-store-uri", store, "--artifacts-destination", artifacts]
        return Server([sys.executable, *command], log, url, ready, env)
    env |= {
        "_MLFLOW_SERVER_FILE_STORE": store, "_MLFLOW_SERVER_REGISTRY_STORE": store,
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/", "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": artifacts, "_MLFLOW_SGI_NAME": "uvicorn",
    }  # fmt: skip
    command = ["-m", "uvicorn", "--host", "127.0.0.1", "--port", str(port), "mlflow.server.fastapi_app:app"]
    return Server([sys.executable, *command], log, url, ready, env, forked.MLFLOW_SERVER)


def tensorboard_server(logdir: Path, log: Path) -> Server:
    """TensorBoard over a log directory; what it says goes to ``log``."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [str(Path(sys.executable).with_name("tensorboard")), "--logdir", str(logdir), "--host", "127.0.0.1"]
    return Server([*command, "--port", str(port)], log, url, f"{url}/data/runs", {})


def trackio_server(directory: Path) -> Server:
    """A trackio server that keeps its runs below ``directory``/trackio-server."""
    port = free_port()
    store = directory / "trackio-server"
    store.mkdir()
    script = Path(sys.executable).with_name("trackio")
    env = {
        "TRACKIO_DIR": str(store),
        "TRACKIO_WRITE_TOKEN": WRITE_TOKEN,
        "GRADIO_SERVER_PORT": str(port),
        "BROWSER": "true",
    }
    url = f"http://127.0.0.1:{port}/"
    command = [str(script), "show", "--host", "127.0.0.1", "--no-footer"]
    return Server(command, directory / "trackio-server.log", url, f"{url}version", env)


def postgresql_programs() -> Path | None:
    """The folder of PostgreSQL's server programs, where Debian has them or on PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    found = shutil.which("postgres")
    programs = debian[-1] if debian else Path(found).resolve() if found else None
    return programs.parent if programs else None


@contextlib.contextmanager
def postgresql() -> Iterator[str]:
    """A PostgreSQL server for the time of a ``with``; gives the address of its database for SQLAlchemy.

    PostgreSQL refuses to run as root, so it then runs as nobody, in a directory outside pytest's, which are root's.
    """
    programs = postgresql_programs()
    assert programs is not None
    data = Path(tempfile.mkdtemp(prefix="trackers-postgresql-"))
    user: list[str] = []
    if os.geteuid() == 0:
        user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
        shutil.chown(data, "nobody", "nogroup")
    port = free_port()
    options = f"-p {port} -k {data} -c listen_addresses=127.0.0.1 -c fsync=off"
    control = [*user, programs / "pg_ctl", "-D", data, "-w"]
    try:
        _run([*control, "initdb", "-o", "-U mlflow --auth=trust --no-sync -E UTF8"])
        # It leaves us, so that the processes it starts for each client aren't taken for what a test left behind.
        _run([*control, "-l", data / "server.log", "-o", options, "start"])
        try:
            yield f"postgresql+psycopg2://mlflow@127.0.0.1:{port}/postgres"
        finally:
            _run([*control, "-m", "immediate", "stop"])
    finally:
        shutil.rmtree(data, ignore_errors=True)


def _run(command: Sequence[str | Path]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd="/")
    if done.returncode:
        raise RuntimeError(f"{command[-1]} failed:\n{done.stdout.decode()[-3000:]}")
