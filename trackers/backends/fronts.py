"""What ``init`` asks of a built-in tracker, before anything of the tracker itself is loaded.

A front holds the class attributes and class methods of :class:`trackers.tracker.Tracker` that are needed before the
first step; the tracker inherits from it. So a start costs the same whichever trackers are chosen. A plug-in has no
front: its own class is asked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from trackers.backends.folders import check_directory, option_directory
from trackers.errors import ConfigError
from trackers.tracker import RunInfo


class WandbFront:
    """W&B: a login, or its offline mode."""

    name = "wandb"
    needs = ("wandb",)

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise ConfigError for a project's name that W&B refuses, CredentialsMissing where a login can't be found."""
        from trackers.backends import wandb_login

        wandb_login.check(options)

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The server's name, or that it is W&B's offline mode."""
        from trackers.backends import wandb_login

        return wandb_login.host() if wandb_login.mode(info.options) == "online" else "offline"


class TrackioFront:
    """trackio: a server, or its directory."""

    name = "trackio"
    needs = ("trackio",)

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """See that the server's address is one.

        Raises:
            ConfigError: ``TRACKIO_SERVER_URL`` isn't an http or https address.
        """
        url = str(options.get("TRACKIO_SERVER_URL") or "")
        parts = urlsplit(url)
        if url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ConfigError(
                f"TRACKIO_SERVER_URL {url!r} is not an address: use http://HOST:PORT/?write_token=TOKEN, "
                "as `trackio show` prints it"
            )

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The server's address without its token, or trackio's directory."""
        url = info.option("TRACKIO_SERVER_URL") or os.environ.get("TRACKIO_SERVER_URL")
        return str(url).split("?")[0] if url else os.environ.get("TRACKIO_DIR", "its cache directory")


class MlflowFront:
    """MLflow: a tracking URI."""

    name = "mlflow"
    needs = ("mlflow",)

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """See that the tracking URI is one that MLflow takes.

        Raises:
            ConfigError: it isn't.
        """
        from trackers.backends.mlflow_address import check_uri

        check_uri(options)

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The tracking URI."""
        from trackers.backends.mlflow_address import tracking_uri

        return tracking_uri(info)


class _Files:
    """A tracker that writes files to the directory that an option names, or to the run's own."""

    symbol = ""

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise a UsageError for a directory that can't be written."""
        check_directory(options, cls.symbol)

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The directory that the option names; "" where it is unset and the run's own is taken."""
        return str(option_directory(info, cls.symbol) or "")


class TensorboardFront(_Files):
    """TensorBoard: its log directory."""

    name = "tensorboard"
    needs = ("tensorboard",)
    symbol = "TENSORBOARD_DIR"


class JsonFront(_Files):
    """The JSON log: its directory."""

    name = "json"
    symbol = "JSON_DIR"


class CsvFront(_Files):
    """The table: its directory."""

    name = "csv"
    symbol = "CSV_DIR"


class BenchmarkFront(_Files):
    """Document 0's result: its directory."""

    name = "benchmark"
    symbol = "BENCHMARK_DIR"


class SessionFront(_Files):
    """Document 2's session logs: their directory, and two levels."""

    name = "session"
    symbol = "SESSION_DIR"

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise a UsageError for a directory that can't be written, or for a level that isn't one."""
        from trackers.backends.session_settings import check_levels

        check_levels(options)
        super().check(options)


class ProgressFront(_Files):
    """``progress.txt``: the checkpoints' directory."""

    name = "progress"
    partial = True
    symbol = "PROGRESS_DIR"


class ConsoleFront:
    """The terminal: it runs inside training."""

    name = "console"
    partial = True
    inside = True
