#!/usr/bin/env python
"""Write what agents read, from the table of tools: llms.txt, and the table of docs/agents.md."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "plugins/trackers-mcp")]

from trackers_mcp import texts  # noqa: E402

PAGE = ROOT / "docs/agents.md"
BEGIN, END = "<!-- tools -->\n", "<!-- end of tools -->\n"


def main() -> None:
    """Write both files."""
    (ROOT / "llms.txt").write_text(texts.llms())
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(texts.table()) + "\n\n" + END + after)
    print(f"Saved llms.txt and {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
