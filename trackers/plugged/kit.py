"""The conformance kit for a whole distribution: whatever its entry points name is loaded, and held to its contract."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends import registry
from trackers.configuration import kconfig, plugin_options
from trackers.copying import copy
from trackers.errors import TrackersError
from trackers.journal.run_directory import RunDirectory, StreamName
from trackers.journal.stream import StreamWriter
from trackers.plugged import things
from trackers.readers.run_data import load_all
from trackers.records import Config, Finish, Metrics, Record, Start, Summary, Text, encode
from trackers.support import plugins
from trackers.tracker import RunInfo

T0 = 1_700_000_000.0
DAMAGED = 200
"""Damaged inputs of each function of the group ``trackers.fuzz``."""


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
    code = f"import sys, {light.__module__}; print(*sys.modules)"
    path = os.pathsep.join(path for path in sys.path if path)
    answer = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
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


def _damaged(name: str, directory: Path, copies: Mapping[str, str], options: Mapping[str, Any]) -> str:
    """Damaged files are read as far as they go, or refused in one line."""
    folder = directory / f"damaged-{name}"
    folder.mkdir(parents=True)
    source = plugins.load(f"fuzz {name!r}", plugins.targets(things.SEEDS)[name])(folder)
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
    registry.PRECHECKS: _precheck,
    plugin_options.GROUP: _options,
    "trackers.copies": _copies,
    things.SEEDS: _damaged,
}


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise PluginError(text)
