"""The conformance kit for a whole distribution: whatever its entry points name is loaded, and held to its contract."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.analysis import sql
from trackers.backends import registry
from trackers.configuration import kconfig, plugin_options
from trackers.copying import copy
from trackers.errors import MissingPackage, NotFound, TrackersError
from trackers.hardware.gpus import detect
from trackers.hardware.gpus.base import Opening, OpenSource, SourceLost
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.plugged import things
from trackers.readers import registry as readers
from trackers.readers.run_data import load_all
from trackers.records import Config, Finish, Metrics, Record, Start, Summary, Text, encode
from trackers.relay import beside
from trackers.relay.parts.part import TRAINING, Beside, RelayMoment, RelayPart
from trackers.support import plugins
from trackers.tracker import RunInfo

T0 = 1_700_000_000.0
DAMAGED = 200
"""Damaged inputs of each function of the group ``trackers.fuzz``."""
AT_ONCE_S = 1.0
"""How long a method of a part may take: the relay has one thread for all of them."""
NO_FILES = "no files to read: an entry point of trackers.fuzz writes some"


class PluginError(AssertionError):
    """A distribution doesn't hold to what it declares; the message says in what."""


def checked(
    distribution: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Each thing that a distribution brings, as soon as it has passed, and why something wasn't looked at ("": it was).

    Args:
        copies: by scheme, what follows the colon of a place to copy to.

    Raises:
        PluginError: at the first promise that isn't kept.
    """
    brings = [entry for entry in plugins.all_entries() if plugins.same(entry.distribution, distribution)]
    _require(bool(brings), f"{distribution} isn't installed, or has no entry point of ours: {plugins.PAGE}")
    for entry in brings:
        name = f"{entry.group.removeprefix('trackers.')} {entry.name}"
        state, text = things.state(entry.group, entry.name)
        _require(state != "problem", f"{name}: {text}")
        if state == "absent":
            yield name, text
            continue
        check = _MORE.get(entry.group)
        why = check(entry.name, directory, copies, options) if check else ""
        yield name, why


Check = Callable[[str, Path, Mapping[str, str], Mapping[str, Any]], str]


def _precheck(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """The tracker derives from it, and to import it loads neither the tracker nor a package that this needs."""
    light, tracker = registry.precheck(name), registry.load(name)
    _require(issubclass(tracker, light), f"tracker {name!r}: {tracker.__name__} doesn't derive from {light.__name__}")
    if tracker.__module__ == light.__module__:
        raise PluginError(f"precheck {name!r} is in the tracker's module: init would load the tracker for it")
    answer = _python(f"import sys; own = set(sys.modules); import {light.__module__}; print(*set(sys.modules) - own)")
    loaded = set(answer.stdout.split())
    heavy = sorted(loaded & {tracker.__module__, *(need.partition(".")[0] for need in light.needs)})
    _require(
        not heavy and answer.returncode == 0, f"precheck {name!r} imports {', '.join(heavy) or answer.stderr[-500:]}"
    )
    light.check({**dict.fromkeys(_symbols(name), ""), **options})
    return ""


def _options(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """Each option has a prompt and a help, which the command line, menuconfig and show-config show."""
    declarations, _ = kconfig.declared()
    for symbol in sorted(plugin_options.read(name).symbols & declarations.keys()):
        declared = declarations[symbol]
        _require(bool(declared.prompt and declared.help), f"option {symbol} has no prompt or no help")
    return ""


def _symbols(name: str) -> frozenset[str]:
    fragment = plugin_options.fragments().get(name)
    return fragment.symbols if fragment else frozenset()


def _copies(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """A run arrives with all that the destination says that it keeps, and a second copy adds nothing."""
    if name not in copies:
        return f"no place to copy to: copies={{'{name}': …}}"
    source, place = _a_run(directory / "copied"), f"{name}:{copies[name]}"
    first, second = ([*copy(str(source), place, directory=directory)] for _ in range(2))
    for report in (*first, *second):
        _require(report.agrees, f"copy to {place}: {report}")
    _require(first[0].stored == second[0].stored, f"copy to {place}: a second copy changed what is there")
    return ""


def _a_run(home: Path) -> Path:
    run = RunDirectory(home / "kit" / "copied")
    run.make()
    run.write_info(RunInfo(id="copied", name="copied", project="kit", directory=str(run.path), created=T0))
    records: list[Record] = [Start(time=T0), Config(time=T0, values={"lr": 0.5, "model": {"depth": 4}})]
    for step in range(20):
        records.append(Metrics(step=step, time=T0 + step, values={"loss": 1 / (step + 1), "odd name/%": step}))
    records += [
        Metrics(step=20, time=T0 + 20, values={"loss": float("nan"), "up": float("inf")}),
        Text(step=20, time=T0 + 20, values={"note": "größer\nas two lines"}),
        Summary(time=T0 + 21, values={"final/best": 0.25}),
        Finish(time=T0 + 22, status="finished", exit_code=0),
    ]
    writer = StreamWriter(run.stream(StreamName("rank", 0, 1)))
    for record in records:
        writer.write(encode(record))
    writer.release()
    return run.path


def _healthy(name: str, folder: Path) -> str:
    """Files of the plug-in's own in a new folder, and the source that names them; "" where it writes none."""
    if name not in plugins.targets(things.SEEDS):
        return ""
    folder.mkdir(parents=True)
    return str(plugins.load(f"fuzz {name!r}", plugins.targets(things.SEEDS)[name])(folder))


def _preload(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """It imports what it names, and leaves no thread: a process that forks has none in its forks."""
    module, _, attribute = plugins.targets(registry.PRELOADS)[name].partition(":")
    code = (
        f"import importlib, operator, sys, threading\n"
        f"try:\n    operator.attrgetter({attribute!r})(importlib.import_module({module!r}))()\n"
        f"except ImportError as error:\n    print(error); sys.exit(3)\n"
        f"print(*(thread.name for thread in threading.enumerate()[1:]))"
    )
    answer = _python(code)
    if answer.returncode == 3:
        return answer.stdout.strip()
    _require(answer.returncode == 0, f"preload {name!r}: {answer.stderr[-500:]}")
    _require(not answer.stdout.strip(), f"preload {name!r} leaves a thread, which forks don't have: {answer.stdout}")
    return ""


def _python(code: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(path for path in sys.path if path)
    words = [sys.executable, "-c", code]
    return subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)


def _commands(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """Each command, and each of a group, can be built and says what it does."""
    from typer.main import get_command

    made: Any = get_command(plugins.load(f"command {name!r}", plugins.targets(plugins.COMMANDS)[name]))
    for inner, command in getattr(made, "commands", {"": made}).items():
        _require(bool(command.help), f"command {f'{name} {inner}'.rstrip()!r} has no help: give it a docstring")
    return ""


def _reader(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """A run that is read twice is the same; its source names it alone; what isn't there is NotFound."""
    source = _healthy(name, directory / f"read-{name}")
    if not source:
        return "" if name in copies else NO_FILES  # a copy is read back
    reader, (scheme, _, where) = readers.load(name), source.partition(":")
    _require(scheme == name, f"fuzz {name!r}: {source} is no source of {name}:")
    for run in reader().runs(where):
        first, second = ([encode(record) for record in reader().read(run)] for _ in range(2))
        _require(first == second, f"reader {name!r}: {run.source}, read twice, gave different records")
        alone = [one.id for one in reader().runs(run.source.removeprefix(f"{name}:"))]
        _require(alone == [run.id], f"reader {name!r}: {run.source} must name the run alone, it names {alone}")
    try:
        answer = f"it found {[one.id for one in reader().runs(f'{where}-nothing-of-this-name')]}"
    except NotFound:
        return ""
    except TrackersError as error:
        answer = f"it was {type(error).__name__}: {error}"
    raise PluginError(f"reader {name!r}: what isn't there must be NotFound, {answer}")


def _sql(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """Each table can be asked, and one of a usual name has what the reader's runs make, in the columns that it has."""
    source = _healthy(name, directory / f"asked-{name}")
    if not source:
        return NO_FILES
    for table in sql.load(name).tables:
        query = f"select * from {table}"  # noqa: S608 - a name of the plug-in's own
        try:
            found = sql.sql(query, source).to_pylist()
        except MissingPackage as error:
            return str(error)
        if table in sql.TABLES:
            told = sql.by_readers(query, [source]).to_pylist()
            columns = sorted(set.intersection(*(set(row) for row in (*found, *told))) if found and told else ())
            one, other = (sorted(str([row[name] for name in columns]) for row in rows) for rows in (found, told))
            differ = next((pair for pair in zip(one, other, strict=False) if pair[0] != pair[1]), ("", ""))
            _require(
                one == other,
                f"sql {name!r}: {table} has {len(found)} rows, the reader's runs {len(told)}; {columns}: {differ}",
            )
    return ""


def _part(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """Beside a training that ends as it should, each method returns at once, and it has ended in time."""
    run, said = RunDirectory(_a_run(directory / f"beside-{name}")), list[str]()
    make = plugins.load(f"part {name!r}", plugins.targets(beside.GROUP)[name])
    part = make(Beside(run, run.read_info(), 1, lambda text, source: said.append(text)))
    if part is None:
        return "it makes no part for a run without options"
    _require(isinstance(part, RelayPart), f"part {name!r} made no RelayPart but {type(part).__name__}")
    over = RelayMoment("over", ended_s=1.0)
    calls: list[tuple[str, Callable[[], object]]] = [
        ("begin", part.begin), *[("poll", lambda: part.poll(TRAINING))] * 3, ("pid", lambda: part.pid),
        ("give_way", part.give_way), ("end", lambda: _ends(part, over)),
        ("ended", lambda: part.ended(Finish(time=T0 + 22, status="finished", exit_code=0))),
        ("pause", lambda: part.pause(over)), ("idle", lambda: part.idle), ("close", part.close), ("close", part.close),
    ]  # fmt: skip
    for method, call in calls:
        began = time.monotonic()
        try:
            answer = call()
        except Exception as error:
            raise PluginError(f"part {name!r}: {method} raised {type(error).__name__}: {error}") from error
        took_s = time.monotonic() - began
        if method == "end":
            _require(answer is True, f"part {name!r}: it hadn't ended {beside.END_S:.0f} s after training")
        else:
            _require(took_s < AT_ONCE_S, f"part {name!r}: {method} took {took_s:.1f} s: it has to return at once")
    _require(not any("\n" in text for text in said), f"part {name!r} said more than one line at once: {said}")
    return ""


def _ends(part: RelayPart, moment: RelayMoment) -> bool:
    until = time.monotonic() + beside.END_S
    while not part.end():
        if time.monotonic() > until:
            return False
        part.poll(moment)
        time.sleep(0.1)
    return True


def device_source(name: str) -> OpenSource:
    """What the entry point of a source of devices names."""
    found: OpenSource = plugins.load(f"devices {name!r}", plugins.targets(detect.GROUP)[name])
    return found


def _devices(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """Whether this machine has any: :func:`trackers.testing.check_plugin` reads them."""
    try:
        source = device_source(name)(Opening(lambda text: None, scope="node"))
    except (SourceLost, ImportError):
        source = None
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise PluginError(f"devices {name!r}: opened on this machine it raised {why}") from error
    if source is None:
        return "this machine has none: check_devices reads what a driver of yours says"
    source.close()
    return ""


def _damaged(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """Damaged files are read as far as they go, or refused in one line."""
    folder = directory / f"damaged-{name}"
    source = _healthy(name, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    whole = {path: path.read_bytes() for path in files}
    _require(bool(files) and bool(load_all(source)), f"fuzz {name!r}: {source} holds no run before it is damaged")
    for number in range(DAMAGED):
        dice = random.Random(number)
        path = dice.choice(files)
        path.write_bytes(damage(whole[path], dice))
        try:
            for data in load_all(source):
                msgspec.json.encode(data.metrics().to_pylist())
                list(data.records())
        except TrackersError as error:
            _require("\n" not in str(error), f"fuzz {name!r}: damage {number} of {path.name} is several lines: {error}")
        except Exception as error:
            raise PluginError(
                f"fuzz {name!r}: damage {number} of {path.name} raised {type(error).__name__}: {error}"
            ) from error
        path.write_bytes(whole[path])
    return ""


def damage(data: bytes, dice: random.Random) -> bytes:
    """Bytes with one or a few of them changed, cut out, put in twice, or replaced by what often means much."""
    found = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 8))):
        at = dice.randrange(len(found) + 1)
        end = min(len(found), at + dice.choice((1, 2, 8, 64)))
        found[at:end] = dice.choice(
            (b"", bytes(dice.randrange(256) for _ in range(end - at)), bytes(found[at:end]) * 2, bytes(end - at),
             b"\xff" * (end - at), b"-1", b"1e999", b"\n")
        )  # fmt: skip
    return bytes(found[: dice.randrange(len(found) + 1)] if dice.random() < 0.2 else found)


_MORE: dict[str, Check] = {
    registry.PRECHECKS: _precheck, registry.PRELOADS: _preload, readers.GROUP: _reader, plugin_options.GROUP:
    _options, "trackers.copies": _copies, plugins.COMMANDS: _commands, sql.GROUP: _sql, beside.GROUP: _part,
    detect.GROUP: _devices, things.SEEDS: _damaged,
}  # fmt: skip


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise PluginError(text)
