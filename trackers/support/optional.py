"""Packages of the extra ``analysis``, looked for before they are imported."""

from __future__ import annotations

import importlib.util

from trackers.errors import MissingPackage


def need(package: str, what: str) -> None:
    """See that a package is installed.

    Raises:
        MissingPackage: it isn't; the message says what needs it, and the extra that brings it.
    """
    if importlib.util.find_spec(package) is None:
        raise MissingPackage(f"{what} needs the {package} package: pip install 'trackers-relay[analysis]'")
