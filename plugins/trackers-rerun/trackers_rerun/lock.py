"""The packages of a run as requirements that ``pip`` and ``uv pip`` install, each with its exact version.

Sources: https://packaging.python.org/en/latest/specifications/dependency-specifiers/,
https://pip.pypa.io/en/stable/reference/requirements-file-format/, https://pytorch.org/get-started (the indexes by which
``2.4.0+cu124`` can be had).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from trackers.errors import examples
from trackers.provenance.manifest import Manifest
from trackers.provenance.packages import Origin
from trackers.provenance.paths import is_below
from trackers.support.plugins import canonical
from trackers.support.redaction import MASK
from trackers.support.terminal import one_line

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,200}[A-Za-z0-9])?")
_VERSION = re.compile(r"[0-9][A-Za-z0-9.!_-]{0,100}(?:\+[A-Za-z0-9._-]{1,60})?")
_TORCH = re.compile(r"cpu|cu\d{2,4}|rocm\d[\d.]{0,8}|xpu")
_URL = re.compile(r"[!-~]{1,2000}")
TORCH_INDEX = "https://download.pytorch.org/whl/{}"


class Lock(NamedTuple):
    """lines: requirements. beside: directories of packages that were installed in editable form, whose files are
    imported from where they lie. remarks: what isn't restored as it was, a line each.
    """

    lines: list[str]
    beside: list[str]
    remarks: list[str]

    def text(self, manifest: Manifest) -> str:
        """A requirements file."""
        head = f"the packages of run {manifest.run}, Python {manifest.python_version}; pip install --no-deps -r FILE"
        comments = (f"# {one_line(said)}" for said in (head, *self.remarks))
        return "".join(f"{line}\n" for line in [*comments, *self.lines])


def lock(manifest: Manifest) -> Lock:
    """What restores the packages of a run."""
    lines: list[str] = []
    beside: list[str] = []
    remarks: list[str] = []
    odd, indexes = [], set()
    for name, version in manifest.packages.items():
        origin = manifest.origins.get(name)
        if not _NAME.fullmatch(name):
            odd.append(name)
        elif origin is not None:
            _direct(name, origin, manifest.root, lines, beside, remarks)
        elif _VERSION.fullmatch(version):
            lines.append(f"{name}=={version}")
            local = version.partition("+")[2]
            if _TORCH.fullmatch(local):
                indexes.add(TORCH_INDEX.format(local))
        else:
            odd.append(name)
    if odd:
        remarks.append(f"not restored, without a version that could be asked for: {examples(odd, 5)}")
    return Lock([*(f"--extra-index-url {index}" for index in sorted(indexes)), *lines], beside, remarks)


def _direct(name: str, origin: Origin, root: str, lines: list[str], beside: list[str], remarks: list[str]) -> None:
    try:
        path = _path(origin.url)
    except ValueError:  # "[" without "]"
        remarks.append(f"{name} isn't restored: its address can't be read")
        return
    tail = f"#subdirectory={origin.subdirectory}" if origin.subdirectory else ""
    if not _URL.fullmatch(origin.url + tail):
        remarks.append(f"{name} isn't restored: its address can't be read")
    elif MASK in origin.url:
        remarks.append(f"{name} isn't restored: its address has a secret that was masked")
    elif origin.kind == "vcs" and origin.commit and re.fullmatch("git|hg|svn|bzr", origin.vcs):
        lines.append(f"{name} @ {origin.vcs}+{origin.url}@{origin.commit}{tail}")
    elif origin.kind == "vcs":
        remarks.append(f"{name} isn't restored: no commit of {origin.url} is known")
    elif path is not None and (path == root or is_below(path, root)):
        if origin.kind == "editable":
            remarks.append(f"{name} was installed from its own files in editable form: those of the run are imported")
        else:
            remarks.append(f"{name} was installed from {path}: the files of the run are imported in its place")
    elif path is not None and not os.path.exists(path):
        remarks.append(f"{name} isn't restored: it was installed from {path}, which isn't there")
    elif path is not None and origin.kind == "editable":
        beside.append(path)
        remarks.append(f"{name} is imported from {path} as it is now: it was installed in editable form")
    elif path is not None and origin.kind == "directory":
        lines.append(f"{name} @ {Path(path).as_uri()}")
        remarks.append(f"{name} is installed from {path} as it is now")
    else:
        digest = f"#{origin.hash.replace(':', '=', 1)}" if origin.hash.startswith("sha256:") else ""
        lines.append(f"{name} @ {origin.url}{digest or tail}")


def _path(url: str) -> str | None:
    parts = urlsplit(url)
    return os.path.normpath(unquote(parts.path)) if parts.scheme == "file" and parts.path.startswith("/") else None


def differences(manifest: Manifest, installed: Mapping[str, str], origins: Mapping[str, Origin]) -> list[str]:
    """How the packages of a Python differ from those of a run, a line each."""
    theirs = {canonical(name): (name, version) for name, version in manifest.packages.items()}
    ours = {canonical(name): (name, version) for name, version in installed.items()}
    from_theirs = {canonical(name): origin for name, origin in manifest.origins.items()}
    from_ours = {canonical(name): origin for name, origin in origins.items()}
    lines = []
    for key, (name, version) in theirs.items():
        if key not in ours:
            lines.append(f"{name} {version} isn't installed")
        elif ours[key][1] != version:
            lines.append(f"{name} {ours[key][1]}, not {version}")
        elif from_ours.get(key) != from_theirs.get(key):
            lines.append(f"{name} {version} was installed from {_origin_text(from_theirs.get(key))}, "
                         f"here from {_origin_text(from_ours.get(key))}")  # fmt: skip
    more = [f"{name} {version}" for key, (name, version) in ours.items() if key not in theirs]
    if more:
        lines.append(f"installed beside those: {examples(more, 5)}")
    return lines


def _origin_text(origin: Origin | None) -> str:
    if origin is None:
        return "an index"
    return f"{origin.url}@{origin.commit}" if origin.commit else origin.url
