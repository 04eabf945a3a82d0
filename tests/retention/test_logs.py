"""Loose logs are compressed and deleted in time, results never; backups hold what they should and come back whole."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests import ROOT
from tests.retention.support import DAY_S, files, program
from trackers.errors import NotFound, UsageError
from trackers.readers.helpers import log_id
from trackers.retention import prune
from trackers.retention.archive import make, put_back
from trackers.retention.prune import benchmark_results, carry_out, due_logs

SCRIPT = ROOT / "scripts/cleanup_old_logs.sh"
RESULTS = Path("benchmark_results")
DAY = RESULTS / "2026-01-05"
TEXT = b"[20260105 11:27:48][rank-7/8][INFO] iteration 2/10 | tokens per GPU: 13325.3\n" * 200


def put(path: Path, days: float, content: bytes = TEXT) -> Path:
    """A file that was written some days ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    when = time.time() - days * DAY_S
    os.utime(path, (when, when))
    return path


def put_result(path: Path, log: Path) -> None:
    """A benchmark's result that was extracted from a log."""
    put(path, 400, json.dumps({"raw_step_times": [], "source": {"run_id": log_id(log)}}).encode())


@pytest.fixture(autouse=True)
def _results() -> None:
    """A directory of results with a dated folder, as the storage guide lays it out."""
    put(RESULTS / "benchmark_cuda_20260105_143022.json", 400, b"{}")
    put_result(DAY / "benchmark_rocm_20260105_112906.json", DAY / "training_logs/old.log")
    put(RESULTS / "comparison_report.md", 400, b"# Report\n")
    put(RESULTS / "comparison_plot.png", 400, b"png")
    put(RESULTS / "primus_training_112906.log", 6.9)
    put(DAY / "training_logs/primus_training_112906.log", 7.1)
    put(DAY / "training_logs/new.log.gz", 29.9, gzip.compress(TEXT))
    put(DAY / "training_logs/old.log.gz", 30.1, gzip.compress(TEXT))
    put(RESULTS / "runs/digits/one/run.json", 400, b"{}")
    put(RESULTS / "runs/digits/one/relay.log", 400)


OLD = DAY / "training_logs/primus_training_112906.log"


