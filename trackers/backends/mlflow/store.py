"""MLflow's client for a run, its errors as ours, and a lock for the first moment of a database."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import re
import secrets
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from trackers.backends.mlflow.precheck import folder, sqlite_file, tracking_uri, without_password
from trackers.backends.shared.append_file import remove
from trackers.backends.shared.directory import has_file_locks
from trackers.errors import DeliveryError, Fatal, Refused, Rejected, Unavailable, causes
from trackers.formats import foreign_sqlite, sqlite_address
from trackers.support import machines, sightings
from trackers.tracker import RunInfo

HTTP_TIMEOUT_S = 30
"""Timeout for one answer of a server, in seconds; MLflow's default is 120 s with seven tries."""

LOCK_STALE_S = 60.0
"""A lock this old was left by a killed process, of another machine: creating a database takes seconds."""

LOCK_WAIT_S = 120.0
"""Maximum wait for the lock, in seconds; MLflow fails if two processes create its tables at once."""

# mlflow/tracking/_tracking_service/utils.py: the artifact root of a client that opens a database itself.
_ARTIFACT_ROOT = "_MLFLOW_SERVER_ARTIFACT_ROOT"

# Error codes of mlflow/protos/databricks_pb2.py.
_REFUSED = frozenset(
    {
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
        "CUSTOMER_UNAUTHORIZED",
        "ENDPOINT_NOT_FOUND",
        "NOT_FOUND",
        "RESOURCE_DOES_NOT_EXIST",
        "FEATURE_DISABLED",
    }
)
_CAUSES = {
    "Connection refused": "connection refused",
    "Connection aborted": "connection lost",
    "timed out": "timed out",
    "Timeout": "timed out",
    "resolve": "unknown host",
    "database is locked": "database is locked",
}
_REJECTED = frozenset({"INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST", "INVALID_STATE"})


_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # the delivery retries, and knows what it has to retry
    "MLFLOW_HTTP_REQUEST_TIMEOUT": str(HTTP_TIMEOUT_S),
}


def preload() -> None:
    """Import what :func:`connect` needs. polars isn't: it starts threads, and only MLflow's data sets use it."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    # pyarrow's allocator; it would start a thread, which a fork doesn't have.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    hidden = "polars" not in sys.modules
    if hidden:
        sys.modules["polars"] = None  # type: ignore[assignment]
    try:
        for module in ("mlflow", "mlflow.store.tracking.sqlalchemy_store", "sqlalchemy.dialects.sqlite.pysqlite"):
            importlib.import_module(module)
    finally:
        if hidden:
            del sys.modules["polars"]


def connect(info: RunInfo) -> Any:
    """An ``MlflowClient`` for the run; its database exists once this returns.

    Raises:
        DeliveryError: MLflow, its database driver or the database can't be had.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    uri = tracking_uri(info)
    with translated(uri):
        from mlflow import MlflowClient

        if (file := sqlite_file(uri)) is not None:
            foreign_sqlite.need_own_files(file, Fatal)  # it may have come with the directory
            # Seconds, on a busy machine, that others needn't wait for.
            importlib.import_module("mlflow.store.tracking.sqlalchemy_store")
        # They print what we translate, with tracebacks.
        logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
        logging.getLogger("alembic").setLevel(logging.ERROR)
        with _artifact_root(folder(info)), first_moment(uri):
            _make_tables(uri)
            client = MlflowClient(tracking_uri=uri)
            if sqlite_file(uri) is not None:
                # MLflow keeps one store for an address: its connections may be to a file that was deleted meanwhile.
                client._tracking_client.store.engine.dispose()
            client.search_experiments(max_results=1)
    return client


