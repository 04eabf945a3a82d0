"""HTML pages."""

from __future__ import annotations

import os
from typing import Any

from trackers.media.base import MediaStore, MediaValue
from trackers.records import MediaFile


class Html(MediaValue):
    """A piece of HTML.

    Args:
        data: HTML, a text file that is open, or the path of a file that ends in ``.html``.
        inject: W&B adds its style sheet; False leaves the page as it is.
        data_is_not_path: take ``data`` as HTML even if there is a file of that name.

    Raises:
        ValueError: something else.
    """

    type = "html"

    def __init__(self, data: Any, inject: bool = True, data_is_not_path: bool = False) -> None:
        self._meta: dict[str, Any] = {} if inject else {"inject": False}
        if not data_is_not_path and _is_page(data):
            with open(data, encoding="utf-8") as page:
                self.html = page.read()
        elif isinstance(data, str):
            self.html = data
        elif hasattr(data, "read"):
            if hasattr(data, "seek"):
                data.seek(0)
            self.html = data.read()
        else:
            raise ValueError(f"Html is made from text, a path ending in .html or an open file, not {type(data)!r}")

    def items(self, store: MediaStore) -> list[MediaFile]:
        content = self.html.encode("utf-8", "replace")
        return [MediaFile(format="html", file=store.put(content, "html"), meta=dict(self._meta))]


def _is_page(data: Any) -> bool:
    if not isinstance(data, (str, os.PathLike)):
        return False
    path = os.fspath(data)
    try:
        return path.endswith(".html") and os.path.isfile(path)
    except ValueError:  # a NUL byte in the text
        return False
