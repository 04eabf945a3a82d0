"""What every tracker and source must stand, with session logs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from session_logs import FORM, SESSION

from tests import again
from tests.backends import test_any_number, test_ascii
from tests.backends.shared import test_append_file
from tests.configuration import test_options
from tests.configuration.test_options import make
from tests.faults import test_secrets
from tests.helpers import Driver, run_info, stream
from tests.journal import test_trust
from tests.readers import test_bombs, test_forms, test_tables, test_vendors
from tests.training import test_forking
from trackers.configuration import resolve
from trackers.configuration.kconfig import Tree
from trackers.journal.run_directory import RunDirectory
from trackers.readers import registry
from trackers.testing import check_plugin
from trackers.tracker import RunInfo

SYMBOLS = ("SESSION_DIR", "SESSION_LOG_INTERVAL_STEPS", "SESSION_PERFORMANCE_LOG_STEPS",
           "SESSION_GPU_SNAPSHOT_INTERVAL", "SESSION_DETAILED_COMMUNICATION_LOGS", "TRAINING_LOG_LEVEL",
           "MULTIGPU_LOG_LEVEL")  # fmt: skip


def held(info: RunInfo, out: Path) -> Any:
    """The files of a session, without what says when they were written."""
    found: dict[str, Any] = {}
    for path in sorted((out / "session").rglob("*")):
        if path.is_file():
            text = path.read_text("utf-8")
            found[path.relative_to(out).as_posix()] = content = json.loads(text) if path.suffix == ".json" else text
            for part in (content, content["session"]) if isinstance(content, dict) else ():
                for name in ("timestamp", "generated", "created", "written"):
                    part.pop(name, None)
    return found


def holds(run: RunDirectory) -> dict[str, object]:
    """What of an edit the summary has."""
    (path,) = Path("logs").rglob("*summary.json")
    found = json.loads(path.read_text())["session"]
    names = {"name": "run_name", "tags": "tags", "group": "group"}
    return {**{name: found[key] for name, key in names.items()}, "results": found["results"].get("acc")}


globals().update(
    again.of_tracker("session", {"SESSION_DIR": "session"}, held, (holds, ("name", "tags", "group", "results"))),
    **again.of_reader("session", "one_summary.json"),
)
for _names in (test_ascii.FILES, test_ascii.VERIFIED, test_secrets.SHARED, test_forking.LOGS):
    _names.append("session")
test_run_under_an_ascii_locale_keeps_every_name = test_ascii.test_run_under_an_ascii_locale_keeps_every_name
test_files_of_a_run_are_for_whom_it_is_shared_with = test_secrets.test_files_of_a_run_are_for_whom_it_is_shared_with
test_parents_part_is_no_attempt = test_forking.test_parents_part_is_no_attempt
test_delivery_goes_on_after_any_number = again.with_values(
    test_any_number.test_delivery_goes_on_after_any_number, ["session"]
)
test_files_removed_while_they_are_written_come_back = again.with_values(
    test_append_file.test_files_removed_while_they_are_written_come_back, ["session"]
)
test_other_files_that_a_pattern_takes_in_are_left_out = again.with_values(
    test_vendors.test_other_files_that_a_pattern_takes_in_are_left_out,
    [("one_summary.json", "session:*_summary.json", '{"session": {"session_id": "s"}}')],
)
test_tables.TEXTS["one_summary.json"] = json.dumps({"session": {}, "training_metrics": test_tables.ROWS})
test_every_text_is_read_through_one_door = again.with_values(
    test_tables.test_every_text_is_read_through_one_door, ["one_summary.json"], "name"
)


@pytest.mark.usefixtures("utc")
def test_output_has_its_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the reader's output is another than it was, so is its form."""
    test_forms.write(tmp_path, {"s_summary.json": json.dumps(FORM)})
    monkeypatch.setitem(test_forms.SOURCES, "session", lambda place, server: [f"session:{place}"])
    monkeypatch.setitem(test_forms.FORMS, "session", (1, "eb6e39f2e8732d17"))
    test_forms.test_output_has_its_form("session", tmp_path, None)  # type: ignore[arg-type]


