"""Sources by scheme: the built-in readers and those that other packages register, through one table."""

from __future__ import annotations

import fnmatch
import glob
import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from trackers.errors import MissingPackage, UsageError, did_you_mean
from trackers.formats.text_file import bare_name
from trackers.journal.run_directory import is_run
from trackers.object_storage.addresses import is_address
from trackers.readers.boundary import bounded
from trackers.readers.reader import Reader, SourceRun, as_reader
from trackers.support import plugins
from trackers.support.optional import found_package

GROUP = "trackers.readers"
"""Entry-point group of reader plug-ins: scheme = "package.module:Class"."""

OWN = "run"
"""The scheme of our own runs, which may be left out: ``latest`` is ``run:latest``."""

STORE = "store"
"""The scheme of runs in a store by its catalogue, of another distribution: where that is, it may be left out."""

WANDB_FILE = "wandb-file"
"""The scheme of ``.wandb`` files and directories of them, which may be left out, too."""

BUILT_IN: dict[str, str] = {
    OWN: "trackers.readers.journal:JournalReader",
    "wandb": "trackers.readers.wandb.api:WandbReader",
    WANDB_FILE: "trackers.readers.wandb.file:WandbFileReader",
    "tb": "trackers.readers.tensorboard.reader:TensorboardReader",
    "mlflow": "trackers.readers.mlflow.reader:MlflowReader",
    "trackio": "trackers.readers.trackio.reader:TrackioReader",
    "json": "trackers.readers.json.reader:JsonReader",
    "csv": "trackers.readers.csv:CsvReader",
    "hf": "trackers.readers.huggingface:HuggingFaceReader",
}
"""The same form as an entry point, so that both are loaded by one function."""

EXTRAS = {"tb": "tensorboard", WANDB_FILE: "wandb", OWN: "analysis"}
"""The extra of ours that brings what a scheme needs, where it isn't the scheme's own name."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9_\-]+):(.*)", re.DOTALL)  # one letter before the colon is a Windows drive

_WANDB_PAGE = re.compile(r"https?://[^/]*wandb[^/]*/([^/?#]+)/([^/?#]+)(?:/runs/([^/?#]+))?")
"""A run's or a project's page, as a browser shows it."""


class Source(NamedTuple):
    """A source, taken apart. scheme: one of :func:`schemes`. where: what follows it."""

    scheme: str
    where: str

    def __str__(self) -> str:
        return f"{self.scheme}:{self.where}"


def schemes() -> list[str]:
    """All schemes, sorted; plug-ins included, and ours that aren't installed."""
    return sorted({*BUILT_IN, *_plugins(), *plugins.ours("source")})


def parse(source: str | os.PathLike[str]) -> Source:
    """Take a source apart: ``scheme:where``, or a run of ours, a ``.wandb`` file or a directory of them, or a file
    whose name says what it is (``out/run.json``).

    Raises:
        UsageError: a scheme that isn't known; the message lists the known ones. Or no text and no path.
    """
    if isinstance(source, os.PathLike):
        source = os.fspath(source)
    if not isinstance(source, str):
        raise UsageError(f"{source!r:.200} is no source: give a text, as in 'latest' or 'tb:runs'")
    if not source.strip():
        raise UsageError(f"a source is empty (an unset variable?): {_listed()} or a run's id, name, directory, latest")
    match = _SCHEME.fullmatch(source)
    if match is not None and not Path(source).exists():  # a file may be called so
        scheme, where = match[1], match[2]
        if scheme in schemes():
            return Source(scheme, where)
        if scheme != "sqlite" and "://" not in source:  # an address has been put where a scheme must stand
            raise _unknown(scheme)
        if is_address(source) and STORE in _plugins():
            return Source(STORE, source)
        if is_address(source):
            others = "; or pip install 'trackers-relay[lake]'"
            others += f"; one of MLflow's is mlflow:{source}#EXPERIMENT" if scheme == "file" else ""
            raise UsageError(f"{source} is a store: give --dir {shlex.quote(source)}, and runs of it{others}")
        page = _WANDB_PAGE.match(source)
        meant = f"wandb:{'/'.join(filter(None, page.groups()))}" if page else f"mlflow:{source}#EXPERIMENT"
        raise UsageError(f"source {source!r} has no scheme: {meant}, or one of {_listed()}")
    if is_run(Path(source).expanduser()):  # whatever somebody has called its directory
        return Source(OWN, source)
    return Source(WANDB_FILE if _is_wandb(source) else _by_file_name(source), source)


