"""The server, by the official SDK's own client: in memory, over stdio as a process, over HTTP with a token."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from trackers_mcp import server, texts
from trackers_mcp.commands import TOKEN
from trackers_mcp.tools import TOOLS, Tools

from tests import ROOT, again
from tests.e2e import test_docs
from tests.helpers import wait_for
from trackers.errors import UsageError

pytest.importorskip("mcp", reason="the extra mcp")
test_page_does_what_it_shows = again.with_values(test_docs.test_page_does_what_it_shows, [ROOT / "docs/agents.md"])
READ_ONLY = [tool.name for tool in TOOLS if not tool.needs]


async def talk(where: Any, *calls: tuple[str, dict[str, Any]]) -> tuple[Any, list[Any]]:
    """The tools that a server offers, and its answers."""
    from mcp.client import Client

    async with Client(where) as client:
        listed = await client.list_tools()
        return listed.tools, [await client.call_tool(name, arguments) for name, arguments in calls]


def test_tools_are_typed_described_and_read_only(root: Path) -> None:
    """A client sees each argument's type, and that nothing is changed; hands only where they are allowed."""
    tools, _ = asyncio.run(talk(server.build(Tools(root))))
    assert [tool.name for tool in tools] == READ_ONLY
    assert all(tool.description and tool.annotations.read_only_hint for tool in tools)
    history = next(tool for tool in tools if tool.name == "history").input_schema
    assert history["required"] == ["run", "metrics"]
    assert history["properties"]["points"] == {"default": 60, "title": "Points", "type": "integer"}
    tools, _ = asyncio.run(talk(server.build(Tools(root), ["stop", "edit"])))
    assert [tool.name for tool in tools if not tool.annotations.read_only_hint] == ["edit", "stop"]


def test_answers_errors_and_pictures_reach_the_client(root: Path) -> None:
    """JSON on one line; what is refused says how to do better; a picture is a picture."""
    _, answers = asyncio.run(
        talk(
            server.build(Tools(root)), ("best", {"metric": "val_loss", "top": 1}), ("run", {"run": "dep"}),
            ("plot", {"runs": ["deep"], "metrics": "train_loss"}), ("stop", {"run": "deep", "reason": "x"}),
            ("history", {"run": "deep", "metrics": 3}),
        )
    )  # fmt: skip
    assert json.loads(answers[0].content[0].text)["from_runs"]["ranking"][0]["name"] == "deep"
    assert "no run 'dep'" in json.loads(answers[1].content[0].text)["from_runs"]["error"]
    assert base64.b64decode(answers[2].content[0].data)[:4] == b"\x89PNG"
    assert answers[3].is_error
    assert answers[4].is_error


def test_unknown_hand_is_an_error_before_anything_is_served(root: Path) -> None:
    """A typing error isn't less safety."""
    with pytest.raises(UsageError, match="--allow all"):
        server.build(Tools(root), ["all"])


@pytest.mark.processes
def test_command_serves_over_standard_input(root: Path) -> None:
    """As an agent starts it: nothing but the protocol is on standard output."""
    from mcp.client.stdio import StdioServerParameters

    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "trackers", "mcp", "--dir", str(root)], env={**os.environ}
    )
    tools, answers = asyncio.run(talk(parameters, ("projects", {})))
    assert [tool.name for tool in tools] == READ_ONLY
    assert '"project":"digits"' in answers[0].content[0].text


def test_tokens_have_256_random_bits() -> None:
    """Each is another one."""
    tokens = [server.new_token() for _ in range(2)]
    assert [len(base64.urlsafe_b64decode(token + "=")) for token in tokens] == [32, 32]
    assert tokens[0] != tokens[1]


@pytest.mark.processes
def test_http_needs_the_token_and_this_machine(root: Path) -> None:
    """Without it, with another, or for another host's name nothing is answered; with it the tools are. Who has none
    keeps nobody out."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "trackers", "mcp", "--http", "--port", str(port), "--dir", str(root)]
    environment = {**os.environ, TOKEN: "s3cret-of-this-test"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().strip()
            assert address == f"http://127.0.0.1:{port}/mcp"

            def answered() -> bool:
                try:
                    return httpx.post(address, json={}).status_code == 401
                except httpx.TransportError:
                    return False

            wait_for(answered, why="the server listens")
            wrong = httpx.post(address, json={}, headers={"Authorization": "Bearer other"})
            assert wrong.status_code == 401
            right = {"Authorization": "Bearer s3cret-of-this-test", "Accept": "application/json, text/event-stream"}
            for odd in ({"Host": "evil.example"}, {"Host": f"evil.example:{port}"}, {"Origin": "http://evil.example"},
                        {"Origin": "null"}, {"Origin": f"http://evil.example:{port}"}):  # fmt: skip
                refused = httpx.post(address, json={}, headers={**right, **odd})
                assert refused.status_code in (403, 421), odd
            asyncio.run(over_http(address, right["Authorization"]))
            with contextlib.ExitStack() as opened:  # any account of this machine can open some, and say nothing
                silent = [opened.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(100)]
                silent[0].settimeout(60)
                assert silent[0].recv(1) == b"", "the oldest is closed for a new one"
                assert httpx.post(address, json={}, headers=right).status_code == 400, "the owner is answered"
                silent[-1].settimeout(60)
                assert silent[-1].recv(1) == b"", "after some seconds each is"
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_websocket_is_closed_before_it_is_open() -> None:
    """Only HTTP asks for the token, so nothing else is spoken, whatever the SDK would take."""
    said: list[Any] = []

    async def never(*_: Any) -> None:
        raise AssertionError("the server was asked")

    async def send(message: Any) -> None:
        said.append(message)

    asyncio.run(server.Guarded(never, "token")({"type": "websocket", "headers": []}, never, send))
    assert said == [{"type": "websocket.close", "code": 1008}]


async def over_http(address: str, authorization: str) -> None:
    """Ask by the SDK's client."""
    import mcp.client.streamable_http as transport
    from mcp.shared._httpx_utils import create_mcp_http_client

    async with create_mcp_http_client(headers={"Authorization": authorization}) as client:
        tools, answers = await talk(
            transport.streamable_http_client(address, http_client=client), ("best", {"metric": "val_loss", "top": 1})
        )
    assert [tool.name for tool in tools] == READ_ONLY
    assert '"name":"deep"' in answers[0].content[0].text


def test_documents_are_of_the_table() -> None:
    """docs/agents.md and llms.txt have what the tools are now; the skill names each."""
    page = (ROOT / "docs/agents.md").read_text()
    for row in texts.table():
        assert row in page
    assert (ROOT / "llms.txt").read_text() == texts.llms()
    assert all(f"`{tool.name}(" in texts.skill() for tool in TOOLS)
