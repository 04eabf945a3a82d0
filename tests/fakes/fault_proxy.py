"""A proxy on loopback in front of a real server, that fails on demand: statuses, delays, hangs, nonsense, logins.

It passes on what the server answers, as :class:`tests.fakes.wandb_server.WandbServer` answers itself::

    with FaultProxy("http://127.0.0.1:5000") as proxy:
        proxy.fault = Fault("status", status=502)
        proxy.login = "Basic …"      # anything else is answered with 401
"""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

from tests.fakes import wandb_server
from tests.fakes.wandb_server import Fault, WandbServer

__all__ = ["Fault", "FaultProxy"]

HOP_BY_HOP = ("connection", "content-encoding", "content-length", "host", "transfer-encoding", "accept-encoding")


class FaultProxy(WandbServer):
    """``target``: the server's address; may change, as one that is started again elsewhere. ``login``: the
    Authorization header that is asked for; "" for none."""

    def __init__(self, target: str, login: str = "") -> None:
        super().__init__()
        self.target = target
        self.login = login

    def _listen(self) -> None:
        super()._listen()
        assert self._http is not None
        self._http.RequestHandlerClass = _Forward


class _Forward(wandb_server._Handler):
    def _answer(self, method: str, path: str, body: bytes, request: dict[str, Any]) -> tuple[int, Any]:
        owner = self.server.owner
        assert isinstance(owner, FaultProxy)
        if owner.login and self.headers.get("Authorization") != owner.login:
            return 401, {"error_code": "UNAUTHENTICATED", "error": "log in first", "message": "log in first"}
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        place = urlsplit(owner.target)
        assert place.hostname is not None
        connection = http.client.HTTPConnection(place.hostname, place.port, timeout=60)
        try:
            connection.request(method, self.path, body or None, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        except (OSError, http.client.HTTPException):
            return 502, {"error": "no answer"}
        finally:
            connection.close()
