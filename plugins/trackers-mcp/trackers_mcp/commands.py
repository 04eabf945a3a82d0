"""``trackers mcp`` and ``trackers skill``: runs for agents."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from trackers.cli import completion
from trackers.cli.common import RunsDir
from trackers.cli.roots import runs_root

mcp_app = typer.Typer()
skill_app = typer.Typer()
TOKEN = "TRACKERS_MCP_TOKEN"  # noqa: S105 - the variable that holds it


@mcp_app.command()
def mcp(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE…]",
            help="Sources that may be read beside the directory of runs: mlflow:URI#EXPERIMENT, tb:DIR, …",
            autocompletion=completion.runs,
        ),
    ] = None,
    allow: Annotated[str, typer.Option(metavar="edit,stop,alerts", help="What it may do beside reading, a,b.")] = "",
    any_source: Annotated[
        bool, typer.Option("--any-source", help="Read whatever source the agent names, also files of this machine.")
    ] = False,
    http: Annotated[
        bool, typer.Option("--http", help="Serve streamable HTTP on 127.0.0.1 instead of standard input and output.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port, with --http.")] = 7008,
    directory: RunsDir = None,
) -> None:
    """Offer runs to agents by the Model Context Protocol: read-only tools, unless more is allowed.

    With --http, clients send the token of TRACKERS_MCP_TOKEN, else one that is printed: "Authorization: Bearer TOKEN".

    Example: trackers mcp; trackers mcp mlflow:mlflow.db#digits --allow stop
    """
    from trackers_mcp import server
    from trackers_mcp.tools import Tools

    hands = [word.strip() for word in allow.split(",") if word.strip()]
    tools = Tools(Path(runs_root(directory)), sources or [], any_source=any_source)
    made = server.build(tools, hands)
    if not http:
        server.serve_stdio(made)
        return
    given = os.environ.get(TOKEN, "")
    token = given or server.new_token()
    print(f"http://{server.LOOPBACK}:{port}{server.PATH}", flush=True)
    if not given:
        print(f"trackers: the token, also for {TOKEN}: {token}", file=sys.stderr, flush=True)
    server.serve_http(made, token, port)


@skill_app.command()
def skill(
    llms: Annotated[bool, typer.Option("--llms", help="Print llms.txt instead.")] = False,
) -> None:
    """Print a skill file for agents: what the tools of `trackers mcp` answer, and how to go about it.

    Example: mkdir -p skills/trackers; trackers skill > skills/trackers/SKILL.md
    """
    from trackers_mcp import texts

    sys.stdout.write(texts.llms() if llms else texts.skill())