def identity(uri: str) -> tuple[int, int] | None:
    """What tells an SQLite database's file from another one in its place; None for other stores, and for no file."""
    file = sqlite_file(uri)
    if file is None:
        return None
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _make_tables(uri: str) -> None:
    """Make a new SQLite database under another name first: one whose making was cut short is of no use to anybody."""
    file = sqlite_file(uri)
    if file is None or (file.exists() and file.stat().st_size):  # an empty one has no tables
        return
    for stray in file.parent.glob(f".{file.name}.*.new*"):  # of a process that was killed
        remove(stray)
    from mlflow import MlflowClient

    # A name of its own each time: MLflow keeps one store for an address, and makes its tables once.
    new = file.with_name(f".{file.name}.{os.getpid()}.{secrets.token_hex(4)}.new")
    client = MlflowClient(
        tracking_uri=re.sub("///[^?]*", lambda _: f"///{sqlite_address.encoded(str(new))}", uri, count=1)
    )
    client.search_experiments(max_results=1)
    client._tracking_client.store.engine.dispose()
    if not file.exists() or not file.stat().st_size:  # MLflow itself takes no such lock
        os.replace(new, file)
    remove(new)


def has_point(uri: str, run_id: str, key: str, point: list[int]) -> bool:
    """Whether an SQLite database has a metric up to a point: step, and time in milliseconds. True for other stores."""
    file = sqlite_file(uri)
    if file is None:
        return True
    query = "SELECT step, timestamp FROM latest_metrics WHERE run_uuid = ? AND key = ?"
    try:
        with contextlib.closing(sqlite3.connect(f"file:{quote(os.fsencode(file))}?mode=ro", uri=True)) as database:
            row = database.execute(query, (run_id, key)).fetchone()
    except sqlite3.Error as error:  # in use: nothing is known of it yet
        return "locked" in str(error)
    return row is not None and list(row) >= point


@contextlib.contextmanager
def _artifact_root(directory: Path) -> Iterator[None]:
    """Artifacts of local databases beside where training runs, wherever this process does."""
    from mlflow.tracking._tracking_service import utils

    before, default = os.environ.get(_ARTIFACT_ROOT), utils.DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH
    if before is None:
        os.environ[_ARTIFACT_ROOT] = str(directory / "mlruns")
    if not hasattr(utils, "_SERVER_ARTIFACT_ROOT_ENV_VAR"):  # a client that doesn't read the variable yet
        utils.DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH = os.environ[_ARTIFACT_ROOT]
    try:
        yield
    finally:
        utils.DEFAULT_LOCAL_FILE_AND_ARTIFACT_PATH = default
        if before is None:
            del os.environ[_ARTIFACT_ROOT]


@contextlib.contextmanager
def first_moment(uri: str) -> Iterator[None]:
    """One process at a time for what races in a new SQLite database: its tables, its experiments, its groups.

    A file that only one process can create holds the place; it works where file locks don't.

    Raises:
        Unavailable: others kept it too long.
    """
    import psutil

    file = sqlite_file(uri)
    if file is None:
        yield
        return
    lock = file.with_name(f"{file.name}.trackers-lock")
    here = machines.machine()
    started = psutil.Process().create_time()
    me = f"{here.host} {os.getpid()} {started} {secrets.token_hex(4)} {here.boot_id} {here.pid_namespace}"
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            with open(lock, "x") as lock_file:
                lock_file.write(me)
            break
        except FileExistsError:
            _drop_stale(lock)
        except FileNotFoundError:
            file.parent.mkdir(parents=True, exist_ok=True)
            continue
        if time.monotonic() > deadline:
            raise Unavailable(f"{lock} is held by another process; delete it if none delivers to {file.name}")
        time.sleep(0.05)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            if lock.read_text() == me:  # else it was taken for stale, and is another's now
                lock.unlink()


