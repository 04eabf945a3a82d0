"""YAML is read with what it means, and no short text stands for a very long or a very deep one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trackers.errors import UsageError
from trackers.formats.yaml_text import EXPANDED, load_yaml, yaml_text
from trackers.inspection.config import read_yaml
from trackers.training.wandb_arguments import read_config

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_read_back(value: object) -> None:
    """Whatever JSON can hold: numbers, names and texts stay what they are."""
    assert load_yaml(yaml_text(value)) == json.loads(json.dumps(value))


def bomb(levels: int) -> str:
    """A list of nine, nine of which are in the next, and so on: nine to the power of its levels."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, levels)]
    return "\n".join(lines) + f"\nprogram: x.py\nmethod: grid\nparameters:\n  lr:\n    values: *a{levels - 1}\n"


@pytest.mark.parametrize("levels", [7, 9, 40])
def test_aliases_that_stand_for_too_much_are_refused(levels: int, tmp_path: Path) -> None:
    """Before anything is made of them: in a sweep, in a configuration, in tensor inspection."""
    text = bomb(levels)
    with pytest.raises(ValueError, match=f"aliases stand for more than {EXPANDED:,} values"):
        load_yaml(text)
    path = tmp_path / "file.yaml"
    path.write_text(text)
    for read in (read_config, read_yaml):
        with pytest.raises(UsageError, match="aliases stand for more than"):
            read(path)


def test_json_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    """In a file of a configuration, which may be JSON."""
    path = tmp_path / "config.json"
    path.write_text('{"a": ' * 100_000)
    with pytest.raises(UsageError, match="nested more than"):
        read_config(path)


def test_few_aliases_are_read() -> None:
    """What people write once and use in several places, and merged mappings."""
    text = "base: &base {lr: 0.1, layers: &l [1, 2]}\na: {<<: *base, lr: 0.2}\nb: [*l, *l]\n"
    assert load_yaml(text) == {
        "base": {"lr": 0.1, "layers": [1, 2]},
        "a": {"lr": 0.2, "layers": [1, 2]},
        "b": [[1, 2], [1, 2]],
    }


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[" * 5000, "nested more than|nesting depth"),  # PyYAML's own bound, since 6.0.4
        ("a: &a [*a]", "an alias stands for what it is in"),
        ("a: [1", "expected"),
        ("a: 2020-13-45", "month"),
        ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("a: *b", "undefined alias"),
        ("a: !!timestamp x", "groupdict"),
        ("a: !!int 0x", "invalid literal"),
        ("a: !!set [b]", "expected a mapping"),
    ],
)
def test_what_is_no_plain_yaml_is_one_line(text: str, why: str) -> None:
    """Deep nesting, a value within itself, mistakes, Python's objects."""
    with pytest.raises(ValueError, match=why) as caught:
        load_yaml(text)
    assert "\n" not in str(caught.value)
