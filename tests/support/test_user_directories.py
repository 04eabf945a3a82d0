"""Where a user's own files lie: never where a command happens to be given."""

from __future__ import annotations

from pathlib import Path

import pytest

from trackers.configuration import trusted
from trackers.journal import signature
from trackers.support import environments, user_directories


@pytest.mark.parametrize("kind", ["CONFIG", "DATA", "STATE", "CACHE"])
def test_relative_directory_does_not_count(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cloned directory's own list of trusted directories, key or environments would count by it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv(f"XDG_{kind}_HOME", raising=False)
    usual = user_directories.of(kind)
    assert usual.is_relative_to(tmp_path)
    for named in ("", ".", "planted", "../planted", "~/planted"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", named)
        assert user_directories.of(kind) == usual
    monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / "own"))
    assert user_directories.of(kind) == tmp_path / "own/trackers"


@pytest.mark.parametrize("home", [".", "planted", None])
def test_without_a_home_nothing_of_the_current_directory_counts(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user is in no list: ``~`` stays as it is written, and is a name like any other."""
    for kind in ("CONFIG", "DATA"):
        monkeypatch.delenv(f"XDG_{kind}_HOME", raising=False)
    if home is None:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("os.path.expanduser", lambda path: path)
    else:
        monkeypatch.setenv("HOME", home)
    monkeypatch.chdir(tmp_path)
    planted = tmp_path / (home or "~") / ".config/trackers/trusted"
    planted.parent.mkdir(parents=True)
    planted.write_text(f"{tmp_path}\n")
    assert trusted.directories() == []
    assert all(path.is_absolute() for path in (trusted.list_path(), signature.key_path(), environments.root()))
