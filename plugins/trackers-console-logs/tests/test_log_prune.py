"""``prune --logs`` deletes a log once its benchmark result is kept."""

from __future__ import annotations

import gzip
import json

import pytest
from trackers_console_logs import benchmark as primus

from tests import LOGS
from tests.retention.support import program
from tests.retention.test_logs import RESULTS, TEXT, _results, put
from trackers.errors import UsageError
from trackers.retention.prune import benchmark_results, carry_out, due_logs

__all__ = ["_results"]
PRIMUS = (LOGS / "primus-excerpt.log").read_bytes()


def test_log_is_deleted_once_its_result_is_kept() -> None:
    """One whose result was never extracted stays, or is extracted first; one that says nothing of steps just goes."""
    extracted = RESULTS / "extracted.log"
    put(extracted, 1, PRIMUS)
    primus.extract(["--log-file", str(extracted), "--output", f"{RESULTS}/"])
    extracted.unlink()
    put(RESULTS / "extracted.log.gz", 40, gzip.compress(PRIMUS))
    copied = put(RESULTS / "elsewhere/copy.log.gz", 40, gzip.compress(PRIMUS))  # of the same steps
    other = PRIMUS.replace(b"9836.3", b"8888.8").replace(b"9702.1", b"7777.7")
    never = put(RESULTS / "2026-02-02/never.log.gz", 40, gzip.compress(other))
    cut = put(RESULTS / "cut.log.gz", 40, gzip.compress(other)[:-20])
    plain = put(RESULTS / "plain.log.gz", 40, gzip.compress(TEXT))
    before = benchmark_results(RESULTS)
    actions = {entry.path.name: (entry.action, entry.reason) for entry in due_logs(RESULTS)}
    assert actions["extracted.log.gz"] == ("delete", "")
    assert actions[copied.name] == ("delete", "")
    assert actions[plain.name] == ("delete", "")
    assert actions[never.name] == ("keep", "its benchmark's result isn't here: --extract writes it first")
    assert actions[cut.name][0] == "keep"
    for _ in range(2):
        done = program("prune", "--logs", "--extract", "--yes", str(RESULTS))
        assert done.returncode == 0, done.stderr
        assert "never.log.gz" in done.stdout or not never.exists()
        assert not never.exists()
        assert cut.exists()
        assert benchmark_results(RESULTS) == before + 1
    times = [json.loads(path.read_text()).get("raw_step_times") for path in RESULTS.glob("benchmark_*.json")]
    assert [8.8888, 7.7777] in times


def test_log_whose_result_cannot_be_written_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no space for the result, the log stays."""
    log = put(RESULTS / "never.log.gz", 40, gzip.compress(PRIMUS))
    (entry,) = (entry for entry in due_logs(RESULTS, extract=True) if entry.path == log)
    assert entry.action == "extract"

    def refuse(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trackers.benchmark.result.write", refuse)
    with pytest.raises(UsageError, match="No space left"):
        carry_out(entry)
    assert log.exists()
