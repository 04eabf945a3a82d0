"""The facts of all runs that sources name: from the cache if a run hasn't changed, else read again.

Many of our own runs are read by several processes at once.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from trackers._version import __version__
from trackers.analysis.run_stats import VERSION, RunKey, RunStats, facts
from trackers.errors import UNDECODABLE, NotFound, Unavailable
from trackers.journal.fingerprint_cache import FingerprintCache, fingerprint_of
from trackers.journal.run_directory import RunDirectory
from trackers.journal.status import observe
from trackers.readers import helpers, registry
from trackers.readers.boundary import boundary
from trackers.readers.journal import JournalReader, source_run
from trackers.readers.reader import Reader, SourceRun
from trackers.records import escaped
from trackers.support import machines
from trackers.support.progress import counted, progress

SHARED_BYTES = 32 * 1024 * 1024
"""Minimum amount of data for which starting a second process pays off."""
WORKERS = 8
FACTS_VERSION = f"facts {VERSION} of {__version__}"
"""Changes when the meaning of the cached facts changes."""


class Gathered(NamedTuple):
    """runs: in the order of the sources, the runs of one source newest first; each once. problems: why others are left
    out.

    fingerprints: of the files of our own runs, by the runs' sources, from before they were read.
    """

    runs: list[RunStats]
    problems: list[str]
    fingerprints: dict[str, str]


def gather(
    sources: Iterable[str], root: Path | None = None, kind: type[RunStats] | type[RunKey] = RunStats
) -> Gathered:
    """The facts of every run that the sources name.

    Args:
        root: where our own runs lie; default what ``TRACKER_DIR`` says.
        kind: :class:`RunKey` if the rest of the facts isn't needed, which is faster with thousands of runs.

    Raises:
        NotFound: a source names nothing, or nothing that can be read. UsageError: it can't be understood.
    """
    by_source: dict[str, list[RunStats]] = {}
    problems: list[str] = []
    fingerprints: dict[str, str] = {}
    for source in sources:
        if source in by_source:
            continue
        scheme, where = registry.parse(source)
        if scheme == registry.OWN:
            registry.load(scheme)
            runs, more = _own_runs(JournalReader(root).find(where), fingerprints, kind)
            problems += more
            if not runs:
                raise NotFound(more[0] if more else f"no runs in {source}")
            by_source[source] = sorted(runs, key=lambda run: run.created, reverse=True)
        else:
            reader, others = registry.open_source(source, root)
            by_source[source] = helpers.those_of(others, partial(_other, reader), problems.append)
    unique = {run.source: run for runs in by_source.values() for run in runs}
    return Gathered(list(unique.values()), problems, fingerprints)


def kept_facts(reader: Reader, run: SourceRun) -> RunStats | None:
    """The facts that a source keeps of a run, so that nothing else of it need be read; None: it keeps none."""
    encoded = reader.facts(run, FACTS_VERSION)
    if encoded is not None:
        with contextlib.suppress(*UNDECODABLE):
            known = msgspec.msgpack.decode(encoded, type=RunStats)
            known.source = run.source
            return known
    return None


def _other(reader: Reader, run: SourceRun) -> RunStats:
    known = kept_facts(reader, run)
    if known is not None:
        return known
    version = reader.version(run)
    cache = FingerprintCache(f"facts of {run.source}", FACTS_VERSION)
    cached = cache.get("", version, RunStats)
    if isinstance(cached, RunStats):
        return cached
    from trackers.readers.run_data import RunData

    data = RunData(reader, run)
    stats = facts(run, data.blocks(), data.records(), data.status)
    cache.put("", version, stats)
    cache.save()
    return stats


def _own_runs(
    runs: Sequence[RunDirectory], seen: dict[str, str], kind: type[RunStats] | type[RunKey]
) -> tuple[list[RunStats], list[str]]:
    caches: dict[str, FingerprintCache] = {}
    stats: dict[int, RunStats] = {}
    missing: list[int] = []
    fingerprints: list[str] = []
    for number, run in enumerate(runs):
        path = str(run.path)
        folder, name = os.path.split(path)
        cache = caches.get(folder)
        if cache is None:
            cache = caches[folder] = FingerprintCache(f"facts of {Path(folder).resolve()}", FACTS_VERSION)
        fingerprints.append(fingerprint_of(path, known=cache.fingerprint(name)))
        cached = cache.get(name, fingerprints[number], kind)
        if cached is not None:
            if cached.status in ("running", "crashed"):  # it may have died without a word since, or only been silent
                cached.status = observe(run).name
            stats[number] = cached
        else:
            missing.append(number)
    problems = []
    for number, answer in zip(missing, _read([runs[number].path.absolute() for number in missing]), strict=True):
        if isinstance(answer, str):
            problems.append(answer)
            continue
        stats[number] = answer
        answer.source = str(runs[number].path.resolve())  # read by its own path, which leads through no link of others
        folder, name = os.path.split(str(runs[number].path))
        caches[folder].put(name, fingerprints[number], answer)
    for cache in caches.values():
        cache.save()
    seen.update({run.source: fingerprints[number] for number, run in stats.items()})
    return [stats[number] for number in sorted(stats)], problems


def _read(paths: Sequence[Path]) -> list[RunStats | str]:
    """The facts of each run's directory, or why there are none."""
    size = sum(_bytes(path) for path in paths)
    workers = min(WORKERS, machines.processors(), len(paths), 1 + int(size / SHARED_BYTES))
    if workers < 2:
        return [read_one(path) for path in counted(paths, "reading", "runs")]
    shares = [paths[number::workers] for number in range(workers)]
    helpers = [_start(share) for share in shares[1:]]
    answers = []
    with progress("reading", "runs") as tell:
        first = []
        for number, path in enumerate(shares[0]):
            tell(number * workers, len(paths))  # the others are about as far
            first.append(read_one(path))
        answers.append(first)
    for helper, share in zip(helpers, shares[1:], strict=True):
        answers.append(_answers(helper, share))
    results: list[RunStats | str] = [""] * len(paths)
    for number, share_answers in enumerate(answers):
        results[number::workers] = share_answers
    return results


