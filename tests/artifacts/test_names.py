"""References to versions: W&B's forms, and nothing that leads elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.artifacts.names import Reference, check_alias, parse
from trackers.errors import UsageError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dataset", Reference("", "dataset", "latest")),
        ("dataset:v3", Reference("", "dataset", "v3")),
        ("digits/dataset:best", Reference("digits", "dataset", "best")),
        ("team/digits/dataset:latest", Reference("digits", "dataset", "latest")),
        ("wandb-artifact://team/digits/dataset:v0", Reference("digits", "dataset", "v0")),
        ("a:b:v1", Reference("", "a:b", "v1")),
    ],
)
def test_reference_is_read_as_wandb_writes_it(text: str, expected: Reference) -> None:
    """Entity and project may be left out, and the alias, which is then latest."""
    assert parse(text) == expected
    assert expected.number == (int(expected.alias[1:]) if expected.alias[1:].isdigit() else None)


@pytest.mark.parametrize("text", ["", ":v1", "a:", "../a:v1", "a/../b", "a//b", "a/b/c/d:v1", "a\nb", "a/b:c/d", "/a"])
def test_bad_reference_is_one_line(text: str) -> None:
    """What can be no name is said so, with the forms that can."""
    with pytest.raises(UsageError, match="can't name an artifact: give name:alias") as error:
        parse(text)
    assert "\n" not in str(error.value)


@pytest.mark.heavy
@given(st.text(max_size=40))
def test_any_text_is_a_reference_or_an_error(text: str) -> None:
    """No other exception, and no part of a reference that leads out of a folder."""
    try:
        found = parse(text)
    except UsageError:
        return
    assert found.name not in ("", ".", "..")
    assert "/" not in found.name + found.project


@pytest.mark.parametrize("alias", ["latest", "v3", "", "a/b", "a:b", "a b", "a,b", "x" * 129, "a\n"])
def test_alias_that_is_not_the_users_is_refused(alias: str) -> None:
    """latest and numbers are given by themselves; an alias must be writable in a reference."""
    with pytest.raises(UsageError, match="alias"):
        check_alias(alias)


def test_users_alias_is_taken() -> None:
    """Any other word."""
    assert check_alias("best") == "best"
