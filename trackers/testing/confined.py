"""Does a tracker store files of the run's directory alone, though a record names others?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trackers.errors import Rejected
from trackers.records import ArtifactFile, ArtifactRecord
from trackers.testing.driver import Driver, number, resolve
from trackers.tracker import RunInfo, Tracker

T0 = 1_700_000_000.0


class ConfinedError(AssertionError):
    """A tracker stored, or would send, a file that isn't the run's."""


def check_confined(tracker: type[Tracker] | str, *, directory: Path, options: Mapping[str, Any] | None = None) -> None:
    """Deliver artifacts whose files lie outside of the run's directory: above it, elsewhere, behind a link in it.

    A run directory may be somebody else's, and what its records name is data: a tracker has to reject such a record
    (:class:`trackers.errors.Rejected`), not read the file.

    Args:
        tracker: the class, or a registered name.
        directory: a new directory.
        options: the run's, by Kconfig symbol.

    Raises:
        ConfinedError: one was accepted; the message names the file.
    """
    __tracebackhide__ = True
    cls = resolve(tracker) if isinstance(tracker, str) else tracker
    home = Path(directory).resolve()
    for count, name in enumerate(("../secret", "/etc/hostname", "link")):
        run = home / f"run-{count}"
        run.mkdir(parents=True)
        (home / "secret").write_text("secret")
        os.symlink("/etc/hostname", run / "link")
        info = RunInfo(id=f"run{count}", name="run", project="kit", created=T0, directory=str(run), cwd=str(home),
                       options=dict(options or {}))  # fmt: skip
        driver = Driver(cls, info, home / f"{count}.json")
        driver.open()
        record = ArtifactRecord(time=T0, name="x", files=[ArtifactFile(path="x", file=name)])
        try:
            driver.write(number([record]))
        except Rejected:
            continue
        raise ConfinedError(f"{cls.name} takes the file {name!r} of an artifact, which isn't in the run's directory")
