"""Moving a file to a name that no other file has."""

from __future__ import annotations

import os
from pathlib import Path


def move_to_free_name(source: Path, target: Path) -> bool:
    """Move a file to a name that nothing has: in one step, or in two where the filesystem has no hard links.

    Returns:
        False if something has that name; ``source`` is then where it was. After True it may still be there, too.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        return False
    except OSError:
        try:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        except FileExistsError:
            return False
        os.replace(source, target)
    return True
