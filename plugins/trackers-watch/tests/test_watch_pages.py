"""What holds of all commands that look for runs: docs/watch.md, wrong places, options' names and help."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from tests import ROOT, again
from tests.cli import test_wrong_place
from tests.cli.test_help import shown
from tests.e2e import test_docs
from trackers.cli.app import app

test_page_does_what_it_shows = again.with_values(test_docs.test_page_does_what_it_shows, [ROOT / "docs/watch.md"])
here = test_wrong_place.here
test_wrong_directory = again.with_values(test_wrong_place.test_wrong_directory, ["watch"], "command")
test_wrong_project = again.with_values(test_wrong_place.test_wrong_project, ["watch"])


@pytest.mark.parametrize("option", ["--keys", "--metrics"])
def test_metrics_are_chosen_by_the_same_options(option: str) -> None:
    """Whichever of the two names somebody knows from another command."""
    done = CliRunner().invoke(app, ["watch", "digits-mlp", option, "lo*"])
    assert done.exit_code == 0, done.output or done.exception
    assert "loss" in done.output


def test_choices_are_shown() -> None:
    """An option that takes some words only names them where its value stands."""
    assert "step|time" in shown("watch", columns=160)
