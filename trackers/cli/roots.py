"""Where runs lie, as a command is told."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from trackers.object_storage import addresses

DELIVERED = "delivered from"
"""What ``sync`` would do with the runs of a directory."""


def runs_root(directory: Path | None, *, copy: bool = True, follow: bool = True, change: str = "") -> Path:
    """The directory of all runs: the option, else what the configuration says.

    A store's address is answered with the directory of its copy on this machine.

    Args:
        copy: bring that copy up to date. follow: and go on with that while the command lasts.
        change: what the command would do with runs, where it changes them: a copy isn't changed.

    Raises:
        DeliveryError: the store can't be read, and there is no copy. UsageError: a copy can't be changed.
    """
    from trackers import configuration
    from trackers.errors import UsageError

    try:
        options = configuration.resolve()
        where, base = str(options["TRACKER_DIR"]), str(options["TRACKER_STORE_DIR"] or "")
    except UsageError:  # a broken .config must not keep anybody from looking at runs
        where, base = os.environ.get("TRACKER_DIR", "runs"), os.environ.get("TRACKER_STORE_DIR", "")
    where = str(directory) if directory is not None else where
    root = directory if directory is not None else Path(where).expanduser()
    if store := addresses.store_of(where):
        from trackers.object_storage import mirror

        root = mirror.update_copy(store, base, follow=follow) if copy else addresses.copy_directory(store, base)
    if change:
        refuse_copies(root, change, addresses.local_directory(store, base) if store else None)
    return root


def named_store(directory: Path | None) -> tuple[str, Path]:
    """The store that a command is told of, and where this machine writes runs for it; "" where it is a directory.

    Raises:
        UsageError: a broken configuration, or an address that can't be used.
    """
    from trackers import configuration

    options = configuration.resolve()
    store = addresses.store_of(str(directory if directory is not None else options["TRACKER_DIR"]))
    return store, addresses.local_directory(store, str(options["TRACKER_STORE_DIR"] or "")) if store else Path()


def refuse_copies(path: Path, change: str, own: Path | None = None) -> None:
    """Raise a UsageError where a directory is a copy of a store's runs, or lies in one.

    Args:
        change: what the command would do there.
        own: where this machine writes runs for that store.
    """
    from trackers.errors import UsageError

    for root in (path, *path.absolute().parents[:2]):
        if (root / addresses.COPY_MARKER).is_file():
            here = f"; those of this machine: --dir {shlex.quote(str(own))}" if own is not None and own.is_dir() else ""
            text = f"{root} is a copy of a store's runs, and can't be {change}: do that where they are written{here}"
            if change == DELIVERED:
                text += "; to bring them to another tracker as they grow: trackers copy --follow"
            raise UsageError(text)
