"""Information about the run in a console log: arguments, GPUs and versions of the machine that trained."""

from __future__ import annotations

import ast
import re
from typing import Any

_COLOR = re.compile(rb"\x1b\[[0-9;]*m")
_ARGUMENT = re.compile(rb"(?:^|[\s\]:])([A-Za-z_][\w.]*) \.{3,} (\S.*)")
_FACTS = {
    "gpu": re.compile(
        rb"\b(AMD Instinct MI\d+\w*|AMD Radeon(?: \w+){1,3}|Tesla [A-Z]\d+[\w-]*"
        rb"|NVIDIA (?:RTX |GeForce |TITAN )?(?:GB?|GH|H|A|B|L|V|T)?\d{2,4}\w*(?:[ -](?:SXM\d?|PCIe|NVL|HBM\w*|\d+GB))*)"
    ),
    "pytorch_version": re.compile(
        rb"\b(?:py)?torch(?:[ _.]+version)?_*['\"]?\s*[:=]+\s*['\"]?v?(\d+\.\d[\w.+-]*)", re.I
    ),
    "rocm_version": re.compile(rb"\b(?:rocm|hip)[ _-]?(?:version)?['\"]?\s*[:=]\s*['\"]?v?(\d+\.\d[\w.-]*)", re.I),
    "cuda_version": re.compile(rb"\bcuda[ _-]?(?:version)?['\"]?\s*[:=]\s*['\"]?v?(\d+\.\d[\w.-]*)", re.I),
}
_HINT = re.compile(rb"amd|nvidia|tesla|torch|rocm|hip|cuda", re.IGNORECASE)
_BUILD = re.compile(r"\+(rocm|cu)(\d[\d.]*)")
LINES = 20_000
"""Number of first lines without values that are searched for arguments and machines."""


class MachineFacts:
    """Gathers what lines without values say. ``arguments``: the program's own; ``machine``: gpu and versions."""

    def __init__(self) -> None:
        self.arguments: dict[str, Any] = {}
        self.machine: dict[str, str] = {}
        self._left = LINES

    def see(self, line: bytes) -> None:
        """Look at a line."""
        if self._left <= 0:
            return
        self._left -= 1
        if b"\x1b" in line:
            line = _COLOR.sub(b"", line)
        if b" ..." in line and (match := _ARGUMENT.search(line)):
            self.arguments.setdefault(match[1].decode(), _value(match[2].decode("utf-8", "replace").rstrip()))
        elif _HINT.search(line):
            for name, pattern in _FACTS.items():
                if name not in self.machine and (match := pattern.search(line)):
                    self.machine[name] = match[1].decode("utf-8", "replace").strip()
            build = _BUILD.search(self.machine.get("pytorch_version", ""))
            if build:
                name, digits = ("rocm_version" if build[1] == "rocm" else "cuda_version"), build[2]
                self.machine.setdefault(name, digits if "." in digits else f"{digits[:-1]}.{digits[-1]}")


def _value(text: str) -> Any:
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, (int, float, bool, str, type(None), list)) else text
