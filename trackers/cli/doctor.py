"""``trackers doctor``: can this machine log, deliver and measure?"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import shutil
import sys
from collections.abc import Container
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from trackers.cli.common import AsJson, RunsDir, mistaken, printable
from trackers.cli.roots import runs_root

JOURNAL_BYTES = 100_000_000
_GPU_LIBRARIES = {"nvidia": ("pynvml", "libnvidia-ml.so.1", "nvidia"), "amd": ("amdsmi", "libamd_smi.so", "amd")}


def doctor(context: typer.Context, directory: RunsDir = None, as_json: AsJson = False) -> None:
    """Check versions, logins, GPU libraries, writable places and the newest journals.

    Asks no network. Exit code 1 if logging can't work, or a journal is damaged.

    Example: trackers doctor --json
    """
    root = runs_root(directory)
    program = context.find_root().command
    checks = [
        *_versions(),
        _package(),
        *_trackers(),
        *_plugins(program.commands if isinstance(program, TyperGroup) else ()),
        *_gpus(),
        *_directories(root),
        _journals(root),
        *_agent(),
        _configuration(),
    ]
    if as_json:
        print(json.dumps(checks, indent=2))
    else:
        symbols = {"ok": "✓", "absent": "–", "problem": "✗"}
        for check in checks:
            print(f"{symbols[check['state']]} {check['name']:<24} {printable(check['text'])}")
    raise typer.Exit(1 if any(check["state"] == "problem" for check in checks) else 0)


def _check(name: str, state: str, text: str) -> dict[str, str]:
    return {"name": name, "state": state, "text": text}


def _versions() -> list[dict[str, str]]:
    from trackers._version import __version__

    checks = [
        _check("trackers", "ok", f"{__version__} in {Path(__file__).parent.parent}"),
        _check("python", "ok", f"{platform.python_version()} {sys.executable}"),
    ]
    for name in ("msgspec", "kconfiglib", "psutil", "typer", "rich", "numpy"):
        version = _version(name)
        checks.append(_check(name, "ok" if version else "problem", version or f"missing: pip install {name}"))
    return checks


def _package() -> dict[str, str]:
    from trackers.support import name_clash

    text = name_clash.complaint()
    return _check("package name", "problem" if text else "ok", text or "no other package imports as 'trackers'")


def _agent() -> list[dict[str, str]]:
    if sys.platform != "linux":
        return []
    from trackers.relay.agent import endpoint

    try:
        count = len(endpoint.living())
    except OSError as error:
        return [_check("host agent", "absent", f"TRACKER_AGENT does nothing: {error}")]
    text = f"{count} running, in {endpoint.directory()}" if count else "none now: runs start one (TRACKER_AGENT)"
    return [_check("host agent", "ok" if count else "absent", text)]


def _trackers() -> list[dict[str, str]]:
    from trackers import configuration
    from trackers.backends import registry
    from trackers.errors import CredentialsMissing, MissingPackage, TrackersError
    from trackers.support import client_versions

    options: dict[str, Any] = {}
    pythons: dict[str, str] = {}
    chosen: set[str] = set()  # what init would refuse to begin without
    with contextlib.suppress(TrackersError):
        options = configuration.resolve().to_dict()
        pythons = registry.other_pythons(registry.tracker_names(), options)
        if options["TRACKER_MODE"] == "online":
            chosen = {*registry.parse(str(options["TRACKER"]))}
    checks = []
    for name in registry.tracker_names():
        lacks = "problem" if name in chosen else "absent"
        try:
            cls = registry.check(name, options, elsewhere=name in pythons)
        except (MissingPackage, client_versions.TooOld) as error:
            checks.append(_check(f"tracker {name}", lacks, str(error)))
        except CredentialsMissing as error:
            where = registry.delivered_by(name, pythons) if name in pythons else f"installed {_version(name) or ''}"
            notes = [] if name in pythons else client_versions.notes(registry.precheck(name))
            checks.append(_check(f"tracker {name}", lacks, "; ".join([where, *notes, str(error)])))
        except TrackersError as error:
            checks.append(_check(f"tracker {name}", "problem", str(error)))
        else:
            if name in pythons:
                there = shutil.which(pythons[name]) is not None
                text = f"{registry.delivered_by(name, pythons)}{'' if there else ': no such program'}"
                checks.append(_check(f"tracker {name}", "ok" if there else lacks, text))
                continue
            versions = ", ".join(f"{need} {_version(need) or '?'}" for need in cls.needs)
            text = "; ".join([versions or "needs no package", *client_versions.notes(cls)])
            checks.append(_check(f"tracker {name}", "ok", text))
    return checks


def _plugins(commands: Container[str]) -> list[dict[str, str]]:
    """The distributions whose code runs in training, deliveries and commands, beside this one, and what is wrong in
    them, a row each. commands: ours."""
    from trackers.support import plugins

    found = plugins.brought()
    checks = []
    if found:
        from trackers.plugged import things
    for plugin in found:
        name = f"plug-in {plugin.name}"
        if not plugin.allowed:
            checks.append(_check(name, "absent", f"left out by {plugins.VARIABLE}"))
            continue
        checks.append(_check(name, "ok", f"{plugin.version}: {', '.join(plugin.brings)}"))
        for thing in plugin.brings:
            group, _, called = thing.partition(" ")
            state, text = things.state(f"trackers.{group}", called, commands)
            if state != "ok":
                checks.append(_check(f"{name}, {thing}", state, text))
    missing = plugins.missing(plugin.name for plugin in found)
    return checks + [
        _check(f"plug-in {name}", "absent", f"named by {plugins.VARIABLE}, not installed") for name in missing
    ]


def _gpus() -> list[dict[str, str]]:
    import ctypes

    checks = []
    for vendor, (module, library, extra) in _GPU_LIBRARIES.items():
        try:
            ctypes.CDLL(library)
            driver = f"{library} loads"
        except OSError:
            driver = f"no {library} (no {vendor} driver here)"
        installed = importlib.util.find_spec(module) is not None
        state = "ok" if installed and driver.endswith("loads") else "absent"
        hint = f"{module} installed" if installed else f"pip install 'trackers-relay[{extra}]'"
        checks.append(_check(f"GPU metrics {vendor}", state, f"{driver}; {hint}"))
    return checks


def _directories(root: Path) -> list[dict[str, str]]:
    existing = root.absolute()
    while not existing.exists():
        existing = existing.parent
    writable = existing.is_dir() and os.access(existing, os.W_OK)
    free = shutil.disk_usage(existing).free / 1e9
    text = f"{root.absolute()}: {'writable' if writable else 'not writable: choose another with TRACKER_DIR'}"
    return [_check("runs directory", "ok" if writable else "problem", f"{text}, {free:.1f} GB free")]


def _journals(root: Path) -> dict[str, str]:
    """Whether the newest runs' journals, :data:`JOURNAL_BYTES` of them, are as they were written."""
    from trackers.journal.integrity import check, named
    from trackers.journal.run_directory import RunDirectory, run_paths

    paths = sorted(run_paths(root), key=os.path.getmtime, reverse=True)
    left, count, damaged = JOURNAL_BYTES, 0, []
    for path in paths:
        run = RunDirectory(path)
        checked = check(run) if not run.archived() else []
        if any(stream.damaged or stream.gone for stream in checked):
            damaged.append(f"{run.quoted} {named(checked)}")
        count, left = count + 1, left - sum(stream.size for stream in checked)
        if left < 0:
            break
    if damaged:
        more = f"; {len(damaged) - 1} more" if len(damaged) > 1 else ""
        return _check("journals", "problem", f"{damaged[0]}{more}: trackers sync RUN --verify")
    of = f"the newest {count:,} of {len(paths):,} runs" if count < len(paths) else f"{count:,} runs"
    return _check("journals", "ok" if paths else "absent", f"no line of {of} is damaged" if paths else "no runs yet")


def _configuration() -> dict[str, str]:
    from trackers import configuration
    from trackers.errors import TrackersError

    try:
        options = configuration.resolve()
    except TrackersError as error:
        return _check("configuration", "problem", str(error))
    wrong = mistaken(options)
    if wrong:
        return _check("configuration", "problem", "; ".join(wrong))
    changed = [name for name in options if options.source(name) != "default"]
    return _check("configuration", "ok", ", ".join(f"{n} ({options.source(n)})" for n in changed) or "all defaults")


def _version(distribution: str) -> str:
    from importlib import metadata  # takes longer to import than most commands need

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
