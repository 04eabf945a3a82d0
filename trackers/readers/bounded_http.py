"""Answers of servers that are asked through ``requests``: bounded in size and in time, however they are sent.

A timeout of ``requests`` is for each piece: a server that sends a byte now and then is waited for, for ever, and one
that sends without an end fills the memory. Page after page is bounded by :func:`pages`.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeVar

from trackers.errors import Damaged

T = TypeVar("T")

ANSWER_BYTES = 256 * 1024 * 1024
ANSWER_S = 180.0
"""One answer, from the request on. Reads of 30 s each that get nothing end it sooner."""
EMPTY_PAGES = 100
_CHUNK_BYTES = 1 << 16
_MARK = "__bounded__"

_local = threading.local()


def bound(most_bytes: int = ANSWER_BYTES, most_s: float = ANSWER_S) -> None:
    """Have every answer that ``requests`` reads whole in this process bounded from now on. Twice is as once.

    An answer beyond it raises ``requests.RequestException``, as one that broke off does. Downloads that are read piece
    by piece (``stream=True``) are bounded up to their beginning.
    """
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection

    if hasattr(HTTPAdapter.send, _MARK):
        return
    send = _bounded_send(HTTPAdapter.send, most_bytes, most_s)
    setattr(send, _MARK, True)
    HTTPAdapter.send = send  # type: ignore[method-assign]
    HTTPConnection.getresponse = _watched(HTTPConnection.getresponse)  # type: ignore[method-assign]


class _Watch:
    """Ends a connection whose answer isn't there in time: whoever reads it gets no more."""

    def __init__(self, most_s: float) -> None:
        self.late = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(most_s, self._end)
        self._timer.daemon = True

    def __enter__(self) -> _Watch:
        _local.watch = self
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        _local.watch = None

    def at(self, connection: socket.socket | None) -> None:
        """This is the connection."""
        self._socket = connection
        if self.late:
            self._end()

    def _end(self) -> None:
        self.late = True
        if self._socket is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _watched(getresponse: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(getresponse)
    def wrapped(self: Any, *arguments: Any, **how: Any) -> Any:
        watch = getattr(_local, "watch", None)
        if watch is not None:
            watch.at(self.sock)
        return getresponse(self, *arguments, **how)

    return wrapped


def _bounded_send(send: Callable[..., Any], most_bytes: int, most_s: float) -> Callable[..., Any]:
    from requests.exceptions import RequestException

    @functools.wraps(send)
    def wrapped(self: Any, request: Any, stream: bool = False, *arguments: Any, **how: Any) -> Any:
        with _Watch(most_s) as watch:
            try:
                response = send(self, request, True, *arguments, **how)
                if stream:
                    return response
                content = bytearray()
                for chunk in response.iter_content(_CHUNK_BYTES):
                    content += chunk
                    if len(content) > most_bytes:
                        response.close()
                        raise RequestException(f"the answer is longer than {most_bytes:,} bytes")
            except (RequestException, OSError):
                if watch.late:
                    raise RequestException(f"the answer wasn't whole after {most_s:.0f} s") from None
                raise
            if watch.late:
                response.close()
                raise RequestException(f"the answer wasn't whole after {most_s:.0f} s")
        response._content = bytes(content)
        return response

    return wrapped


def pages(
    ask: Callable[[Any], T], token: Callable[[T], Hashable], empty: Callable[[T], bool], most: int
) -> Iterator[T]:
    """Pages of a listing, one after the other; the first is requested with None.

    Args:
        token: what the next page is asked for with; None or "" after the last one. most: so many pages at most.

    Raises:
        Damaged: the server gives a token a second time, many empty pages, or more pages than ``most``.
    """
    seen: set[Hashable] = set()
    at: Hashable = None
    nothing = 0
    for _ in range(most):
        page = ask(at)
        nothing = nothing + 1 if empty(page) else 0
        yield page
        at = token(page)
        if not at:
            return
        if at in seen or nothing > EMPTY_PAGES:
            raise Damaged("the server's list has no end: the same page, or an empty one, comes again and again")
        seen.add(at)
    raise Damaged(f"the server's list has more than {most:,} pages")