@pytest.mark.slow
def test_script_compresses_after_7_days_and_deletes_after_30() -> None:
    """The documented script does so in dated folders, too, keeps every result and every run, and says what is left."""
    before = files(RESULTS)
    done = subprocess.run(
        [str(SCRIPT)], capture_output=True, text=True, env={**os.environ, "PYTHON": sys.executable}, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["Cleaned up old training logs", "Benchmark JSONs retained: 2"]
    after = files(RESULTS)
    assert before.keys() - after.keys() == {
        str(OLD.relative_to(RESULTS)),
        "2026-01-05/training_logs/old.log.gz",
    }
    assert after.keys() - before.keys() == {str(OLD.relative_to(RESULTS)) + ".gz"}
    assert {name: after[name] for name in before if name in after} == {n: before[n] for n in before if n in after}
    zipped = OLD.with_name(OLD.name + ".gz")
    assert gzip.decompress(zipped.read_bytes()) == TEXT
    assert time.time() - zipped.stat().st_mtime > 7 * DAY_S


def test_script_without_a_directory_is_one_line(tmp_path: Path) -> None:
    """Where there are no results, it says so and fails."""
    done = subprocess.run(
        [str(SCRIPT), "nowhere"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": sys.executable},
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "no directory nowhere" in done.stderr


def test_command_changes_nothing_without_yes() -> None:
    """``prune --logs`` says what it would do, with sizes by kind; --json tells the same."""
    before = files(RESULTS)
    seen = program("prune", "--logs", str(RESULTS))
    assert seen.returncode == 0, seen.stderr
    assert f"{OLD}  " in seen.stdout
    assert "nothing was changed; add --yes to do it" in seen.stdout
    assert "compressed logs" in seen.stdout
    told = json.loads(program("prune", "--logs", str(RESULTS), "--json", "--compress-after", "0").stdout)
    assert sorted(entry["action"] for entry in told["logs"]) == ["compress", "compress", "delete"]
    assert told["benchmark_results"] == 2
    assert told["sizes"]["logs"] == {"files": 2, "size": 2 * len(TEXT)}
    assert files(RESULTS) == before


def test_log_is_kept_where_nothing_reads_logs() -> None:
    """Whether it has a result isn't known without the distribution that reads logs: the reason says what to install."""
    unknown = put(RESULTS / "unknown.log.gz", 40, gzip.compress(TEXT))
    actions = {entry.path.name: (entry.action, entry.reason) for entry in due_logs(RESULTS, extract=True)}
    install = "pip install 'trackers-relay[logs]'"
    assert actions["old.log.gz"] == ("delete", "")
    assert actions[unknown.name] == ("keep", f"source 'log' is a distribution of its own: {install}")
    assert actions[OLD.name] == ("compress", "")


def test_open_log_is_kept() -> None:
    """A log that a process still has open isn't touched, however long it was silent."""
    with open(OLD, "ab"):
        entry = next(entry for entry in due_logs(RESULTS) if entry.path == OLD)
        assert (entry.action, entry.reason) == ("keep", "a process has it open")
    assert next(entry for entry in due_logs(RESULTS) if entry.path == OLD).action == "compress"


@pytest.mark.slow
@pytest.mark.parametrize("point", ["logs.written", "logs.unlink.before"])
def test_killed_compression_loses_nothing_and_goes_on(point: str) -> None:
    """A kill leaves the log; the next call ends the work."""
    done = program("prune", "--logs", "--yes", TRACKERS_FAILPOINT=f"{point}=kill")
    assert done.returncode == -9
    assert OLD.read_bytes() == TEXT
    assert program("prune", "--logs", "--yes").returncode == 0
    assert not OLD.exists()
    assert gzip.decompress(OLD.with_name(OLD.name + ".gz").read_bytes()) == TEXT


def test_compressed_log_swapped_for_a_link_changes_no_permissions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who can write to a directory of logs may replace what is being written: its permissions go to the file itself."""
    log = put(Path("benchmark_results/a.log"), 8)
    log.chmod(0o666)
    secret = Path("secret")
    secret.write_text("secret")
    secret.chmod(0o600)
    before = secret.stat()

    def swap(path: Path, root: Path) -> str:
        digest = real(path, root)
        path.rename(path.with_name("aside"))
        path.symlink_to(secret.absolute())
        return digest

    real = prune._unzipped_digest
    monkeypatch.setattr(prune, "_unzipped_digest", swap)
    with contextlib.suppress(OSError, UsageError):
        carry_out(due_logs(Path("benchmark_results"))[0])
    after = secret.stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


@pytest.mark.parametrize(("name", "content", "days"), [("x.log", TEXT, 8), ("x.log.gz", gzip.compress(TEXT), 40)])
def test_folder_of_logs_that_becomes_a_link_leads_nowhere(name: str, content: bytes, days: int) -> None:
    """All logs are listed before the first is worked on: who swaps a folder meanwhile has no other file packed or
    deleted, however far above the log it is."""
    put(Path("shared/a/b/c", name), days, content)
    put_result(Path("shared/benchmark_x.json"), Path("shared/a/b/c", name))
    private = put(Path("private/b/c", name), days, content)
    (entry,) = due_logs(Path("shared"))
    assert entry.action in ("compress", "delete")
    Path("shared/a").rename("aside")
    Path("shared/a").symlink_to(Path("private").absolute())
    with pytest.raises(OSError, match="is a link"):
        carry_out(entry)
    assert private.read_bytes() == content
    assert [path.name for path in private.parent.iterdir()] == [name]


def test_log_that_is_written_again_is_not_deleted() -> None:
    """What was listed as old and then written to stays."""
    log = put(Path("shared/x.log.gz"), 40, gzip.compress(TEXT))
    put_result(Path("shared/benchmark_x.json"), log)
    (entry,) = due_logs(Path("shared"))
    log.write_bytes(gzip.compress(b"new"))
    with pytest.raises(UsageError, match="was written"):
        carry_out(entry)
    assert log.exists()


def test_other_compressed_log_is_not_overwritten() -> None:
    """Where ``X.log.gz`` holds something else, both stay, and the command fails with a line."""
    other = put(OLD.with_name(OLD.name + ".gz"), 1, gzip.compress(b"other"))
    done = program("prune", "--logs", "--yes")
    assert done.returncode == 1
    assert "holds something else" in done.stderr
    assert OLD.read_bytes() == TEXT
    assert gzip.decompress(other.read_bytes()) == b"other"


def test_damaged_write_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What doesn't read back as it was isn't kept in the log's place."""
    from trackers.retention import prune

    monkeypatch.setattr(prune, "_unzipped_digest", lambda path, root: "")
    entry = next(entry for entry in due_logs(RESULTS) if entry.path == OLD)
    with pytest.raises(UsageError, match="doesn't read back"):
        carry_out(entry)
    assert [path.name for path in OLD.parent.glob("*primus*")] == [OLD.name]


def test_backups_hold_what_they_should_and_come_back_whole() -> None:
    """minimal: results and reports of all folders; full: everything; restored where files are missing, by tar, too."""
    assert benchmark_results(RESULTS) == 2
    make(RESULTS, "minimal", Path("small.tar.gz"))
    make(RESULTS, "full", Path("all.tar.gz"))
    with tarfile.open("small.tar.gz") as tar:
        assert sorted(tar.getnames()) == [
            "benchmark_results/2026-01-05/benchmark_rocm_20260105_112906.json",
            "benchmark_results/benchmark_cuda_20260105_143022.json",
            "benchmark_results/comparison_report.md",
        ]
    before = {name: entry[0] for name, entry in files(RESULTS).items()}
    Path("there").mkdir()
    subprocess.run(["tar", "-xzf", "../all.tar.gz"], cwd="there", check=True)
    assert {name: entry[0] for name, entry in files(Path("there") / RESULTS).items()} == before
    OLD.unlink()
    assert put_back(Path("all.tar.gz"), Path(), yes=False).files == [str(OLD)]
    assert not OLD.exists()
    done = put_back(Path("all.tar.gz"), Path(), yes=True)
    assert (done.files, len(done.same), done.differ) == ([str(OLD)], len(before) - 1, [])
    assert {name: entry[0] for name, entry in files(RESULTS).items()} == before


def test_backup_commands(tmp_path: Path) -> None:
    """``archive --backup`` and ``restore FILE.tar.gz`` act with --yes, overwrite nothing, and fail with one line."""
    target = Path(time.strftime("benchmarks_backup_%Y%m%d.tar.gz"))
    assert "nothing was written" in program("archive", "--backup", "minimal").stdout
    assert not target.exists()
    done = program("archive", "--backup", "minimal", str(RESULTS), "--yes", "-o", str(target))
    assert done.stdout.startswith(f"Saved {target}: 3 files"), done.stderr
    again = program("archive", "--backup", "minimal", str(RESULTS), "--yes", "-o", str(target))
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    report = RESULTS / "comparison_report.md"
    report.write_bytes(b"mine")
    done = program("restore", str(target), "--yes")
    assert done.returncode == 1
    assert f"{report} differs" in done.stderr
    assert report.read_bytes() == b"mine"
    for arguments, code, text in (
        (("archive", "--backup", "half"), 2, "known are minimal, full"),
        (("archive", "--backup", "full", "nowhere"), 1, "no directory nowhere"),
        (("archive", "-o", "x.tar.gz"), 2, "works only with --backup"),
        (("restore", "nowhere.tar.gz"), 1, "no file nowhere.tar.gz"),
    ):
        done = program(*arguments)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert text in done.stderr


def test_hostile_backup_is_refused() -> None:
    """A file that would lie outside of the directory isn't unpacked; one that is cut is named."""
    with tarfile.open("bad.tar.gz", "w:gz") as tar:
        head = tarfile.TarInfo("../escaped")
        head.size = 1
        tar.addfile(head, io.BytesIO(b"x"))
    with pytest.raises(UsageError, match=r"'\.\./escaped'"):
        put_back(Path("bad.tar.gz"), Path("benchmark_results"), yes=True)
    assert not Path("escaped").exists()
    make(RESULTS, "full", Path("all.tar.gz"))
    Path("cut.tar.gz").write_bytes(Path("all.tar.gz").read_bytes()[:-60])
    OLD.unlink()
    with pytest.raises(NotFound, match="can't be restored whole"):
        put_back(Path("cut.tar.gz"), Path("elsewhere"), yes=True)


def test_every_point_of_keeping_is_killed_at() -> None:
    """No failpoint in what archives, deletes and compresses goes without a test that kills there."""
    import trackers

    package, tests = Path(trackers.__file__).parent / "retention", Path(__file__).parent
    points = {
        point for path in package.glob("*.py") for point in re.findall(r"failpoint\(\"([^\"]+)\"\)", path.read_text())
    }
    text = "".join(path.read_text() for path in tests.glob("test_*.py"))
    assert len(points) > 10
    assert {point for point in points if f'"{point}"' not in text} == set()


def tar(name: str, path: str, headers: dict[str, str], size: int = 1, mode: int = 0o644) -> Path:
    """A backup with one file, of another's making."""
    with tarfile.open(name, "w:gz", format=tarfile.PAX_FORMAT) as made:
        head = tarfile.TarInfo(path)
        head.size, head.pax_headers, head.mode = size, headers, mode
        made.addfile(head, io.BytesIO(b"x" * size))
    return Path(name)


@pytest.mark.parametrize("time", ["nan", "inf", "-inf", "1e300", "-1e300", "x"])
def test_times_of_a_backup_are_bounded(time: str) -> None:
    """A file is put back whose time no calendar knows; its time is that of now."""
    done = put_back(tar("odd.tar.gz", "t/c", {"mtime": time}), Path("into"), yes=True)
    assert done.files == ["into/t/c"]
    assert Path("into/t/c").read_bytes() == b"x"


def test_file_of_a_backup_runs_as_nobody_else() -> None:
    """Permissions come back without set-user-id, set-group-id and the sticky bit, whatever the backup says."""
    put_back(tar("odd.tar.gz", "t/c", {}, mode=0o7755), Path("into"), yes=True)
    assert Path("into/t/c").stat().st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o755), (0o077, 0o700), (0o002, 0o775)])