def load(scheme: str) -> type[Reader]:
    """The class of a scheme's reader. The packages it uses are looked for, not imported.

    Raises:
        UsageError: no such scheme, or the plug-in can't be loaded. MissingPackage: a package isn't installed.
    """
    target = BUILT_IN.get(scheme) or _plugins().get(scheme)
    if target is None and (install := plugins.install(scheme, "source")):
        raise MissingPackage(f"source {scheme!r} is a distribution of its own: {install}")
    if target is None:
        raise _unknown(scheme)
    what = f"the reader of {scheme!r}"
    found: type[Reader] = plugins.load(what, target)
    cls = found if scheme in BUILT_IN else as_reader(scheme, found)
    for need in cls.needs:
        if not found_package(need):
            raise MissingPackage(f"source {scheme!r} needs the {need} package: pip install '{_requirement(scheme)}'")
    return bounded(cls)


def open_source(source: str | os.PathLike[str], root: Path | None = None) -> tuple[Reader, list[SourceRun]]:
    """The reader of a source and the runs that it names, the newest first; never none.

    Args:
        root: where our own runs lie; default what ``TRACKER_DIR`` says.

    Raises:
        UsageError: the source can't be understood. NotFound: there is nothing.
    """
    scheme, where = parse(source)
    cls = load(scheme)
    reader = cls(root) if scheme == OWN and root is not None else cls()  # type: ignore[call-arg]
    return reader, reader.runs(where)


FILES = (
    ("trainer_state.json", "hf"), ("*_summary.json", "session"), ("*.json", "json"), ("*.jsonl", "json"),
    ("*.ndjson", "json"), ("*.csv", "csv"), ("*.tsv", "csv"), ("*.log", "log"), ("*tfevents*", "tb"),
    ("*.swanlab", "swanlab"), ("*_part_*.parquet", "neptune"),
)  # fmt: skip
"""Patterns of file names, without a packed one's suffix, and their schemes; the first match counts."""


def _by_file_name(source: str) -> str:
    path = Path(source).expanduser()
    if not path.is_file() and "/" not in source and "*" not in source:
        return OWN  # a run may be called so
    return next((scheme for pattern, scheme in FILES if fnmatch.fnmatch(bare_name(path.name), pattern)), OWN)


def _is_wandb(source: str) -> bool:
    path = Path(source).expanduser()
    if path.suffix == ".wandb":
        return True
    if not path.is_dir() or is_run(path):
        return "*" in source and any(
            entry.endswith(".wandb") or _is_wandb(entry) for entry in glob.iglob(str(path)) if "*" not in entry
        )
    return any(any(path.glob(pattern)) for pattern in ("*.wandb", "*run-*/*.wandb", "wandb/*run-*/*.wandb"))


def _listed() -> str:
    return ", ".join(f"{scheme}:" for scheme in schemes())


def _unknown(scheme: str) -> UsageError:
    hint = did_you_mean(scheme, schemes())
    return UsageError(
        f"unknown source scheme {scheme!r}{hint} Known: {_listed()} or a run's id, name, directory, latest"
    )


def _requirement(scheme: str) -> str:
    if scheme in BUILT_IN or scheme in plugins.OURS:
        return f"trackers-relay[{EXTRAS.get(scheme, scheme)}]"
    return plugins.distribution(GROUP, scheme)


def _plugins() -> dict[str, str]:
    return plugins.targets(GROUP, but=BUILT_IN)
