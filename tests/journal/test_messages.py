"""What the relay has to say to the user: once, on one printable line, and again only when it is news again."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from trackers.journal.messages import MOST_TIMES, RECOVERED, Masking, MessageReader, Messages, one_line, print_masked

AWAY, BACK = "mlflow: no answer from http://127.0.0.1:5000", f"mlflow: {RECOVERED}"


def said(*texts: str) -> list[str]:
    """What reaches the user of these texts of one source, each by a delivery that may be a new process."""
    path = Path("messages.jsonl")
    reader = MessageReader(path)
    for number, text in enumerate(texts):
        if number % 3 == 0:
            writer = Messages(path)
        writer.say(text, source="mlflow")
    return [message.text for message in reader.read()]


def test_text_is_said_once() -> None:
    """However often, and by however many processes, a text that isn't news is said once."""
    assert said(*[AWAY] * 10, "other", AWAY) == [AWAY, "other"]


def test_outage_with_the_words_of_an_earlier_one_is_said_again() -> None:
    """Between two outages the tracker had recovered: the second is news, its end too."""
    assert said(AWAY, AWAY, BACK, BACK, AWAY, BACK) == [AWAY, BACK, AWAY, BACK]


def test_recovery_of_one_tracker_repeats_nothing_of_another() -> None:
    """Each source has its own outages."""
    path = Path("messages.jsonl")
    reader, writer = MessageReader(path), Messages(path)
    for text, source in ((AWAY, "mlflow"), ("gone", "wandb"), (BACK, "mlflow"), ("gone", "wandb")):
        writer.say(text, source=source)
    assert [message.text for message in reader.read()] == [AWAY, "gone", BACK]


def test_server_that_comes_and_goes_is_told_of_for_a_while() -> None:
    """A text that comes true again and again ends: a terminal isn't flooded."""
    assert len(said(*[AWAY, BACK] * 100)) == 2 * MOST_TIMES


def test_lines_are_printable() -> None:
    """No line break, no terminal escape, no endless line."""
    text = one_line("a\nb\x1b[31mred\x1b[0m\x07\u202e" + "x" * 10_000)
    assert text.isprintable()
    assert text.startswith("a b")
    assert len(text) == 600


def test_messages_and_tracebacks_hold_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of clients quote addresses and headers: what is said, logged and printed of them is masked before."""
    told = "403 for http://ada:hunter2222@host/x, Authorization: Bearer abcdefghij0123456789, api_key='opensesame'"
    secrets = ("hunter2222", "abcdefghij0123456789", "opensesame")
    messages = Messages(tmp_path / "messages.jsonl", echo=True)
    messages.say(told, source="mlflow")
    record = logging.LogRecord("urllib3", logging.WARNING, "x.py", 1, "%s", (told,), None)
    logged = Masking("%(name)s %(message)s").format(record)
    print_masked(ValueError, ValueError(told), None)
    written = (tmp_path / "messages.jsonl").read_text() + logged + capsys.readouterr().err
    assert [secret for secret in secrets if secret in written] == []
    assert written.count("http://ada:***@host/x") == 4
