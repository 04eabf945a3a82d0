"""A stand-in for S3 on loopback that counts what each client asks, and lets every answer take as long as one elsewhere.

It is one process with all objects in memory, and does what obstore asks of S3: whole objects and ranges, creation that
one of several writers wins, listings by pages of a thousand, also of folders alone, deletions. moto does more, and a
tenth as fast. Signatures aren't checked: the access key is the name under which a client's requests are counted::

    with CountingS3(delay_s=0.03) as server:
        os.environ.update(server.variables("node-1"))
        ...
        server.counts()["node-1"]["PUT"]
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import json
import re
import subprocess
import sys
import time
import urllib.request
from collections import Counter, defaultdict
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

PAGE = 1000
COUNTS, DELAY = "/-/counts", "/-/delay/"
KINDS = ("PUT", "LIST", "GET", "HEAD", "DELETE")
"""Requests; DELETE counts objects. Beside them: ``in``, ``out`` (bytes of objects) and ``refused`` (creations of what
exists)."""
_CLIENT = re.compile(rb"Credential=([^/]+)/")
_KEY = re.compile(rb"<Key>(.*?)</Key>", re.DOTALL)


class Stored(NamedTuple):
    """An object. time: Unix seconds."""

    content: bytes
    version: str
    time: float


class Bucket:
    """The objects, by name, and what was asked."""

    def __init__(self, delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.objects: dict[str, Stored] = {}
        self.names: list[str] = []
        self._uploads: dict[str, dict[int, bytes]] = {}
        self.asked: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def answer(self, method: str, target: str, headers: dict[bytes, bytes], body: bytes) -> tuple[int, Any, bytes]:
        """Status, headers and content of an answer."""
        place = urlsplit(target)
        if place.path == COUNTS or place.path.startswith(DELAY):
            return 200, {}, json.dumps(self.asked).encode()
        found = _CLIENT.search(headers.get(b"authorization", b""))
        asked = self.asked[found[1].decode() if found else ""]
        name = unquote(place.path).lstrip("/").partition("/")[2]
        query = parse_qs(place.query, keep_blank_values=True)
        if not name and method == "GET":
            asked["LIST"] += 1
            return 200, {"Content-Type": "application/xml"}, self._listing({key: one[0] for key, one in query.items()})
        if not name and method == "POST" and "delete" in query:
            names = [unescape(key.decode()) for key in _KEY.findall(body)]
            for one in names:
                self._remove(one)
            asked["DELETE"] += len(names)
            gone = "".join(f"<Deleted><Key>{escape(one)}</Key></Deleted>" for one in names)
            return 200, {"Content-Type": "application/xml"}, f"<DeleteResult>{gone}</DeleteResult>".encode()
        if "uploads" in query or "uploadId" in query:
            asked["PUT"] += 1
            return self._in_parts(method, name, query, body, asked)
        if method == "PUT":
            asked["PUT"] += 1
            if headers.get(b"if-none-match") == b"*" and name in self.objects:
                asked["refused"] += 1
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            asked["in"] += len(body)
            return 200, {"ETag": self._put(name, body).version}, b""
        if method == "DELETE":
            asked["DELETE"] += 1
            self._remove(name)
            return 204, {}, b""
        asked[method] += 1
        return self._read(method, name, headers.get(b"range", b"").decode(), asked)

    def _read(self, method: str, name: str, wanted: str, asked: Counter[str]) -> tuple[int, Any, bytes]:
        entry = self.objects.get(name)
        if entry is None:
            return 404, {}, b"" if method == "HEAD" else b"<Error><Code>NoSuchKey</Code></Error>"
        size = len(entry.content)
        said = {"ETag": entry.version, "Last-Modified": formatdate(entry.time, usegmt=True)}
        if method == "HEAD":
            return 200, {**said, "Content-Length": str(size)}, b""
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        begin, end = 0, size
        if wanted:
            begin = int(first) if first else max(0, size - int(last))
            end = min(size, int(last) + 1) if first and last else size
            said["Content-Range"] = f"bytes {begin}-{end - 1}/{size}"
        asked["out"] += end - begin
        return 206 if wanted else 200, said, entry.content[begin:end]

    def _in_parts(
        self, method: str, name: str, query: dict[str, list[str]], body: bytes, asked: Counter[str]
    ) -> tuple[int, Any, bytes]:
        """Begin an upload of an object in parts, take a part, or join them."""
        if "uploads" in query:
            self._uploads[upload := f"upload-{len(self._uploads)}"] = {}
            found = f"<Bucket>bucket</Bucket><Key>{escape(name)}</Key><UploadId>{upload}</UploadId>"
            return 200, {}, f"<InitiateMultipartUploadResult>{found}</InitiateMultipartUploadResult>".encode()
        parts = self._uploads[query["uploadId"][0]]
        if method == "PUT":
            asked["in"] += len(body)
            parts[int(query["partNumber"][0])] = body
            return 200, {"ETag": f'"{hashlib.md5(body).hexdigest()}"'}, b""
        version = self._put(name, b"".join(content for _, content in sorted(parts.items()))).version
        parts.clear()
        found = f"<Bucket>bucket</Bucket><Key>{escape(name)}</Key><ETag>{escape(version)}</ETag>"
        answer = f"<CompleteMultipartUploadResult>{found}</CompleteMultipartUploadResult>"
        return 200, {"ETag": version}, answer.encode()

    def _put(self, name: str, content: bytes) -> Stored:
        if name not in self.objects:
            bisect.insort(self.names, name)
        self.objects[name] = Stored(content, f'"{hashlib.md5(content).hexdigest()}"', time.time())
        return self.objects[name]

    def _remove(self, name: str) -> None:
        if self.objects.pop(name, None) is not None:
            self.names.pop(bisect.bisect_left(self.names, name))

    def _listing(self, query: dict[str, str]) -> bytes:
        prefix = query.get("prefix", "")
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        at = max(bisect.bisect_left(self.names, prefix), bisect.bisect_right(self.names, after) if after else 0)
        names, ends, lines = 0, "", []
        more = False
        while at < len(self.names) and self.names[at].startswith(prefix):
            if names == PAGE:
                more = True
                break
            names, ends = names + 1, self.names[at]
            folder, delimiter, _ = ends[len(prefix) :].partition(query.get("delimiter") or "\0")
            if delimiter:
                folder = f"{prefix}{folder}{delimiter}"
                lines.append(f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>")
                ends = f"{folder}\U0010ffff"
                at = bisect.bisect_right(self.names, ends)
                continue
            at += 1
            entry = self.objects[ends]
            written = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(entry.time))
            lines.append(
                f"<Contents><Key>{escape(ends)}</Key><LastModified>{written}</LastModified><ETag>"
                f"{escape(entry.version)}</ETag><Size>{len(entry.content)}</Size></Contents>"
            )
        token = f"<NextContinuationToken>{escape(ends)}</NextContinuationToken>" if more else ""
        return (
            f"<ListBucketResult><Name>bucket</Name><KeyCount>{names}</KeyCount><IsTruncated>"
            f"{str(more).lower()}</IsTruncated>{token}{''.join(lines)}</ListBucketResult>"
        ).encode()


class _Connection(asyncio.Protocol):
    """One client's connection: requests come one after the other."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._received = bytearray()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            first, *lines = bytes(self._received[:end]).split(b"\r\n")
            headers = {}
            for line in lines:
                name, _, value = line.partition(b":")
                headers[name.strip().lower()] = value.strip()
            whole = end + 4 + int(headers.get(b"content-length", b"0"))
            if len(self._received) < whole:
                return
            body = bytes(self._received[end + 4 : whole])
            del self._received[:whole]
            method, target, _ = first.decode().split(" ", 2)
            if target.startswith(DELAY):
                self._bucket.delay_s = float(target.removeprefix(DELAY))
            status, said, content = self._bucket.answer(method, target, headers, body)
            said = {"Content-Length": str(len(content)), "Date": formatdate(usegmt=True), **said}
            head = "".join(f"{name}: {value}\r\n" for name, value in said.items())
            answer = f"HTTP/1.1 {status} .\r\n{head}\r\n".encode() + content
            if self._bucket.delay_s and not target.startswith((COUNTS, DELAY)):
                asyncio.get_running_loop().call_later(self._bucket.delay_s, self._transport.write, answer)
            else:
                self._transport.write(answer)


async def _serve(delay_s: float) -> None:
    bucket = Bucket(delay_s)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Connection(bucket), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class CountingS3:
    """The server in a process of its own. delay_s: from a request's end to its answer, in seconds.

    Attributes:
        url: its address. pid: its process.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s

    def __enter__(self) -> CountingS3:
        root = Path(__file__).resolve().parents[2]
        command = [sys.executable, "-m", "tests.fakes.counting_s3", str(self._delay_s)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        self.pid = self._process.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def variables(self, client: str = "test") -> dict[str, str]:
        """What leads a store's client here. client: the name that its requests are counted under."""
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": client, "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "us-east-1"}  # fmt: skip

    def delay(self, delay_s: float) -> None:
        """Let each answer take so long from now on."""
        urllib.request.urlopen(f"{self.url}{DELAY}{delay_s}", timeout=60).close()

    def counts(self) -> dict[str, Counter[str]]:
        """What was asked so far, by client: see :data:`KINDS`."""
        with urllib.request.urlopen(f"{self.url}{COUNTS}", timeout=60) as answer:
            return {client: Counter(found) for client, found in json.load(answer).items()}


if __name__ == "__main__":
    asyncio.run(_serve(float(sys.argv[1])))
