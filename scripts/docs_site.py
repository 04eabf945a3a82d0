"""Turn the pages of the checkout into pages of a site; the hooks that mkdocs.yml names.

- README.md, CONTRIBUTING.md, CHANGELOG.md and SECURITY.md are pages of the site, too.
- A code block's tags for the tests (``bash run``) and comments are left out; the name of its file is its title.
- A link out of docs leads to the page that its target is, else it is the text alone. A link whose text is the name of a
  page's file gets the page's title, or its heading.
- Anchors are GitHub's, so that a link works there and here.
- A page that requests anything from elsewhere ends the build.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
PAGES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "reporting.md": "SECURITY.md",
}
"""Pages of the site that are files at the root."""

FENCE = re.compile(r"^(?P<indent> *)(?P<ticks>```+)(?P<info>[^`\n]*)\n(?P<body>.*?)^ *(?P=ticks)[ ]*$", re.M | re.S)
COMMENT = re.compile(r"^ *<!--.*?-->\n", re.M | re.S)
LINK = re.compile(r"(?P<mark>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?)#* *$", re.M)
ROLE = re.compile(r":(?:func|class|meth|mod|data|attr):(?=<code>)")
REQUEST = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["']?(?:https?:)?//[^"'> ]+"""
    r"""|<link\b(?=[^>]*\brel=["']?(?:stylesheet|preconnect|icon|preload))[^>]*\bhref=["']?(?:https?:)?//[^"'> ]+"""
    r"""|(?:@import|url\()\s*["']?(?:https?:)?//[^"')> ]+"""
)


def slug(heading: str, separator: str = "-") -> str:
    """The anchor that GitHub gives a heading."""
    text = LINK.sub(lambda link: link["text"], heading)
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", separator)


def anchors(text: str) -> set[str]:
    """The anchors of a page, those of headings that come again with their numbers."""
    found: set[str] = set()
    counts: dict[str, int] = {}
    for match in HEADING.finditer(FENCE.sub("", text)):
        name = slug(match[1])
        number = counts[name] = counts.get(name, -1) + 1
        found.add(f"{name}-{number}" if number else name)
    return found


def links(text: str) -> Iterator[str]:
    """The targets of a page's links and pictures, code left out."""
    prose = re.sub(r"`[^`\n]*`", lambda code: code[0] if "](" not in code[0] else "", FENCE.sub("", text))
    yield from (match["target"] for match in LINK.finditer(prose))


def target(page: str, link: str) -> tuple[str, str]:
    """Path in the checkout, and anchor, of a link on a page of the checkout; ("", "") for an address."""
    path, _, anchor = link.partition("#")
    if re.match(r"[a-z]+:", link):
        return "", ""
    return (posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page), anchor


def title(page: str, anchor: str = "") -> str:
    """The heading of a page of the checkout, or its title up to a colon."""
    headings = [match[1].strip() for match in HEADING.finditer(FENCE.sub("", (ROOT / page).read_text("utf-8")))]
    found = next((heading for heading in headings if slug(heading) == anchor), "") if anchor else ""
    return found or headings[0].partition(":")[0]


def plain(text: str) -> str:
    """A page without what only the tests read."""

    def block(match: re.Match[str]) -> str:
        language, *tags = match["info"].split() or ["text"]
        named = next((tag.partition("=")[2] for tag in tags if tag.startswith("file=")), "")
        title = f' title="{named}"' if named else ""
        fence = match["indent"] + match["ticks"]
        return f"{fence}{language}{title}\n{match['body']}{fence}"

    parts: list[str] = []
    end = 0
    for match in FENCE.finditer(text):
        parts += [COMMENT.sub("", text[end : match.start()]), block(match)]
        end = match.end()
    return "".join([*parts, COMMENT.sub("", text[end:])])


def placed(text: str, page: str) -> str:
    """A page of the checkout with links as the site's pages lie."""
    places = {path: name for name, path in PAGES.items()}

    def link(match: re.Match[str]) -> str:
        path, anchor = target(page, match["target"])
        if not path:
            return match[0]
        inside = places.get(path) or (path[len(DOCS) + 1 :] if path.startswith(f"{DOCS}/") else "")
        if not inside:
            return match["text"]
        named = re.fullmatch(r"(?:docs/)?[\w-]+\.md", match["text"])
        text = title(path, anchor) if named else match["text"]
        return f"{match['mark']}[{text}]({inside}{'#' * bool(anchor)}{anchor})"

    parts: list[str] = []
    end = 0
    for match in FENCE.finditer(text):
        parts += [LINK.sub(link, text[end : match.start()]), match[0]]
        end = match.end()
    return "".join([*parts, LINK.sub(link, text[end:])])


def requests(html: str) -> list[str]:
    """What a page makes a browser request from elsewhere."""
    return REQUEST.findall(html)


def on_config(config: Any) -> Any:
    """Have anchors as on GitHub."""
    config["mdx_configs"].setdefault("toc", {})["slugify"] = slug
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages at the root."""
    from mkdocs.structure.files import File

    for name, path in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Leave out what only tests read, and turn links."""
    name = page.file.src_uri
    return plain(placed(markdown, PAGES.get(name, f"{DOCS}/{name}")))


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Leave out the roles of docstrings: their names are code."""
    return ROLE.sub("", html)


def on_post_build(config: Any) -> None:
    """End the build where a page would ask another server for something."""
    from mkdocs.exceptions import PluginError

    site = Path(config["site_dir"])
    wrong = {
        str(path.relative_to(site)): found
        for path in sorted(site.rglob("*.html"))
        if (found := requests(path.read_text("utf-8")))
    }
    if wrong:
        raise PluginError(f"pages that request something from elsewhere: {wrong}")
