"""An SQLite file's path in an address, as SQLAlchemy before and from 2.1 on reads it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trackers.errors import ConfigError
from trackers.formats import sqlite_address

ODD = "/data/a b%20#+é/mlflow.db"


def test_installed_sqlalchemy_reads_the_path_back() -> None:
    """Whatever its version makes of escapes."""
    from sqlalchemy import make_url

    address = f"sqlite:///{sqlite_address.encoded(ODD)}"
    assert make_url(address).database == ODD
    assert sqlite_address.decoded(address.removeprefix("sqlite:///")) == ODD


@pytest.mark.parametrize(("decodes", "text"), [(True, "/data/a%20b%2520%23%2B%C3%A9/mlflow.db"), (False, ODD)])
def test_path_comes_back(monkeypatch: pytest.MonkeyPatch, decodes: bool, text: str) -> None:
    """In both ways of writing, bytes that are no UTF-8 included."""
    monkeypatch.setattr(sqlite_address, "_decodes", lambda: decodes)
    assert sqlite_address.encoded(ODD) == text
    for path in (ODD, str(Path(os.fsdecode(b"/data/\xff/mlflow.db")))):
        assert sqlite_address.decoded(sqlite_address.encoded(path)) == path


def test_question_mark_needs_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without them the database would be made at the name up to the mark."""
    path = "/data/why?/mlflow.db"
    monkeypatch.setattr(sqlite_address, "_decodes", lambda: True)
    assert sqlite_address.decoded(sqlite_address.encoded(path)) == path
    monkeypatch.setattr(sqlite_address, "_decodes", lambda: False)
    with pytest.raises(ConfigError, match=r"directory with a \? in its name"):
        sqlite_address.encoded(path)
