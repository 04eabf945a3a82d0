"""How a run ended among its results: the JSON log and summary.csv have both in one mapping."""

from __future__ import annotations

import re

_OWN = re.compile(r"(status|exit_code|reason)_*")


def lent(name: str) -> str:
    """The name under which a result is stored: ``status_`` of one that is called as what says how the run ended."""
    return f"{name}_" if _OWN.fullmatch(name) else name


def given_back(name: str) -> str:
    """The name that the result has in the run."""
    return name.removesuffix("_") if _OWN.fullmatch(name) else name
