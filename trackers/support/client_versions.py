"""The versions of a client that a tracker was tested with, and how the installed one compares with them.

A newer one is used, with a note. An older one may have a lesser promise, which is named. One older than ``oldest`` is
refused in ``init``, by ``trackers doctor`` and by the delivery.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import re
from typing import Any, NamedTuple

from trackers.errors import UsageError


class Lesser(NamedTuple):
    """What clients before a version can't do.

    before: the first version that can.
    promise: what happens instead, in a sentence's part: "…".
    offline: whether it matters in the client's offline mode only.
    """

    before: str
    promise: str
    offline: bool = False


class ClientVersions(NamedTuple):
    """The versions that a tracker takes.

    distribution: the client's name on PyPI. module: the package that it installs.
    oldest: none older is taken. why: what they lack.
    tested: the versions that the tests ran with, the oldest first.
    lesser: what the older ones of them can't do.
    """

    distribution: str
    module: str
    oldest: str
    why: str
    tested: tuple[str, ...]
    lesser: tuple[Lesser, ...] = ()


class TooOld(UsageError):
    """The installed client is older than the tracker takes."""


def number(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with, to compare it by: ``0.26.1rc1`` is (0, 26, 1)."""
    return tuple(int(part) for part in re.findall(r"\d+", (re.match(r"[\d.]*", version) or [""])[0]))


@functools.lru_cache
def installed(versions: ClientVersions) -> str:
    """The installed client's version; "" if it isn't known.

    It is read from names of files: to import importlib.metadata would be a fifth of all that ``init`` takes.
    """
    folder = _folder(versions.module)
    if folder:
        prefix = f"{versions.distribution.lower().replace('-', '_')}-"
        for name in os.listdir(folder):
            if name.endswith(".dist-info") and name.lower().startswith(prefix):
                return name[len(prefix) : -len(".dist-info")]
    from importlib import metadata

    try:
        return metadata.version(versions.distribution)
    except metadata.PackageNotFoundError:
        return ""


def _folder(module: str) -> str:
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):  # a finder of somebody else's, or a module that was put there by hand
        return ""
    if spec is not None and getattr(spec.loader, "stands_in", False):  # ours, for `import wandb`
        spec = importlib.machinery.PathFinder.find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        return ""
    folder = os.path.dirname(next(iter(spec.submodule_search_locations)))
    return folder if os.path.isdir(folder) else ""


def check(tracker: Any) -> None:
    """See that a tracker's client is new enough, where the tracker says what it takes (``versions``).

    Raises:
        TooOld: it isn't. The message names the ways out.
    """
    versions: ClientVersions | None = tracker.versions
    if versions is None or not (version := installed(versions)):
        return
    if number(version) < number(versions.oldest):
        name, client = tracker.name, versions.distribution
        raise TooOld(
            f"tracker {name!r} needs {client} {versions.oldest} or newer, and {version} is installed ({versions.why}): "
            f"trackers setup {name} makes an environment for it; or pip install -U {client}; or "
            f"TRACKER_PYTHON={name}=/path/to/python; or log with TRACKER_MODE=offline, and send it by `trackers sync` "
            f"where {client} is newer"
        )


def notes(tracker: Any, *, offline: bool | None = None) -> list[str]:
    """What is to be said of the installed client: that it is newer than any tested one, or what it can't do.

    Args:
        offline: whether the run uses the client's offline mode; None: say both.
    """
    versions: ClientVersions | None = tracker.versions
    if versions is None or not (version := installed(versions)):
        return []
    client = f"{versions.distribution} {version}"
    if number(version) > number(versions.tested[-1]):
        return [f"{client} is newer than the newest that was tested, {versions.tested[-1]}"]
    less = [
        lesser
        for lesser in versions.lesser
        if number(version) < number(lesser.before) and (offline is not False or not lesser.offline)
    ]
    return [f"{client}: {lesser.promise} (not with {lesser.before} or newer)" for lesser in less]


def table(versions: ClientVersions) -> str:
    """The versions as a table in Markdown: the tested ones with what they can't do."""
    groups: dict[str, list[str]] = {}
    for version in versions.tested:
        less = [lesser.promise for lesser in versions.lesser if number(version) < number(lesser.before)]
        groups.setdefault("; ".join(less) or "everything holds", []).append(version)
    tested = [f"| {', '.join(names)} | {promise} |" for promise, names in groups.items()]
    head = [f"| {versions.distribution} | |", "|---|---|", f"| before {versions.oldest} | refused: {versions.why} |"]
    return "\n".join([*head, *tested, "| newer | used, with a note |"])