def test_file_of_a_backup_has_what_the_umask_leaves(umask: int, mode: int) -> None:
    """A backup that somebody else packed opens no file of this directory for others to write to."""
    before = os.umask(umask)
    try:
        put_back(tar("odd.tar.gz", "t/c", {}, mode=0o777), Path("into"), yes=True)
    finally:
        os.umask(before)
    assert Path("into/t/c").stat().st_mode & 0o7777 == mode


@pytest.mark.parametrize(
    "path", [".git/hooks/pre-commit", "t/.GIT/hooks/x", ".ssh/authorized_keys", ".bashrc", "x.py", "../x/y"]
)
def test_backup_leads_into_no_repository_and_no_settings(path: str) -> None:
    """A directory that a backup names gets its files: not the one that it is put back into, and none that programs
    take settings or hooks from."""
    with pytest.raises(UsageError, match="which no backup of results has"):
        put_back(tar("odd.tar.gz", path, {}, mode=0o755), Path("into"), yes=True)
    assert not Path("into").exists()


def test_backup_fills_one_directory() -> None:
    """The one that its first file is in."""
    with tarfile.open("odd.tar.gz", "w:gz") as made:
        for name in ("results/a", "src/b"):
            made.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
    with pytest.raises(UsageError, match="'src/b', which no backup of results has"):
        put_back(Path("odd.tar.gz"), Path("into"), yes=True)
    assert not Path("into/src").exists()