def _drop_stale(lock: Path) -> None:
    """Take a lock away whose holder is gone: that very lock, for of several that see it another may be quicker."""
    with contextlib.suppress(OSError):
        holder = lock.read_text()
        if not (_is_old(lock) or _is_gone(holder)):
            return
        # Who makes this file may look once more and take the lock away; nobody else takes one of this holder's.
        takeover = lock.with_name(f"{lock.name}.{hashlib.sha256(holder.encode()).hexdigest()[:12]}")
        try:
            os.close(os.open(takeover, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            if _is_old(takeover):  # it takes microseconds: that process was killed, too
                takeover.unlink()
            return
        try:
            if lock.read_text() == holder:
                lock.unlink()
        finally:
            takeover.unlink()


def _is_old(path: Path) -> bool:
    """Whether this machine has seen a lock unchanged for so long that its holder must be gone."""
    status = path.stat()
    return sightings.look(path, f"{status.st_ino} {status.st_mtime_ns}").still_s > LOCK_STALE_S


def _is_gone(holder: str) -> bool:
    """Whether the process that made a lock was one of this machine and has died."""
    words = holder.split(" ")
    here = machines.machine()
    if len(words) < 4 or words[0] != here.host or words[4:] not in ([], list(here[1:])):  # []: by an earlier release
        return False
    import psutil

    try:
        return bool(psutil.Process(int(words[1])).create_time() != float(words[2]))
    except psutil.NoSuchProcess:
        return True
    except (psutil.Error, ValueError):
        return False


@contextlib.contextmanager
def translated(uri: str) -> Iterator[None]:
    """MLflow's, SQLAlchemy's and the filesystem's errors as ours."""
    try:
        yield
    except DeliveryError:
        raise
    except ImportError as error:
        raise Fatal(f"{error}; install what {without_password(uri).split(':')[0]} needs beside mlflow") from error
    except OSError as error:
        if isinstance(error, PermissionError):
            raise Refused(str(error)) from error
        raise Unavailable(str(error)) from error
    except Exception as error:
        meant = _translate(error, without_password(uri))
        if meant is None:
            raise
        raise meant from error


def _translate(error: Exception, uri: str) -> DeliveryError | None:
    """The error of ours that an error of MLflow's or its database's means; None for what isn't theirs."""
    import sqlalchemy.exc
    from mlflow.exceptions import MlflowException

    if not isinstance(error, (MlflowException, sqlalchemy.exc.SQLAlchemyError)):
        return None
    code = getattr(error, "error_code", None)
    text = " ".join(str(error).split())
    short = text[:300]
    if "out-of-date database schema" in text or "Can't locate revision" in text:
        return Fatal(f"{uri} belongs to another version of MLflow: mlflow db upgrade {uri}")
    if "'active' state" in text or "'active' lifecycle_stage" in text:
        return Refused(f"the run was deleted in MLflow; restore it there to go on: {short}")
    if code in _REFUSED:
        return Refused(f"{uri} refused: {short}")
    if code in _REJECTED:
        return Rejected(short)
    answered = re.search(r"too many (\d+) error responses", text)
    if answered:
        return Unavailable(
            f"{uri} answered {answered[1]}", retry_after_s=_retry_after(error), limited=answered[1] == "429"
        )
    file = sqlite_file(uri)
    if file is not None and "lock" in text and not has_file_locks(file.parent):
        return Refused(
            f"{file} lies on a filesystem without file locks, which SQLite needs: "
            "set MLFLOW_TRACKING_URI to another place, or to a server"
        )
    for sign, cause in _CAUSES.items():
        if sign in text:
            return Unavailable(f"no answer from {uri}: {cause}")
    return Unavailable(f"{uri}: {short}")


def _retry_after(error: BaseException | None) -> float | None:
    """What the server asked for in its answer's Retry-After, in seconds; None if nothing.

    The client's error has the status only. The answer itself is in the frame of urllib3 that raised it.
    """
    from urllib3.util import Retry

    for cause in causes(error):
        trace = cause.__traceback__
        while trace is not None:
            headers = getattr(trace.tb_frame.f_locals.get("response"), "headers", None) or {}
            if asked := headers.get("Retry-After"):
                with contextlib.suppress(Exception):  # nonsense in a header
                    return float(Retry().parse_retry_after(asked))
            trace = trace.tb_next
    return None
