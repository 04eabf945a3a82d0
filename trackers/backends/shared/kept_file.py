"""Files of a run that a tracker's own directory holds, too."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from trackers.backends.shared.append_file import READ_BYTES, make_folder, replace, unavailable
from trackers.support import confined
from trackers.tracker import RunInfo


def keep(info: RunInfo, source: Path, path: Path, root: Path, temporary: Path) -> None:
    """Put a file of the run at ``path``: a hard link, or a copy where that is on another file system.

    Args:
        source: as ``media_files.path`` gives it. root: the directory that ``path`` lies beneath, through no link.
        temporary: how a copy's name begins; see :func:`trackers.backends.shared.append_file.remove_temporary`.

    Raises:
        Unavailable: it can't be written.
    """
    try:
        make_folder(path.parent, root)
        with contextlib.suppress(FileNotFoundError):
            confined.remove(path, root=root)
        base = Path(info.directory).absolute()
        with (
            contextlib.suppress(OSError),
            confined.pinned(source, root=base) as kept,
            confined.pinned(path, root=root) as new,
        ):
            os.link(kept, new, follow_symlinks=False)
            return
        with confined.open_file(source, root=base) as file:
            replace(path, temporary, iter(lambda: file.read(READ_BYTES), b""), root)
    except OSError as error:
        raise unavailable("write", path, error) from error
