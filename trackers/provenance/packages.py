"""Installed packages: their versions, and where those came from that no index has.

Sources: https://packaging.python.org/en/latest/specifications/direct-url/ (``direct_url.json``),
https://packaging.python.org/en/latest/specifications/name-normalization/,
https://packaging.python.org/en/latest/specifications/version-specifiers/ (local versions, ``2.4.0+cu124``).
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import msgspec

from trackers.errors import UNDECODABLE
from trackers.support.plugins import canonical
from trackers.support.redaction import mask_text

_PACKAGE_FIELD = re.compile(r"^(name|version):[ \t]*(.*?)[ \t]*$", re.I | re.M)
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")


class Origin(msgspec.Struct, omit_defaults=True, frozen=True):
    """Where a package was installed from, if from no index. Logins in addresses are masked.

    kind: "vcs", "archive", "directory" or "editable". url: as pip and uv recorded it. vcs: "git", … commit, hash,
    subdirectory: "" where there is none.
    """

    kind: str
    url: str
    vcs: str = ""
    commit: str = ""
    hash: str = ""
    subdirectory: str = ""


def installed() -> dict[str, str]:
    """Installed distributions and their versions, sorted by name."""
    return {name: version for name, (version, _) in _packages_on(tuple(sys.path)).items()}


def origins() -> dict[str, Origin]:
    """The distributions among them that were installed from an address, a directory or a repository."""
    return {name: origin for name, (_, origin) in _packages_on(tuple(sys.path)).items() if origin is not None}


def entry(program: str) -> str:
    """What a program calls that a package installed beside the interpreter, "package.module:function"; "" if none."""
    if os.path.dirname(program) != os.path.dirname(sys.executable) or not os.path.isabs(program):
        return ""
    scripts = metadata.entry_points(group="console_scripts", name=os.path.basename(program))
    return next((script.value for script in scripts), "")


def is_cached() -> bool:
    """Whether this process has listed its packages already."""
    return bool(_packages_on.cache_info().currsize)


@functools.lru_cache(maxsize=1)
def _packages_on(path: tuple[str, ...]) -> Mapping[str, tuple[str, Origin | None]]:
    packages: dict[str, tuple[str, Origin | None]] = {}
    seen: set[str] = set()
    for distribution in metadata.distributions(path=list(path)):
        # ``distribution.metadata`` parses all of it: for a hundred packages, longer than the relay takes to start.
        # The last: an ``egg-info`` that is a file, as ``importlib.metadata`` reads it.
        text = next(filter(None, map(distribution.read_text, ("METADATA", "PKG-INFO", ""))), "")
        head = text.replace("\r", "").partition("\n\n")[0]
        fields = {name.lower(): value for name, value in _PACKAGE_FIELD.findall(head)}
        name = fields.get("name", "")
        # Of a package that is installed twice (a virtual environment's and the system's), the first is imported.
        if name and canonical(name) not in seen:
            seen.add(canonical(name))
            direct = distribution.read_text("direct_url.json")
            packages[name] = (fields.get("version", ""), origin(direct) if direct else None)
    return dict(sorted(packages.items(), key=lambda item: item[0].lower()))


def origin(text: str) -> Origin | None:
    """What a ``direct_url.json`` says; None where it says nothing that can be used."""
    try:
        content = msgspec.json.decode(text)
    except UNDECODABLE:
        return None
    if not isinstance(content, dict) or not isinstance(content.get("url"), str):
        return None
    url, subdirectory = mask_text(content["url"]), str(content.get("subdirectory") or "")
    if (vcs := _table(content, "vcs_info")) is not None:
        commit = str(vcs.get("commit_id", ""))
        commit = commit if _COMMIT.fullmatch(commit) else ""
        return Origin("vcs", url, vcs=str(vcs.get("vcs", "")), commit=commit, subdirectory=subdirectory)
    if (directory := _table(content, "dir_info")) is not None:
        return Origin("editable" if directory.get("editable") is True else "directory", url, subdirectory=subdirectory)
    if (archive := _table(content, "archive_info")) is not None:
        hashes = archive.get("hashes")
        digest = str(archive.get("hash") or "").replace("=", ":", 1)
        if isinstance(hashes, dict) and isinstance(hashes.get("sha256"), str):
            digest = f"sha256:{hashes['sha256']}"
        return Origin("archive", url, hash=digest, subdirectory=subdirectory)
    return None


def _table(content: dict[str, Any], name: str) -> dict[str, Any] | None:
    value = content.get(name)
    return value if isinstance(value, dict) else None
