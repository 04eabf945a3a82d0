"""Checks of the OTLP endpoint that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit, urlunsplit

from trackers.errors import ConfigError
from trackers.tracker import RunInfo, Tracker

PATH = "/v1/traces"
"""https://opentelemetry.io/docs/specs/otlp/#otlphttp-request"""


class OtlpPrecheck(Tracker):
    """OpenTelemetry: an OTLP endpoint."""

    name = "otlp"
    partial = True
    common = True
    needs = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    unedited: ClassVar[dict[str, str]] = dict.fromkeys(
        ("name", "tags", "notes", "group", "results"), "spans that were sent can't be changed"
    )

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """See that the endpoint is an address.

        Raises:
            ConfigError: it isn't one of http or https, or it holds a password.
        """
        url = endpoint(str(options.get("TRACKER_OTLP_ENDPOINT") or ""))
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"TRACKER_OTLP_ENDPOINT {url.removesuffix(PATH)!r} is not an address: use http://HOST:4318"
            )
        if parts.username is not None or parts.password is not None:
            raise ConfigError(
                f"TRACKER_OTLP_ENDPOINT holds a login for {parts.hostname}, which would be kept with the run: "
                "export OTEL_EXPORTER_OTLP_HEADERS='Authorization=Basic …'"
            )

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The address that spans are sent to."""
        return endpoint(str(info.option("TRACKER_OTLP_ENDPOINT", "")))


def endpoint(address: str) -> str:
    """The address of traces at a receiver. address: as in the option; "": what OpenTelemetry's own variables say."""
    if not address and (own := os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")):
        return own
    address = address or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or "http://localhost:4318"
    parts = urlsplit(address)
    path = parts.path.rstrip("/")
    return urlunsplit(parts._replace(path=path if path.endswith(PATH) else path + PATH))
