"""README.md as a package index shows it, which knows neither the checkout nor the tests' tags: a hook of hatchling.

A link to a page of docs leads to the documentation's site, another one and a picture to the repository, at the tag of
the version. Both addresses are those of ``[project.urls]``.
"""

from __future__ import annotations

import importlib.util
import posixpath
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

SITE = Path(__file__).resolve().parent / "docs_site.py"


def absolute(text: str, repository: str, documentation: str, version: str) -> str:
    """A page at the root of the checkout, with each link and picture an address, and nothing that only tests read.

    Args:
        repository: the repository's address. documentation: the site's. Both without a slash at the end.
    """
    spec = importlib.util.spec_from_file_location("docs_site", SITE)
    assert spec is not None
    assert spec.loader is not None
    site = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(site)

    def link(match: re.Match[str]) -> str:
        path, anchor = site.target("README.md", match["target"])
        if not path:
            return match[0]
        folder, name = posixpath.split(path)
        if match["mark"]:
            address = f"{repository}/raw/v{version}/{path}"
        elif folder == site.DOCS and name.endswith(".md"):
            address = f"{documentation}/{version}/{name.removesuffix('.md')}.html"
        else:
            address = f"{repository}/blob/v{version}/{path}"
        return f"{match['mark']}[{match['text']}]({address}{'#' * bool(anchor)}{anchor})"

    parts: list[str] = []
    end = 0
    for block in site.FENCE.finditer(text):
        parts += [site.LINK.sub(link, text[end : block.start()]), block[0]]
        end = block.end()
    return site.plain("".join([*parts, site.LINK.sub(link, text[end:])]))


class ReadmeHook(MetadataHookInterface):
    """Have the distribution's description be README.md with addresses."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme``, which pyproject.toml declares as dynamic."""
        urls: Mapping[str, str] = metadata["urls"]
        text = Path(self.root, "README.md").read_text("utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": absolute(text, urls["Repository"], urls["Documentation"].rstrip("/"), metadata["version"]),
        }
