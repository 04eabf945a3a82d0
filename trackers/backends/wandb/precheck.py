"""W&B without importing wandb: login, mode of a run's delivery, and the checks that ``init`` makes."""

from __future__ import annotations

import configparser
import netrc
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from trackers.errors import ConfigError, CredentialsMissing
from trackers.support.client_versions import ClientVersions, Lesser, installed, number
from trackers.tracker import RunInfo, Tracker

VERSIONS = ClientVersions(
    distribution="wandb",
    module="wandb",
    oldest="0.26.1",
    why="a run can't pause there without ending",
    tested=("0.26.1", "0.28.2", "0.30.0", "0.31.0"),
    lesser=(
        Lesser("0.28", "the system tab of a run that goes on loses the samples from before"),
        Lesser("0.28", "its `wandb sync` shows every run as finished, however it ended", True),
        Lesser("0.28", "its `wandb sync` doesn't tell the server when training began, and how long it took", True),
        Lesser("0.31", "rows reach an offline run's file when 32 KiB of them have come, or when the run ends", True),
        Lesser("0.31", "its `wandb sync` leaves a run preempted that was preempted, went on and failed", True),
    ),
)
DEFAULT_URLS = ("https://api.forge.coreweave.com", "https://api.wandb.ai")
"""The client's default address since 0.31, and the one before it, whose logins still count."""
MOVED = (0, 31)

REACH_S = 10.0
PROJECT_WITHOUT = "/\\#?%:"
PROJECT_CHARACTERS = 128
"""``wandb.Settings.validate_project`` refuses other names (wandb 0.31)."""


def mode(options: Mapping[str, Any]) -> Literal["online", "offline", "disabled"]:
    """W&B's mode for a run: online, unless options or the environment set another one.

    ``WANDB_OFFLINE`` (option or variable) and ``WANDB_MODE`` are read as the wandb client does.
    """
    configured = str(options.get("WANDB_MODE") or os.environ.get("WANDB_MODE") or "").lower()
    if configured == "disabled":
        return "disabled"
    if (
        configured in ("offline", "dryrun")
        or truth(options.get("WANDB_OFFLINE"))
        or truth(os.environ.get("WANDB_OFFLINE"))
    ):
        return "offline"
    return "online"


def truth(value: Any) -> bool:
    """An option as a boolean: Kconfig's ``y``, the environment's ``true`` and ``1``, or a bool."""
    return value is True or str(value or "").strip().lower() in ("y", "yes", "true", "1", "on")


def check(options: Mapping[str, Any]) -> None:
    """Check that W&B accepts the project's name, and that there is a login if one is needed.

    Raises:
        ConfigError: the client would refuse the project's name.
        CredentialsMissing: the mode is online and no key was found.
    """
    vendor_project = options.get("WANDB_PROJECT") or os.environ.get("WANDB_PROJECT")
    project = str(vendor_project or options.get("TRACKER_PROJECT") or "")
    if len(project) > PROJECT_CHARACTERS or not set(project).isdisjoint(PROJECT_WITHOUT):
        raise ConfigError(
            f"wandb: {'WANDB_PROJECT' if vendor_project else 'project'} {project!r} is no name of W&B's: up to "
            f"{PROJECT_CHARACTERS} characters, none of {' '.join(PROJECT_WITHOUT)}; "
            "WANDB_PROJECT gives W&B a name of its own"
        )
    if mode(options) == "online" and not logged_in():
        raise CredentialsMissing(
            f"wandb: no API key for {host()}; run 'wandb login', set WANDB_API_KEY, or set WANDB_MODE=offline"
        )


def logged_in() -> bool:
    """Whether a key or an identity token can be found; it isn't verified."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    if any(_setting(name) for name in ("api_key", "identity_token_file")):
        return True
    setting = os.environ.get("NETRC")
    files = [Path(setting).expanduser()] if setting else [Path.home() / ".netrc", Path.home() / "_netrc"]
    return any(map(_in_netrc, files))


def base_url() -> str:
    """The address that the client talks to."""
    return os.environ.get("WANDB_BASE_URL") or _setting("base_url") or _default_urls()[0]


def _default_urls() -> tuple[str, ...]:
    """The installed client's default address, and others whose logins it takes for it."""
    version = installed(VERSIONS)
    return DEFAULT_URLS[1:] if version and number(version) < MOVED else DEFAULT_URLS


def host() -> str:
    """The host that the client talks to."""
    return urlsplit(base_url()).hostname or base_url()


def reach() -> None:
    """Check that something listens at the server's address; skipped if a proxy is used.

    While a server is down this is repeated every few seconds, for hours: loading the client each time would take
    seconds of processor time from training.

    Raises:
        OSError: the host is unknown, or nothing listens.
    """
    from urllib.request import getproxies, proxy_bypass  # training imports this module, too, and doesn't need them

    address = urlsplit(base_url())
    if address.hostname and not (getproxies() and not proxy_bypass(address.hostname)):
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname, port), timeout=REACH_S).close()


def _in_netrc(path: Path) -> bool:
    try:
        logins = netrc.netrc(str(path)).hosts
    except (OSError, netrc.NetrcParseError):
        return False
    names = {name.partition(":")[0] for name, (_, _, password) in logins.items() if password}
    current = host()
    defaults = {urlsplit(url).hostname or "" for url in _default_urls()}
    return bool(names & {"default", *(defaults if current in defaults else {current})})


def _setting(name: str) -> str | None:
    # Not ./wandb/settings, which W&B's client also reads: a directory must not decide where the key is sent.
    directory = os.environ.get("WANDB_CONFIG_DIR") or str(Path.home() / ".config" / "wandb")
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(Path(directory, "settings"))
        return parser.get("default", name, fallback=None) or None
    except (configparser.Error, OSError, UnicodeDecodeError):
        return None


class WandbPrecheck(Tracker):
    """W&B's checks at ``init``: the project's name, and a login unless the mode is offline."""

    name = "wandb"
    needs = ("wandb",)
    versions = VERSIONS
    processes = 3
    late_note = "W&B's Created is the time of the upload; Start time, Runtime and rows have training's"

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Raise ConfigError for a project's name that W&B refuses, CredentialsMissing where a login can't be found."""
        check(options)

    @classmethod
    def is_offline(cls, options: Mapping[str, Any]) -> bool:
        """Whether the run goes into the client's offline files."""
        return mode(options) == "offline"

    @classmethod
    def place(cls, info: RunInfo) -> str:
        """The server's host, with its port if it isn't the default; "offline" in W&B's offline mode."""
        if mode(info.options) != "online":
            return "offline"
        return urlsplit(base_url()).netloc.rpartition("@")[2] or base_url()
