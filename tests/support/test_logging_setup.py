"""Python's logging as a run's options set it: levels, what is left out, and that nothing is touched unasked."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trackers
from trackers.errors import ConfigError
from trackers.frameworks.megatron import LoggerConfig, start
from trackers.support import logging_setup


@pytest.fixture(autouse=True)
def handler(monkeypatch: pytest.MonkeyPatch) -> Iterator[logging.Handler]:
    """A root logger of the test's own, with one handler, and everything put back afterwards."""
    monkeypatch.setenv("TRACKER_RELAY", "n")
    root = logging.getLogger()
    loggers = [one for one in logging.root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    before = [(one, one.level, list(one.handlers), [(h, list(h.filters)) for h in one.handlers])
              for one in (root, *loggers)]  # fmt: skip
    own = Kept()
    root.handlers = [own]
    root.setLevel(logging.WARNING)
    yield own
    for one, level, handlers, filters in before:
        if one.level != level:  # to set it clears the caches of all loggers
            one.setLevel(level)
        one.handlers = handlers
        for handler, kept in filters:
            handler.filters = kept


class Kept(logging.Handler):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.name, record.levelname))


def init(tracker: str = "json", **options: Any) -> None:
    trackers.init(tracker, project="p", mode="offline", options=options).finish()


@pytest.mark.parametrize("tracker", ["json", "console", "none"])
def test_logging_is_left_alone_where_nothing_is_set(tracker: str, handler: logging.Handler) -> None:
    """Without an option neither levels nor handlers nor filters change, with the console either."""
    root = logging.getLogger()
    before = list(root.handlers)
    init(tracker)
    assert (root.level, root.handlers, handler.filters) == (logging.WARNING, before, [])


@pytest.mark.parametrize("level", ["DEBUG", "debug", "10"])
@pytest.mark.parametrize("tracker", ["json", "console", "none"])
def test_level_is_set_by_name_and_number(tracker: str, level: str) -> None:
    """A level by name in any case, or as a number, is the root logger's, whatever the run's trackers are."""
    init(tracker, TRACKER_LOGGING_LEVEL=level)
    assert logging.getLogger().level == logging.DEBUG


def test_later_word_about_the_level_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """File, Megatron Bridge's variable, our variable, flag: each is stronger than the one before."""
    root = logging.getLogger()
    parser = argparse.ArgumentParser()
    trackers.add_arguments(parser)
    base = ["--tracker", "json", "--tracker-project", "p", "--tracker-mode", "offline"]
    (tmp_path / "mine").write_text('CONFIG_TRACKER_LOGGING_LEVEL="ERROR"\n')
    given = [*base, "--defconfig", str(tmp_path / "mine")]
    for change, expected in (
        ({}, 40), ({"MEGATRON_BRIDGE_LOGGING_LEVEL": "INFO"}, 20), ({"TRACKER_LOGGING_LEVEL": "15"}, 15),
    ):  # fmt: skip
        for name, value in change.items():
            monkeypatch.setenv(name, value)
        trackers.init_from_args(parser.parse_args(given)).finish()
        assert root.level == expected
    trackers.init_from_args(parser.parse_args([*given, "--tracker-logging-level", "DEBUG"])).finish()
    assert root.level == 10


def test_what_is_filtered_is_left_out(handler: Kept) -> None:
    """Warnings and names with a prefix aren't shown, by the root's handlers or by a library's own; all else is."""
    library = logging.getLogger("library.part")
    own = Kept()
    library.addHandler(own)
    init(TRACKER_LOGGING_LEVEL="INFO", TRACKER_FILTER_WARNINGS=True, TRACKER_MODULES_TO_FILTER="library.part, noisy")
    for name in ("library.part", "library.party", "noisy.deep", "library.pa", "mine"):
        for number in (logging.INFO, logging.WARNING, logging.ERROR):
            logging.getLogger(name).log(number, "hello")
    assert own.seen == []
    assert handler.seen == [(name, level) for name in ("library.pa", "mine") for level in ("INFO", "ERROR")]
    init(TRACKER_MODULES_TO_FILTER="mine")
    logging.getLogger("noisy.deep").warning("hello")
    logging.getLogger("mine").warning("hello")
    assert handler.seen[4:] == [("noisy.deep", "WARNING")]  # what was set before is replaced


