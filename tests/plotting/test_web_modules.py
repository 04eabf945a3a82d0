"""Modules of a page's scripts as one script."""

from __future__ import annotations

import re

from trackers.plotting.web_modules import joined
from trackers.ui import pages

MODULES = {
    "main": 'import { one, Two } from "./a.js";\nimport { three } from "./b.js";\n\n'
    "window.found = one() + new Two().x + three;\n",
    "a": 'import { three } from "./b.js";\n\nconst own = 1;\nexport function one() {\n  return own + three;\n}\n'
    "export class Two {\n  x = 2;\n}\n",
    "b": "const own = 2;\nexport const three = own + 1;\n",
}


def test_modules_are_joined_in_the_order_of_their_needs() -> None:
    """Each once, what is needed first, each in a scope of its own, and without imports and exports."""
    script = joined("main", MODULES.__getitem__)
    assert re.findall(r"const module_(\w+)", script) == ["b", "a", "main"]
    assert "const {three} = module_b;" in script.replace("{ three }", "{three}")
    assert "return {one, Two};" in script
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)


def test_all_modules_of_the_live_page_are_joined() -> None:
    """No import and no export is written in another form than what is understood, and each module is reached."""
    script = joined("main", lambda name: pages.part(f"{name}.js"))
    assert not re.search(r"^\s*(import|export)\b", script, re.MULTILINE)
    reached = {f"{name}.js" for name in re.findall(r"^const module_(\w+)", script, re.MULTILINE)}
    assert reached == {name for name in pages.names() if name.endswith(".js")}
