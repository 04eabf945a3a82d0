"""Checks of trackio that ``init`` makes before the first step. Imports nothing else of this tracker."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import urlsplit

from trackers.errors import ConfigError
from trackers.support.client_versions import ClientVersions, Lesser
from trackers.tracker import RunInfo, Tracker

VERSIONS = ClientVersions(
    distribution="trackio",
    module="trackio",
    oldest="0.36.0",
    why="a server of 0.33 stores media under names that no row tells; 0.34 and 0.35 weren't tried",
    tested=("0.36.0", "0.43.0"),
    lesser=(Lesser("0.37.0", "a trace has its messages, not its spans: those are in the table of them"),),
)


class TrackioPrecheck(Tracker):
    """trackio: a server, or its directory."""

    name = "trackio"
    common = True
    needs = ("trackio",)
    versions = VERSIONS
    unedited: ClassVar[dict[str, str]] = {"name": "its runs can't be renamed; the setting trackers/name has it"}

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
