"""What child processes log, span and print, however they are started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import forked
from trackers.journal.run_directory import RunDirectory
from trackers.journal.stream import StreamReader
from trackers.records import Console, Metrics, Span

SCRIPT = """
import concurrent.futures, multiprocessing, os, sys
import trackers

def work(run, name):
    with run.span(f"span {name}"):
        run.log({f"value/{name}": 1.0})
    print(f"printed by {name}", flush=True)
    return name

class Data:
    def __init__(self, run):
        self.run = run
    def __len__(self):
        return 2
    def __getitem__(self, place):
        work(self.run, f"{self.run.config.how} loader {place}")
        return place

if __name__ == "__main__":
    run = trackers.init("json", project="p", id="r")
    child = os.fork()
    if not child:
        work(run, "os.fork")
        os._exit(0)
    os.waitpid(child, 0)
    for how in ("fork", "spawn", "forkserver"):
        context = multiprocessing.get_context(how)
        run.config.how = how
        process = context.Process(target=work, args=(run, how))
        process.start(), process.join()
        assert process.exitcode == 0
        with concurrent.futures.ProcessPoolExecutor(2, mp_context=context) as pool:
            list(pool.map(work, [run] * 2, [f"{how} pool 0", f"{how} pool 1"]))
        if how != "fork":  # as a loader starts its workers on Linux
            continue
        import torch.utils.data
        loader = torch.utils.data.DataLoader(Data(run), num_workers=2, multiprocessing_context=context)
        assert sorted(int(place) for place in loader) == [0, 1]
    run.finish()
"""


@pytest.mark.slow
@pytest.mark.processes
def test_children_of_every_kind_record_once(tmp_path: Path) -> None:
    """Values and spans of all, and what forked ones print; docs/console-capture.md says when that of others is kept."""
    (tmp_path / "script.py").write_text(SCRIPT)
    variables = {"TRACKER_DIR": "runs", "TRACKER_CONSOLE_CAPTURE": "python"}
    done = forked.run([sys.executable, str(tmp_path / "script.py")], cwd=tmp_path, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr[-3000:]
    names = [f"{how}{part}" for how in ("fork", "spawn", "forkserver") for part in ("", " pool 0", " pool 1")]
    names += ["os.fork", "fork loader 0", "fork loader 1"]
    (place,) = (tmp_path / "runs/p").glob("*/run.json")
    journal = RunDirectory(place.parent)
    records = [
        record
        for name in journal.stream_names()
        for record in StreamReader(journal.stream(name)).read(10_000)
    ]  # fmt: skip
    values = [name for record in records if isinstance(record, Metrics) for name in record.values if "value/" in name]
    assert sorted(values) == sorted(f"value/{name}" for name in names)
    spans = [record.name for record in records if isinstance(record, Span)]
    assert sorted(spans) == sorted(f"span {name}" for name in names)
    printed = [line for record in records if isinstance(record, Console) for line in record.lines]
    lines = [line for line in printed if "printed by" in line]
    assert len(lines) == len(set(lines))
    assert {f"printed by {name}" for name in names if "fork" in name.split()[0] and "server" not in name} <= set(lines)
    assert sorted(done.stdout.splitlines()) == sorted(f"printed by {name}" for name in names)
