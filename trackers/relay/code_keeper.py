"""Keeps what exactly ran (:mod:`trackers.provenance`) in a run's directory, beside training."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trackers.errors import NotFound
from trackers.journal.run_directory import RunDirectory
from trackers.provenance import manifest, modules, packages, places, snapshot, surroundings
from trackers.provenance.manifest import Manifest
from trackers.relay.data_digests import DataDigests
from trackers.support import confined
from trackers.tracker import RunInfo

LOOK_S = 10.0
"""Between two looks for modules that were imported meanwhile, in seconds."""


class CodeKeeper:
    """Of one attempt.

    Args:
        say: called with what the user must know.
    """

    def __init__(self, run: RunDirectory, info: RunInfo, attempt: int, say: Callable[[str], None]) -> None:
        self._run, self._info, self._attempt, self._say = run, info, attempt, say
        self._manifest: Manifest | None = None
        self._told = -1
        self._looked = 0.0
        self._data = DataDigests(run, info, attempt)

    @property
    def wanted(self) -> bool:
        """Whether code is to be recorded, and training has said where it lies."""
        return bool(self._info.option("TRACKER_CODE", True))

    def begin(self, environment: Mapping[str, Any] | None) -> None:
        """Keep what there is so far; go on where another relay did so and died.

        Args:
            environment: as the run's Environment record has it; None: what of it is needed is found out here.
        """
        if not self.wanted:
            return
        try:
            self._manifest = manifest.read(self._run, self._attempt)
        except NotFound:
            self._manifest = self._described(environment or {"packages": packages.installed()})
        if self._size() >= 0 or not self._manifest.seal:
            self._keep()

    @property
    def idle(self) -> bool:
        """Whether there is nothing that it waits for."""
        return self._data.idle

    def poll(self) -> None:
        """Keep what was imported meanwhile, now and then."""
        now = time.monotonic()
        if self._manifest is not None and now - self._looked >= LOOK_S:
            self._looked = now
            if self._size() != self._told:
                self._keep()

    def read_data(self) -> None:
        """Begin to read the files of data that are to be known by their content."""
        if self._manifest is not None:
            self._data.begin()

    def end(self) -> None:
        """Keep what was imported until the end."""
        if self._manifest is not None and self._size() != self._told:
            self._keep()

    def close(self) -> None:
        """Put all that was told into the manifest, and remove where it was told."""
        if self._manifest is None:
            return
        unread = not self._data.idle
        self._data.close()
        data = self._data.found()
        if self._size() != self._told or data:
            self._manifest.data = data
            self._keep(["its files of data weren't all read"] if unread else [])
        self._manifest = None
        for path in (self._spool, self._data.path):
            with contextlib.suppress(OSError):
                confined.remove(path)

    @property
    def _spool(self) -> Any:
        return self._run.path / manifest.name(self._attempt, places.ENDING)

    def _size(self) -> int:
        with contextlib.suppress(OSError):
            return os.lstat(self._spool).st_size
        return -1

    def _described(self, environment: Mapping[str, Any]) -> Manifest:
        info = self._info
        entry = info.attempts[-1] if info.attempts else {}
        git = {name: value for name, value in info.git.items() if name != "root"}
        return Manifest(
            run=info.id,
            attempt=self._attempt,
            time=time.time(),
            program=_text(info.program),
            argv=[_text(word) for word in info.argv],
            cwd=_text(info.cwd),
            python=_text(info.python),
            entry=packages.entry(info.program),
            python_version=platform.python_version(),
            ranks=int(entry.get("ranks", 1)),
            nodes=int(entry.get("nodes", 1)),
            launcher=surroundings.launcher(info.pid) if entry.get("ranks", 1) > 1 else None,
            git=git,
            packages=dict(environment.get("packages", {})),
            origins=packages.origins(),
            container=dict(environment.get("container", {})),
        )

    def _keep(self, notes: Sequence[str] = ()) -> None:
        assert self._manifest is not None
        found = self._manifest
        self._told = self._size()
        head, told = modules.read(self._run, self._attempt)
        if head is not None:
            found.root, found.flags, found.variables = head.root, head.flags, head.variables
        options = self._info.option
        untracked = [part.strip() for part in str(options("TRACKER_CODE_UNTRACKED", "")).split(",") if part.strip()]
        wanted = snapshot.Wanted(
            untracked,
            float(options("TRACKER_CODE_MAX_MB", 10)),
            bool(options("TRACKER_CODE_SUBMODULES", True)),
            os.path.abspath(self._run.path.parent.parent),
        )
        contents = None
        if found.root:
            is_repository = found.root == self._info.git.get("root")
            taken = snapshot.take(found.root, told, found.program, is_repository, wanted)
            found.files, found.untracked, found.notes = taken.files, taken.untracked, taken.notes
            found.submodules = taken.submodules
            paths = [modules.import_path(module, found.root) for module in told]
            found.import_paths = list(dict.fromkeys(path for path in paths if path is not None))
            contents = manifest.pack(taken.contents) if taken.contents else None
        found.notes += notes
        mode = 0o600 if options("TRACKER_PRIVATE", True) else 0o666
        try:
            manifest.write(self._run, found, contents, mode)
        except OSError as error:
            self._say(f"the code that ran isn't kept: {error.strerror}")
            self._manifest = None


def _text(word: str) -> str:
    return word.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
