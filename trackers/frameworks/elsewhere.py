"""Frameworks whose loggers and callbacks are in the distribution ``trackers-frameworks``: what to install for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

DISTRIBUTION = "trackers_frameworks"


@contextlib.contextmanager
def named(module: str) -> Iterator[None]:
    """Have an import of that distribution that fails say how to get it.

    Args:
        module: of this package, which imports it.

    Raises:
        ModuleNotFoundError: it isn't installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != DISTRIBUTION:
            raise
        text = f"{module} is in a distribution of its own: pip install 'trackers-relay[frameworks]'"
        raise ModuleNotFoundError(text, name=DISTRIBUTION) from None
