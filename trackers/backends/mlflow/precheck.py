"""Checks of MLflow that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trackers.backends.mlflow.uri import check_uri, tracking_uri
from trackers.tracker import RunInfo


class MlflowPrecheck:
    """MLflow: a tracking URI."""

    name = "mlflow"
    needs = ("mlflow",)

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
