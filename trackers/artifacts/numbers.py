"""Numbers of versions, taken when an artifact is logged: ``runs/<project>/.artifacts/numbers/<name>/v3``.

A number is a file that nobody else could make, so that runs that log at the same moment get different ones. The
record of the artifact has its number: this folder may be deleted, and is made anew from the records. Without it a
number that only deleted runs had could be given again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from trackers.errors import UNDECODABLE, UsageError
from trackers.journal.run_directory import project_folder
from trackers.support import confined
from trackers.support.interruption import pass_on, suppress

FOLDER = ".artifacts"
"""Folder beside a project's runs. A hidden folder is no run."""
COMPARED = 200
"""Maximum number of versions, the newest, whose content is compared with what is logged."""
TRIES = 1000
SMALL_BYTES = 64 * 1024


class NumberHolder(msgspec.Struct, omit_defaults=True):
    """What a number was assigned to. digest: of the content; "" where it is unknown, or was removed. run: its id."""

    digest: str = ""
    run: str = ""
    time: float = 0.0


def holders(project: Path, name: str) -> dict[int, NumberHolder]:
    """What the numbers of a name were assigned to, in order.

    Args:
        project: the folder of the project's runs.
    """
    folder = _folder(project, name)
    return {number: _read(project, folder / f"v{number}") for number in _numbers(folder)}


def assign(
    project: Path,
    name: str,
    holder: NumberHolder,
    known: Callable[[], Mapping[int, NumberHolder]],
    seen: dict[tuple[str, int], str] | None = None,
) -> int:
    """Assign a number to content of that digest: that of the version which has it already, or the next one.

    Args:
        known: what the records say, asked only if the folder isn't there.
        seen: digests by name and number that the caller keeps for the next call, so that few files are read.

    Raises:
        OSError: it can't be written.
    """
    folder = _folder(project, name)
    seen = {} if seen is None else seen
    if not folder.is_dir():
        _make(project, folder, known())
    for _ in range(TRIES):
        numbers = _numbers(folder)
        for number in reversed(numbers[-COMPARED:]):
            digest = seen.get((name, number)) or _read(project, folder / f"v{number}").digest
            if digest:
                seen[name, number] = digest
            if digest == holder.digest and _read(project, folder / f"v{number}").digest == digest:  # or it was removed
                return number
        number = numbers[-1] + 1 if numbers else 0
        with contextlib.suppress(FileExistsError):
            confined.write_new(folder / f"v{number}", msgspec.json.encode(holder), root=project)
            return number
    raise OSError(f"{folder}: others took {TRIES} numbers meanwhile")


def forget(project: Path, name: str, number: int, known: Callable[[], Mapping[int, NumberHolder]]) -> None:
    """Have the number stay taken, but no longer by that content: what has it is logged as a new version.

    Args:
        known: see :func:`assign`.

    Raises:
        OSError: it can't be written.
    """
    folder = _folder(project, name)
    if not folder.is_dir():
        _make(project, folder, known())
    confined.write_whole(folder / f"v{number}", msgspec.json.encode(NumberHolder()), root=project)


def _make(project: Path, folder: Path, known: Mapping[int, NumberHolder]) -> None:
    """Make a name's folder with all that is known, at once: who looks sees none of it, or all."""
    confined.make_folder(folder.parent, root=project)
    aside = folder.with_name(f".{secrets.token_hex(8)}.tmp")
    confined.make_folder(aside, root=project)
    try:
        for number, holder in known.items():
            confined.write_new(aside / f"v{number}", msgspec.json.encode(holder), root=project)
        confined.replace(aside, folder, root=project)
    except OSError as error:
        pass_on(error)
        for number in known:
            with suppress(OSError):
                confined.remove(aside / f"v{number}", root=project)
        with suppress(OSError):
            os.rmdir(aside)
        if not folder.is_dir():  # else another run has made it
            raise


def _folder(project: Path, name: str) -> Path:
    try:
        folder = project_folder(name)
    except UsageError:
        folder = f"long-{hashlib.blake2b(name.encode('utf-8', 'replace'), digest_size=20).hexdigest()}"
    return project / FOLDER / "numbers" / folder


def _numbers(folder: Path) -> list[int]:
    with suppress(OSError):
        return sorted(number for entry in os.listdir(folder) if (number := _number(entry)) is not None)
    return []


def _number(entry: str) -> int | None:
    digits = entry.removeprefix("v")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 9 and entry != digits else None


def _read(project: Path, path: Path) -> NumberHolder:
    with suppress(OSError, *UNDECODABLE):
        return msgspec.json.decode(confined.read(path, root=project, most=SMALL_BYTES), type=NumberHolder, strict=False)
    return NumberHolder()