def read_one(path: Path) -> RunStats | str:
    """The facts of one run of ours, read anew, or why it can't be read."""
    try:
        with boundary(str(path)):
            run = source_run(RunDirectory(path))
            blocks, others = JournalReader(path.parent).columns(run, keep=False)
            return facts(run, blocks, others)
    except (NotFound, Unavailable) as error:
        return str(error)


def serve() -> None:
    """What a helper process does: read the runs named on standard input, answer on standard output."""
    paths = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[bytes])
    answers = [read_one(Path(os.fsdecode(path))) for path in paths]
    for answer in answers:
        if isinstance(answer, RunStats):
            answer.source = ""  # who asked knows it, and it may not be UTF-8
    sys.stdout.buffer.write(
        msgspec.msgpack.encode([escaped(answer) if isinstance(answer, str) else answer for answer in answers])
    )


def _start(share: Sequence[Path]) -> subprocess.Popen[bytes]:
    home = str(Path(__file__).resolve().parents[2])
    paths = [path for path in sys.path if os.path.isabs(path) and path != os.getcwd()]
    code = f"import sys; sys.path.insert(0, {home!r}); from trackers.analysis.collect import serve; serve()"
    helper = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert helper.stdin is not None
    helper.stdin.write(msgspec.msgpack.encode([os.fsencode(path) for path in share]))
    helper.stdin.close()
    return helper


def _answers(helper: subprocess.Popen[bytes], share: Sequence[Path]) -> list[RunStats | str]:
    """The facts that a helper process read; what it couldn't read is read here."""
    assert helper.stdout is not None
    with helper:
        content = helper.stdout.read()
    try:
        answers: list[RunStats | str] = msgspec.msgpack.decode(content, type=list[RunStats | str])
    except (*UNDECODABLE, TypeError):
        answers = []
    if len(answers) != len(share):
        return [read_one(path) for path in share]
    for path, answer in zip(share, answers, strict=True):
        if isinstance(answer, RunStats):
            answer.source = str(path)
    return answers


def _bytes(path: Path) -> int:
    try:
        return sum(entry.stat().st_size for entry in os.scandir(path / "streams"))
    except OSError:
        return 0
