"""Where the processes of one user meet on one machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trackers.support.runtime_directory import directory


def test_variables_that_name_no_directory_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job or a container inherits XDG_RUNTIME_DIR from a login of another machine; TMPDIR may be as wrong."""
    runtime, temporary = tmp_path / "runtime", tmp_path / "temporary"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    monkeypatch.setenv("TMPDIR", str(temporary))
    own = f"trackers-{os.geteuid()}"
    assert directory() == Path("/tmp", own)
    temporary.mkdir()
    assert directory() == temporary / own
    runtime.write_text("a file")
    assert directory() == temporary / own
    runtime.unlink()
    runtime.mkdir()
    assert directory() == runtime / "trackers"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "runtime")
    monkeypatch.chdir(tmp_path)
    assert directory() == temporary / own, "a relative path means another directory to each process"


def test_another_users_directory_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `su`, which keeps the variable."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/theirs")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(os.path, "isdir", lambda path: True)
    monkeypatch.setattr(os, "access", lambda path, _mode: path != "/theirs")
    assert directory() == tmp_path / f"trackers-{os.geteuid()}"
