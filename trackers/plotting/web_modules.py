"""The scripts of pages: ES modules, which a browser takes as they are, or as one script for a page that is one file.

A page that is opened as a file can't import modules: browsers refuse that. Its modules are joined, each in a scope of
its own, in the order in which they need each other.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./(\w+)\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)


def joined(entry: str, source: Callable[[str], str]) -> str:
    """One script of a module and all that it imports.

    Modules have imports of names and exports of declarations alone, as ``make check-web`` holds them.

    Args:
        entry: the module's name. source: a module's text by its name.
    """
    parts: list[str] = []
    done: set[str] = set()

    def take(name: str) -> None:
        if name in done:
            return
        done.add(name)
        text = source(name)
        for _, needed in _IMPORT.findall(text):
            take(needed)
        body = _IMPORT.sub(lambda match: f"const {{{match[1]}}} = module_{match[2]};\n", text)
        exported = ", ".join(found for _, found in _EXPORT.findall(body))
        body = _EXPORT.sub(r"\1 \2", body)
        parts.append(f"const module_{name} = (() => {{\n{body}return {{{exported}}};\n}})();\n")

    take(entry)
    return '"use strict";\n' + "".join(parts)