@pytest.mark.parametrize("path", ["t/d\0e", "../up", "/tmp/up", "t/../../up", "t/a\nb", ""])
def test_names_of_a_backup_stay_below(path: str) -> None:
    """Names that lead elsewhere, or that no file has, are refused in one line, and nothing is written."""
    backup = tar("odd.tar.gz", "t/c", {"path": path})
    before = sorted(Path().rglob("*"))
    with pytest.raises((UsageError, NotFound)) as refused:
        put_back(backup, Path("into"), yes=True)
    assert "\n" not in str(refused.value)
    assert sorted(Path().rglob("*")) == before
    assert not Path("/tmp/up").exists()


@pytest.mark.parametrize("path", ["there/thr.txt", "there/deep/thr.txt", "own/there/thr.txt"])
@pytest.mark.parametrize("yes", [True, False])
def test_backup_is_not_put_back_through_a_link(path: str, yes: bool) -> None:
    """Wherever in the path the link is, the first part too: nothing is written where it leads."""
    Path("elsewhere").mkdir()
    Path("into/own").mkdir(parents=True)
    for link in ("into/there", "into/own/there"):
        Path(link).symlink_to(Path("elsewhere").absolute())
    with pytest.raises(UsageError, match="is a link, and a backup is put back through none"):
        put_back(tar("odd.tar.gz", path, {}), Path("into"), yes=yes)
    assert list(Path("elsewhere").iterdir()) == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 2000), byte=st.integers(0, 255), packed=st.booleans())
def test_damaged_backup_ends_in_one_line(place: int, byte: int, packed: bool) -> None:
    """Whatever byte of it is another one, of the archive or of what packs it."""
    content = tar("odd.tar.gz", "t/c", {"mtime": "17.5", "comment": "x" * 40}, size=700).read_bytes()
    damaged = bytearray(content if packed else gzip.decompress(content))
    damaged[place % len(damaged)] = byte
    Path("odd.tar.gz").write_bytes(bytes(damaged) if packed else gzip.compress(bytes(damaged)))
    with contextlib.suppress(UsageError, NotFound):
        put_back(Path("odd.tar.gz"), Path("into"), yes=True)