@pytest.mark.slow
def test_claims_cost_neither_memory_nor_time() -> None:
    """A file of terabytes of nothing is refused in one line."""
    test_bombs.check_claims(test_bombs.of_nothing(session="s_summary.json"))


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=test_trust.NAMES, state=test_trust.FIELDS, launch=test_trust.NAMES)
def test_delivery_state_leads_nowhere(name: str, state: dict[str, Any], launch: str) -> None:
    """Whatever a delivery's state names, nothing outside of the run's places is touched."""
    test_trust.leads_nowhere({**state, "session": {"name": name}}, launch, "session")


@pytest.mark.heavy
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(identity=test_trust.IDENTITIES, given_=st.booleans())
def test_identity_leads_nowhere(identity: dict[str, Any], given_: bool) -> None:
    """Whatever a run.json says that the reader didn't write, only the run and the reader's places are touched."""
    if given_:
        identity["options"]["SESSION_DIR"] = ""
    test_trust.identity_leads_nowhere(identity, "session")


def test_options_come_from_all_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment, .config, flags, and a checked range; each has its text."""
    (tmp_path / ".config").write_text('CONFIG_SESSION_DIR="here"\nCONFIG_SESSION_LOG_INTERVAL_STEPS=7\n')
    environ = {"TRAINING_LOG_LEVEL": "DEBUG", "SESSION_DETAILED_COMMUNICATION_LOGS": "n"}
    found = resolve({"MULTIGPU_LOG_LEVEL": "15"}, cwd=tmp_path, environ=environ)
    assert [found[symbol] for symbol in SYMBOLS] == ["here", 7, 100, 10, False, "DEBUG", "15"]
    declared = Tree().declarations
    assert all(declared[symbol].prompt and declared[symbol].help.endswith(".") for symbol in SYMBOLS)
    assert [symbol for symbol in SYMBOLS if declared[symbol].instructs] == ["SESSION_DIR"]
    assert declared["SESSION_GPU_SNAPSHOT_INTERVAL"].depends == "TRACKER_SAMPLE"
    assert (declared["SESSION_DIR"].flag, declared["SESSION_DIR"].default) == ("--tracker-session-dir", "./logs")


here = test_options.here


def test_make_hands_on_the_options(here: Path) -> None:
    """Whatever option make is given stands in .config; a misspelt one is named."""
    values = {"SESSION_DIR": "s", "TRAINING_LOG_LEVEL": "DEBUG", "MULTIGPU_LOG_LEVEL": "15",
              "SESSION_LOG_INTERVAL_STEPS": "7"}  # fmt: skip
    done = make(here, *(f"{name}={value}" for name, value in values.items()), "defconfig")
    assert done.returncode == 0, done.stderr
    options = resolve(environ={}, cwd=here)
    assert {name: str(options[name]) for name in values} == values
    done = make(here, "SESION_DIR=x", "defconfig")
    assert "SESION_DIR isn't an option: did you mean SESSION_DIR?" in done.stderr


def test_help_of_the_directory_says_what_is_written_there(tmp_path: Path) -> None:
    """The files lie where the option's help says."""
    place = "training_<date>_<time>/"
    assert place in Tree().declarations["SESSION_DIR"].help
    from trackers.backends import registry as trackers
    from trackers.records import Start

    info = run_info(tmp_path / "run", options={"SESSION_DIR": str(tmp_path / "logs")})
    Driver(trackers.load("session"), info).deliver(stream([Start(time=1.7e9)]))
    assert list((tmp_path / "logs").glob(re.sub("<[^>]+>", "*", place)))


def test_file_needs_no_scheme() -> None:
    """A summary's name says what it is."""
    Path("one_summary.json").write_text(json.dumps(SESSION))
    assert registry.parse("one_summary.json").scheme == "session"


@pytest.mark.slow
def test_distribution_is_whole(tmp_path: Path) -> None:
    """All that it declares can be used."""
    check_plugin("trackers-session", directory=tmp_path)


@pytest.mark.slow
def test_damaged_files_end_in_one_line(tmp_path: Path) -> None:
    """Whatever is changed in a summary."""
    again.fuzzed("session", tmp_path / "seeds")
