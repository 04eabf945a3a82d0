"""The corpus's figures are within their bounds, with other draws than those that the rules were tried on, too."""

from __future__ import annotations

import re

import pytest

from tests import ROOT
from tests.support.secret_corpus import (
    CONTEXTS,
    LEAST_RECALL,
    MOST_FALSE_MASKS,
    harmless,
    main,
    missed,
    rules_not_masked,
    secrets,
    wrongly_masked,
)
from trackers.support.redaction import mask_source, mask_text


def test_corpus_is_large_enough_to_judge() -> None:
    """Hundreds of secrets in more than 25 contexts, two thousand harmless values, and no secret twice."""
    every = list(secrets())
    assert len(every) >= 400
    assert len(CONTEXTS) >= 25
    assert len({secret.text for secret in every}) > 0.95 * len(every)
    assert len(set(harmless())) == len(list(harmless())) >= 2000


@pytest.mark.parametrize("seed", [1, 2, 77])
def test_secrets_of_the_corpus_are_masked(seed: int) -> None:
    """At least 99 % of them: nothing of eight characters is left, in a text as a whole nor line by line."""
    count, left = missed(seed)
    assert len(left) <= (1 - LEAST_RECALL) * count, left


@pytest.mark.parametrize("seed", [1, 2, 77])
def test_harmless_values_of_the_corpus_are_kept(seed: int) -> None:
    """At most 0.5 % of them are masked, in any of the texts that a configuration comes as."""
    count, wrong = wrongly_masked(seed)
    assert len(wrong) <= MOST_FALSE_MASKS * count, wrong


@pytest.mark.heavy
def test_masking_what_is_masked_changes_nothing() -> None:
    """So may a text pass through training, the relay and a reader, each of which masks."""
    texts = [*(secret.text for secret in secrets()), *(f"{one.name}: {one.value}" for one in harmless())]
    for mask in (mask_text, mask_source):
        assert [text for text in texts if mask(once := mask(text)) != once] == []


def test_command_prints_both_figures(capsys: pytest.CaptureFixture[str]) -> None:
    """With what is missed if asked; it fails where a bound is missed."""
    assert main(["--list"]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert "recall" in first
    masked, count, contexts, vendors = re.findall(r"[\d,]+(?= of| in|, recall| contexts| vendors)", first)
    said = f"of {count} secrets in {contexts} contexts and {vendors} vendors' forms, {masked} are masked"
    assert said in (ROOT / "docs/security.md").read_text("utf-8")
    assert "harmless values masked" in second


RULES = """
[[rules]]
id = "ours"
regex = '''\\b(ghp_[0-9a-zA-Z]{36})(?:[\\x60'"\\s;]|\\\\[nr]|$)'''
[[rules]]
id = "nobody's"
regex = '''\\b(zzy_[0-9a-f]{36})\\b'''
[[rules]]
id = "by name"
regex = '''(?i)[\\w.-]{0,50}?(?:zzy)(?:[ \\t\\w.-]{0,20})=([a-z0-9]{32})'''
"""


def test_rules_of_gitleaks_are_compared() -> None:
    """Those that tell by form alone: what a scanner knows and this package doesn't is named."""
    assert list(rules_not_masked(RULES)) == ["nobody's"]
