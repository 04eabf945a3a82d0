"""Automatic names, and templates filled from the config."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trackers.configuration.run_names import fill_template, project_name, run_name
from trackers.errors import UsageError

CONFIG = {"model": "gpt2", "optimizer": {"name": "adamw", "lr": 1e-4}, "variant": 5, "tags": ["a"], "x.y": True}


@pytest.mark.parametrize(
    ("config", "base"),
    [
        ({"model": "gpt2"}, "gpt2"),
        ({"model": {"name": "gpt2", "depth": 4}}, "gpt2"),
        ({"model_name": "meta-llama/Llama 3"}, "meta-llama-Llama-3"),
        ({"model": {"depth": 4}}, "digits"),
        ({"model": ""}, "digits"),
        ({"model": "///"}, "train"),
        ({}, "digits"),
    ],
)
def test_project_is_the_model_or_the_directory(config: dict[str, object], base: str) -> None:
    """The project's name is readable, and ends in five hex digits."""
    name = project_name(config, "train.py", Path("/home/me/digits"))
    assert re.fullmatch(re.escape(base) + "-[0-9a-f]{5}", name)


def test_project_tells_directories_apart() -> None:
    """Runs of one directory share a project; equally named directories have their own; "/" has a name too."""
    here = project_name({}, "train.py", Path("/a/digits"))
    assert here == project_name({}, "other.py", Path("/a/digits"))
    assert here != project_name({}, "train.py", Path("/b/digits"))
    assert project_name({}, "/x/train.py", Path("/")).startswith("train-")


@pytest.mark.parametrize(
    ("program", "script"),
    [
        ("/home/me/train.py", "train"), ("train", "train"), ("my script.py", "my-script"), ("", "python"),
        ("-c", "python"), ("/x/package/__main__.py", "package"), ("/x/ipykernel_launcher.py", "notebook"),
        ("...", "run"),
    ],
)  # fmt: skip
def test_run_is_the_script_and_the_time(program: str, script: str) -> None:
    """The run's name is the script's with the local date and time."""
    moment = time.mktime((2025, 11, 21, 12, 10, 29, 0, 0, -1))
    assert run_name(program, moment + 0.9) == f"{script}_20251121_121029"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{model}_{variant}", "gpt2_5"),
        ("{optimizer.name}-{optimizer/lr}", "adamw-0.0001"),
        ("{x.y}{x/y}", "TrueTrue"),
        ("plain", "plain"),
        ("{{model}} {model}", "{model} gpt2"),
        ("", ""),
    ],
)
def test_template_is_filled(template: str, text: str) -> None:
    """Names in braces become the config's values, nested ones by their path."""
    assert fill_template(template, CONFIG) == text


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{modle}", "the config has no 'modle': did you mean {model}? Known: model, optimizer/name,"),
        ("{lr}", "the config has no 'lr': did you mean {optimizer/lr}?"),
        ("{optimizer}", "'optimizer' isn't a single value; its values: optimizer/name, optimizer/lr"),
        ("{tags}", "'tags' isn't a single value"),
        ("{}", "the config has no ''"),
        ("{model", "lone '{'"),
        ("model}", "lone '}'"),
        ("{model.__class__}", "the config has no 'model.__class__'"),
        ("{model!r}", "the config has no 'model!r'"),
        ("{model:>10000000}", "the config has no 'model:>10000000'"),
        ("{0.__init__.__globals__}", "the config has no"),
    ],
)
def test_template_mistake_is_named(template: str, message: str) -> None:
    """An unknown name is an error that shows the known ones; Python's format language isn't understood."""
    with pytest.raises(UsageError) as caught:
        fill_template(template, CONFIG)
    assert message in str(caught.value)


def test_template_with_an_empty_or_large_config() -> None:
    """The error stays readable without any config, and with a thousand values."""
    with pytest.raises(UsageError, match=r"the config has no 'model'\. The config is empty\."):
        fill_template("{model}", {})
    with pytest.raises(UsageError, match="and 980 more"):
        fill_template("{zzz}", {f"key_{number}": number for number in range(1000)})


@pytest.mark.slow
@given(st.text(), st.dictionaries(st.text(min_size=1), st.integers() | st.text()))
def test_any_template_gives_text_or_a_usage_error(template: str, config: dict[str, int | str]) -> None:
    """No template, however odd, raises anything but a UsageError, and one without braces stays as it is."""
    try:
        text = fill_template(template, config)
    except UsageError:
        assert "{" in template or "}" in template
    else:
        assert text == template or "{" in template or "}" in template


@pytest.mark.heavy
@given(st.text(), st.text(), st.floats(0, 4e9))
def test_names_are_safe_for_files(model: str, program: str, moment: float) -> None:
    """Automatic names never hold a separator, a space or a leading dot."""
    for name in (project_name({"model": model}, program, Path("/x/y")), run_name(program, moment)):
        assert re.fullmatch(r"(?!\.)[\w.-]+", name)
