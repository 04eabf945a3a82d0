"""MLflow without importing mlflow: its tracking URI, and the checks that ``init`` makes before the first step."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from trackers.errors import ConfigError
from trackers.formats import sqlite_address
from trackers.support.client_versions import ClientVersions
from trackers.support.confined import local
from trackers.tracker import RunInfo, Tracker

VERSIONS = ClientVersions(
    distribution="mlflow",
    module="mlflow",
    oldest="2.16.0",
    why="2.15 refuses names with a colon",
    tested=("2.16.0", "3.17.2"),
)
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
_SCHEMES = (*_DATABASES, "http", "https", "databricks", "databricks-uc", "uc")


def check_uri(options: Mapping[str, Any]) -> None:
    """See that the tracking URI is one that MLflow takes, without importing it.

    Raises:
        ConfigError: a plain directory, which MLflow no longer accepts, or not an address.
    """
    uri = str(options.get("MLFLOW_TRACKING_URI") or os.environ.get("MLFLOW_TRACKING_URI") or "")
    if not uri:
        return
    parts = urlsplit(uri)
    scheme = parts.scheme.split("+")[0]
    if scheme == "file" or not scheme or (len(scheme) == 1 and os.name == "nt"):  # C:
        if scheme == "" and uri in _SCHEMES:  # "databricks"
            return
        folder = parts.path or uri
        raise ConfigError(
            f"MLFLOW_TRACKING_URI {uri!r} is a directory, which MLflow no longer keeps runs in: "
            f"use sqlite:///{folder.rstrip('/')}/mlflow.db, or http://HOST:PORT of `mlflow server`"
        )
    if scheme not in _SCHEMES:
        raise ConfigError(f"MLFLOW_TRACKING_URI {uri!r} is not one of {', '.join(f'{s}://' for s in _SCHEMES)}")
    if scheme in ("http", "https") and not parts.hostname:
        raise ConfigError(f"MLFLOW_TRACKING_URI {uri!r} has no host: use http://HOST:PORT")
    if scheme == "sqlite" and not uri.startswith("sqlite:///"):
        raise ConfigError(f"MLFLOW_TRACKING_URI {uri!r}: SQLite takes sqlite:///FILE, or sqlite:////FILE from the root")


def tracking_uri(info: RunInfo) -> str:
    """The tracking URI of a run. SQLite files are taken from where training runs, as MLflow itself does there."""
    uri = str(info.option("MLFLOW_TRACKING_URI") or os.environ.get("MLFLOW_TRACKING_URI") or "")
    if not uri:
        return f"sqlite:///{sqlite_address.encoded(str(folder(info) / 'mlflow.db'))}"
    file = sqlite_file(uri)
    if file is not None and not file.is_absolute():
        return f"sqlite:///{sqlite_address.encoded(str(folder(info) / file))}"
    return uri


def sqlite_file(uri: str) -> Path | None:
    """The file of an SQLite URI, as it is written there; None for other databases and for one in memory."""
    match = re.match(r"sqlite(?:\+\w+)?:///([^?]*)", uri)
    return Path(local(sqlite_address.decoded(match[1]))) if match and match[1] and match[1] != ":memory:" else None


def local_folder(uri: str) -> Path | None:
    """The folder of an artifact URI that lies on this machine; None for others."""
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    return Path(uri) if uri.startswith("/") else None


def folder(info: RunInfo) -> Path:
    """Where training runs, or the run's directory where that isn't had; of somebody else's run, where the reader is."""
    if info.home:
        return Path(info.home)
    home = Path(local(info.cwd))
    return home if info.cwd and home.is_dir() else Path(info.directory).absolute()


def show(uri: str, experiment_id: str, run_id: str) -> str:
    """Where people look at a run: its page, or the command that serves it."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):  # it is shown: without login and query
        base = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment="")).rstrip("/")
        return f"{base}/#/experiments/{experiment_id}/runs/{run_id}"
    if parts.scheme.split("+")[0] in _DATABASES:
        return f"mlflow ui --backend-store-uri {shlex.quote(without_password(uri))}"
    return uri


def without_password(uri: str) -> str:
    """A URI as messages may show it."""
    return re.sub(r"(://[^/@:]*):[^@/]*@", r"\1:***@", uri)


class MlflowPrecheck(Tracker):
    """MLflow: a tracking URI."""

    name = "mlflow"
    common = True
    needs = ("mlflow",)
    versions = VERSIONS

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """See that the tracking URI is one that MLflow takes.

        Raises:
            ConfigError: it isn't.
        """
        check_uri(options)

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The tracking URI."""
        return tracking_uri(info)