@pytest.mark.slow
def test_every_logger_gets_the_level_where_that_is_asked_for() -> None:
    """Loggers with a level of their own keep it, unless all are to have the root's."""
    library = logging.getLogger("library.quiet")
    library.setLevel(logging.CRITICAL)
    init(TRACKER_LOGGING_LEVEL="INFO")
    assert library.level == logging.CRITICAL
    init(TRACKER_LOGGING_LEVEL="DEBUG", TRACKER_SET_LEVEL_FOR_ALL_LOGGERS=True)
    assert library.level == logging.DEBUG


def test_wrong_level_is_one_line_before_the_run_begins(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A level that is none raises in ``init``, which makes no run; on a command line it is one line and exit code 2.
    The line names the variable that holds it."""
    with pytest.raises(
        ConfigError, match="TRACKER_LOGGING_LEVEL: logging level 'LOUD': give a number, or one of DEBUG"
    ):
        init(TRACKER_LOGGING_LEVEL="LOUD")
    assert not Path("runs").exists()
    parser = argparse.ArgumentParser()
    trackers.add_arguments(parser)
    with pytest.raises(SystemExit) as ended:
        trackers.init_from_args(parser.parse_args(["--tracker", "json", "--tracker-logging-level", "LOUD"]))
    assert ended.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.setenv("MEGATRON_BRIDGE_LOGGING_LEVEL", "LOUD")
    with pytest.raises(ConfigError, match="MEGATRON_BRIDGE_LOGGING_LEVEL: logging level 'LOUD'"):
        init()


def test_megatrons_configuration_sets_the_same(handler: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    """``LoggerConfig``'s four fields hold; the environment's level beats the field, and a flag's beats both."""

    def level(flags: dict[str, Any] | None = None) -> int:
        config = LoggerConfig(logging_level="ERROR", modules_to_filter=["noisy"])
        log = start(config, trackers="json", init={"mode": "offline", "flags": flags}, train_iters=1,
                    global_batch_size=1)  # fmt: skip
        log.run.finish()
        return logging.getLogger().level

    assert level() == 40
    logging.getLogger("noisy").error("hello")
    logging.getLogger("mine").error("hello")
    assert handler.seen == [("mine", "ERROR")]
    monkeypatch.setenv("MEGATRON_BRIDGE_LOGGING_LEVEL", "DEBUG")
    assert level() == 10
    assert level({"TRACKER_LOGGING_LEVEL": "INFO"}) == 20


def test_megatrons_configuration_can_come_from_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that are set fill the fields; those that aren't leave ``LoggerConfig``'s defaults."""
    assert (LoggerConfig.from_options().logging_level, LoggerConfig.from_options().filter_warnings) == (20, True)
    monkeypatch.setenv("TRACKER_MODULES_TO_FILTER", "a, b.c")
    flags = {"TRACKER_LOGGING_LEVEL": "15", "TRACKER_FILTER_WARNINGS": False, "TRACKER_SET_LEVEL_FOR_ALL_LOGGERS": True}
    config = LoggerConfig.from_options(flags)
    assert (config.logging_level, config.filter_warnings, config.modules_to_filter) == ("15", False, ["a", "b.c"])
    assert config.set_level_for_all_loggers


@pytest.mark.slow
def test_loggers_that_nobody_has_made_yet_are_no_fault() -> None:
    """A place in the tree of loggers that nobody asked for is passed over."""
    logging.getLogger("deep.below.here")
    logging_setup.apply({"TRACKER_LOGGING_LEVEL": "INFO", "TRACKER_SET_LEVEL_FOR_ALL_LOGGERS": True})
    assert logging.getLogger("deep.below.here").level == logging.INFO


def test_logging_without_a_handler_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that has set no handler gets one: else what its level lets through wouldn't be shown."""
    logging.getLogger().handlers = []
    logging_setup.configure("INFO", modules_to_filter=["noisy"], environ={})
    logging.getLogger("mine").info("hello")
    logging.getLogger("noisy.part").info("more")
    assert capsys.readouterr().err == "hello\n"
