"""A stand-in for ClearML's server, below ClearML's own client: it takes an imported session, and files."""

from __future__ import annotations

import base64
import json
import threading
import time
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

VERSION = "2.30"


class ClearmlServer:
    """API and file server on a port of loopback.

    Attributes:
        tasks: by id, as the client made and edited them. events: as they came. files: content by path.
        calls: names of the API's methods that were called.
    """

    def __init__(self) -> None:
        self.tasks: dict[str, dict[str, Any]] = {}
        self.events: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}
        self.calls: list[str] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                name = self.path.strip("/").rpartition("/")[2]
                if "multipart" in self.headers.get("Content-Type", ""):
                    head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
                    for part in BytesParser().parsebytes(head + body).walk():
                        if not part.is_multipart():
                            path = part.get_param("name", header="content-disposition")
                            server.files[unquote(str(path)).lstrip("/")] = part.get_payload(decode=True)  # type: ignore[assignment]
                    self._answer({})
                    return
                server.calls.append(name)
                self._answer(server.answer(name, body))

            do_GET = do_POST

            def do_PUT(self) -> None:
                self.do_POST()

            def _answer(self, data: Any) -> None:
                meta = {
                    "id": "1", "trx": "1", "result_code": 200, "result_subcode": 0, "result_msg": "OK",
                    "endpoint": {"name": "", "requested_version": VERSION, "actual_version": VERSION},
                }  # fmt: skip
                content = json.dumps({"meta": meta, "data": data}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> ClearmlServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, name: str, body: bytes) -> Any:
        """What the API's method answers with."""
        if name == "auth.login":
            return {"token": _token()}
        if name == "events.add_batch":
            self.events += [json.loads(line) for line in body.splitlines() if line.strip()]
            return {"added": 1, "errors": 0}
        given = json.loads(body or b"{}")
        if name == "tasks.create":
            task_id = f"{len(self.tasks) + 1:032x}"
            self.tasks[task_id] = {**given, "id": task_id, "status": "created", "project": "p" * 32}
            return {"id": task_id}
        if name in ("tasks.edit", "tasks.update"):
            self.tasks[given.pop("task")].update(given)
            return {"updated": 1, "fields": given}
        if name == "tasks.get_by_id":
            return {"task": self.tasks[given["task"]]}
        if name in ("tasks.get_all", "tasks.get_all_ex"):
            return {"tasks": [task for task in self.tasks.values() if task["id"] in (given.get("id") or [])]}
        if name in ("tasks.started", "tasks.completed", "tasks.stopped"):
            self.tasks[given["task"]]["status"] = name.partition(".")[2].replace("started", "in_progress")
            return {"updated": 1, "fields": {}}
        if name == "projects.get_all":
            return {"projects": [{"id": "p" * 32, "name": "digits"}]}
        if name == "projects.get_by_id":
            return {"project": {"id": "p" * 32, "name": "digits"}}
        if name == "projects.create":
            return {"id": "p" * 32}
        return {}


def _token() -> str:
    """A token as the client reads it; nobody checks its signature."""
    now = int(time.time())
    claims = {
        "iat": now, "exp": now + 86400, "api_version": VERSION, "server_version": "1.16.0", "feature_set": "basic",
        "identity": {"user": "u", "company": "c"}, "env": "test", "auth_type": "Bearer",
    }  # fmt: skip

    def part(value: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    return f"{part({'alg': 'HS256', 'typ': 'JWT'})}.{part(claims)}.{part('x')}"
