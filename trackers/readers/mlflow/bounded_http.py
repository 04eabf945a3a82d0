"""Bounds on what a server's answers may take, put on ``requests``, which MLflow's client asks by.

An answer that is read whole is bounded in bytes and in time from the request on; a download, which is read piece by
piece, within :func:`download`.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

ANSWER_BYTES = 256 * 1024 * 1024
ANSWER_S = 180.0
"""One answer, from the request on. Reads of 30 s each that get nothing end it sooner."""
SLOWEST = 100_000
"""Bytes a second that a download has to come by in the mean, once ANSWER_S have passed."""
_CHUNK_BYTES = 1 << 16
_BOUNDED = "__bounded__"

_local = threading.local()


def bound(most_bytes: int = ANSWER_BYTES, most_s: float = ANSWER_S) -> None:
    """Have every answer that ``requests`` reads whole in this process bounded from now on. Idempotent.

    An answer beyond it raises ``requests.RequestException``, as one that broke off does. Outside of :func:`download`
    what is read piece by piece (``stream=True``) is bounded up to its beginning only.
    """
    from requests.adapters import HTTPAdapter
    from urllib3.connection import HTTPConnection

    if hasattr(HTTPAdapter.send, _BOUNDED):
        return
    send = _bounded_send(HTTPAdapter.send, most_bytes, most_s)
    setattr(send, _BOUNDED, True)
    HTTPAdapter.send = send  # type: ignore[method-assign]
    HTTPConnection.getresponse = _watched(HTTPConnection.getresponse)  # type: ignore[method-assign]


@contextlib.contextmanager
def download(most_bytes: int) -> Iterator[None]:
    """What this thread reads piece by piece within it is bounded: in bytes, and in time by how many they are.

    Raises:
        TooLong: while it is read. requests.RequestException: it takes too long, as where an answer breaks off.
    """
    _local.most_bytes, _local.downloads = most_bytes, contextlib.ExitStack()
    try:
        with _local.downloads:
            yield
    finally:
        _local.most_bytes = None


class _Watch:
    """Ends a connection whose answer isn't there in time: whoever reads it gets no more."""

    def __init__(self, most_s: float) -> None:
        self.timed_out = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(most_s, self._abort)
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
        if self.timed_out:
            self._abort()

    def _abort(self) -> None:
        self.timed_out = True
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
        file_bytes = getattr(_local, "most_bytes", None) if stream else None
        limit_s = most_s if file_bytes is None else most_s + file_bytes / SLOWEST
        with contextlib.ExitStack() as stack:
            watch = stack.enter_context(_Watch(limit_s))
            with _in_time(watch, limit_s):
                response = send(self, request, True, *arguments, **how)
                if file_bytes is not None:
                    _local.downloads.enter_context(stack.pop_all())
                    response.iter_content = functools.partial(_pieces, response, file_bytes, watch, limit_s)
                if stream:
                    return response
                try:
                    content = b"".join(_pieces(response, most_bytes, watch, limit_s, _CHUNK_BYTES))
                except TooLong as error:
                    raise RequestException(str(error)) from None
        response._content = content
        return response

    return wrapped


def _pieces(
    response: Any, most_bytes: int, watch: _Watch, limit_s: float, chunk_size: int | None = 1, **how: Any
) -> Iterator[bytes]:
    """A response's pieces, up to its bounds."""
    from requests.exceptions import RequestException

    count = 0
    with _in_time(watch, limit_s):
        for piece in type(response).iter_content(response, chunk_size, **how):
            count += len(piece)
            if count > most_bytes:
                response.close()
                raise TooLong(f"the answer is longer than {most_bytes:,} bytes")
            yield piece
        if watch.timed_out:
            response.close()
            raise RequestException("it ended early")


class TooLong(ValueError):
    """An answer, or a file, is longer than it may be."""


@contextlib.contextmanager
def _in_time(watch: _Watch, limit_s: float) -> Iterator[None]:
    """What a connection raises that was ended for being late, in words."""
    from requests.exceptions import RequestException

    try:
        yield
    except (RequestException, OSError):
        if watch.timed_out:
            raise RequestException(f"the answer wasn't whole after {limit_s:.0f} s") from None
        raise
