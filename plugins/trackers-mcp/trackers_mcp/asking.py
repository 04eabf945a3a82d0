"""SQL of an agent, in a process of its own, which is killed when the query's time is over.

A thread could ask DuckDB to stop, but it looks at that only between vectors of rows: ``levenshtein`` of two long texts
goes on for hours. What a query takes of memory, and what ends its process, ends no server either.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import trackers
from trackers.analysis.sql import sql
from trackers.errors import TrackersError, UsageError
from trackers.readers.boundary import boundary
from trackers_mcp.answers import page, plain

QUERY_S = 30.0
"""Maximum time of a query, in seconds, from when its tables are there: to read many runs for the first time takes
longer."""
LEAST_BYTES = 4 * 1024**3
"""Memory that a query may take in any case; else it may take half of the machine's."""
_BEGUN = "begun\n"
_BOOT = "import json, sys; task = json.loads(sys.stdin.readline()); sys.path[:] = task.pop('path'); " \
    "from trackers_mcp import asking; asking.answer(**task)"  # fmt: skip


def ask(query: str, sources: Sequence[str], root: Path, limit: int, budget: int) -> tuple[list[str], list[Any], int]:
    """The first rows that a query answers, by its columns, and how many rows it has.

    Args:
        limit, budget: maximum number of rows, and their size in tokens.

    Raises:
        UsageError: the query can't be run, or takes too long. TrackersError: a source can't be read.
    """
    own = {str(Path(file).resolve().parents[1]) for file in (trackers.__file__, __file__)}
    path = [part for part in sys.path if os.path.isabs(part) and (part != os.getcwd() or part in own)]
    task = {"path": path, "query": query, "sources": list(sources), "root": str(root), "limit": limit, "budget": budget}
    command = [sys.executable, "-c", _BOOT]
    if sys.version_info >= (3, 11):
        command.insert(1, "-P")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        clock = threading.Timer(QUERY_S, process.kill)
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(f"{json.dumps(task)}\n")
                process.stdin.close()
            said = process.stdout.readline()
            if said == _BEGUN:
                clock.start()
                said = process.stdout.readline()
            process.wait()
        finally:
            clock.cancel()
            process.kill()
    if not said.endswith("\n"):
        late = clock.finished.is_set() and clock.ident is not None and process.returncode < 0
        raise UsageError(f"sql: {_why(process.returncode, late)}")
    found = json.loads(said)
    if "error" in found:
        raise UsageError(found["error"])
    return found["columns"], found["rows"], found["count"]


def _why(code: int, late: bool) -> str:
    if late:
        return f"the query takes more than {QUERY_S:.0f} seconds: ask less of it, or of fewer rows"
    return f"the query ended its process ({code}): ask less of it"


def answer(query: str, sources: Sequence[str], root: str, limit: int, budget: int) -> None:
    """In the process of a query: answer it on standard output."""
    _bound_memory()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # DuckDB draws its progress there

        found: dict[str, Any]
        try:
            with boundary("what was asked for"):
                words = " ".join(re.findall(r"\w+", query))
                sql(f"-- {words}\nselect 1", list(sources), root=Path(root))  # these tables, which are kept
                out.write(_BEGUN)
                out.flush()
                table = sql(query, list(sources), root=Path(root)).table
                rows = [list(row.values()) for row in table.slice(0, max(limit, 1)).to_pylist()]
                kept, _ = page(rows, 0, limit, budget, "rows")
                found = {"columns": plain(table.column_names), "rows": plain(kept), "count": len(table)}
        except TrackersError as error:
            found = {"error": str(error)}
        out.write(json.dumps(found) + "\n")


def _bound_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError, AttributeError):
        import resource

        most = max(LEAST_BYTES, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
