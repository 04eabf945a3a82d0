"""Whose configuration counts when a run is delivered: its own for the reader's runs, else the reader's.

``docs/security.md`` says what of a run directory is data and what is instruction.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from trackers.backends import registry
from trackers.configuration import plugin_options
from trackers.configuration.declaration import is_directory
from trackers.errors import NotFound, UsageError
from trackers.journal import signature
from trackers.journal.helper_process import READER_DIRECTORY
from trackers.journal.run_directory import RunDirectory
from trackers.support import confined, user_directories
from trackers.support.redaction import MASK, reveal
from trackers.tracker import RunInfo


def delivered(run: RunDirectory, *, trusted: bool = False) -> tuple[RunInfo, str]:
    """A run's identity as its delivery uses it, and one line on what was left out of it ("": nothing).

    The run's own options count if the reader's trackers wrote them into a directory of the reader's. Otherwise those
    that name programs, addresses and directories come from the reader's environment and the defconfig that it names.

    Args:
        trusted: the reader says that the run's options count.

    Raises:
        NotFound: no readable ``run.json``. ConfigError: the reader's own configuration is wrong.
    """
    info = run.read_info(edited=False)
    if not confined.is_plain_name(info.id):
        raise NotFound(f"{run.identity}: {info.id!r:.80} can't be a run's id; nothing of this run is delivered")
    if trusted or signature.approved(info):
        return info, ""
    owner = other_owner(run)
    if not owner and signature.valid(info):
        return info, ""
    home = os.environ.get(READER_DIRECTORY) or os.getcwd()
    options, left_out = _options(info.options, home, run.path.absolute())
    foreign = msgspec.structs.replace(info, options=options, home=home, foreign=True)
    if not left_out:
        return foreign, ""
    whose = f"it belongs to {owner}" if owner else "your own trackers didn't write it"
    verb = "comes" if len(left_out) == 1 else "come"
    return foreign, (
        f"run {info.project}/{info.id}: {whose}, so {', '.join(left_out)} {verb} from your configuration, "
        "not the run's; to take the run's: trackers sync --trust"
    )


def options_for(info: RunInfo, tracker: str) -> dict[str, Any]:
    """A run's options as its delivery to one tracker uses them.

    Secrets are those that this process knows. What the run hasn't recorded of a plug-in's options, since the tracker
    was added later, is the reader's.
    """
    options = reveal(info.options)
    if tracker in registry.BUILT_IN:
        return options
    reader = _reader(os.environ.get(READER_DIRECTORY) or os.getcwd(), tracker)[0]
    prefix = plugin_options.prefix(tracker)
    return {**{name: value for name, value in reader.items() if name.startswith(prefix)}, **options}


def need_logins(options: Mapping[str, Any], tracker: str) -> None:
    """See that a plug-in gets the logins in its options: a run's directory holds none.

    Raises:
        UsageError: one is masked, and this process doesn't know it.
    """
    own = plugin_options.prefix(tracker)
    for symbol, value in options.items():
        if tracker not in registry.BUILT_IN and symbol.startswith(own) and isinstance(value, str) and MASK in value:
            raise UsageError(f"{symbol} has a login, which isn't kept with the run: export {symbol}, then again")


def other_owner(run: RunDirectory) -> str:
    """Who else owns a run's directory or its identity; "" if it is this process's user, or root."""
    if not hasattr(os, "geteuid"):  # Windows
        return ""
    ranks = [run.stream(name) for name in run.stream_names() if name.writer == "rank"]
    written = [run.identity] if run.identity.exists() else [path for path in ranks if path.exists()]
    for path in (run.path, *written):
        uid = os.stat(path, follow_symlinks=path == run.path).st_uid
        if uid not in (os.geteuid(), 0):  # root can write anything anyway
            return _user(uid)
    return ""


def owner_of(path: Path) -> str:
    """The account that a file belongs to."""
    return _user(path.lstat().st_uid)


def _user(number: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _options(of_run: dict[str, Any], home: str, directory: Path) -> tuple[dict[str, Any], list[str]]:
    """The options of somebody else's run: instructions are the reader's, values that don't fit are left out."""
    plugins = [name for name in registry.parse(str(of_run.get("TRACKER") or "")) if name not in registry.BUILT_IN]
    reader, tree = _reader(home, ",".join(plugins))
    options: dict[str, Any] = {}
    for symbol, declaration in tree.declarations.items():
        if declaration.instructs:
            options[symbol] = _reader_option(symbol, reader, home)
        elif symbol in of_run and _is_valid(declaration, of_run[symbol]):
            options[symbol] = of_run[symbol]
        else:
            options[symbol] = reader[symbol]
    options |= {symbol: value for symbol, value in reader.items() if symbol not in tree.declarations}
    # What would lie in training's working directory has no place here but the run's own.
    options["BENCHMARK_DIR"] = options["BENCHMARK_DIR"] or str(directory / "benchmark_results")
    # W&B's client follows links: it never writes into a directory that somebody else can change.
    options["WANDB_DIR"] = options["WANDB_DIR"] or str(_private(directory))
    declared = tree.declarations
    named = {symbol for symbol in of_run if symbol not in declared or declared[symbol].instructs}
    default = {symbol: declaration.default for symbol, declaration in tree.declarations.items()}
    left_out = sorted(s for s in named if of_run[s] not in ("", None, default.get(s), options.get(s)))
    return options, left_out


@functools.lru_cache(maxsize=8)
def _reader(home: str, trackers: str) -> tuple[Any, Any]:
    """The reader's options and our own tree. trackers: plug-ins whose options the reader may have given."""
    from trackers import configuration
    from trackers.configuration.kconfig import Tree

    arguments = {"TRACKER": trackers} if trackers else {}
    return configuration.resolve(arguments, cwd=Path(home), project_file=False), Tree()


def _reader_option(symbol: str, reader: Any, home: str) -> str:
    value = str(reader[symbol] or "")
    if not is_directory(symbol) or not value:
        return value
    return "" if reader.source(symbol) == "default" else str(Path(home, Path(value).expanduser()).absolute())


def _is_valid(declaration: Any, value: Any) -> bool:
    from trackers.errors import ConfigError

    if isinstance(value, bool) != (declaration.kind == "bool") or not isinstance(value, (bool, int, str)):
        return False
    try:
        declaration.check(declaration.text(value, "run.json"), "run.json")
    except ConfigError:
        return False
    return True


def _private(directory: Path) -> Path:
    """A directory of the reader's own for what is made of somebody else's run; the same one each time."""
    import hashlib

    return user_directories.of("STATE") / "runs" / hashlib.sha256(os.fsencode(directory)).hexdigest()[:16]
