"""Hand-made servers and tasks, and the toy MCP server run by the tests' own interpreter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from astra.agent.server_environments import ServerEnvironments
from astra.records.graph import ArgumentOrigin, ArgumentSource, ChainStep
from astra.records.task import Task, TaskKind
from astra.records.tool import Execution, Launch, Tool, ToolServer

TOY = Path(__file__).parents[1] / "fixtures" / "toy_server.py"


class OwnInterpreter(ServerEnvironments):
    """Every environment is the one the tests run in."""

    def ensure(self, name: str) -> Path:
        return Path(sys.executable).parent

    def reads(self, name: str) -> tuple[Path, ...]:
        return (*super().reads(name), TOY.parent)


def tool(name: str, returns: dict[str, Any] | None = None, /, **parameters: Any) -> Tool:
    return Tool(
        name=name,
        description=name.replace("_", " "),
        parameters={
            "type": "object",
            "properties": parameters,
            "required": list(parameters),
            "additionalProperties": False,
        },
        output_schema=returns,
    )


THING = {"type": "string", "x-entity": "thing"}
PERSON = {"type": "string", "x-entity": "person"}
PRICE = {"type": "integer", "minimum": 1, "maximum": 900}


def server(*tools: Tool, **fields: Any) -> ToolServer:
    values: dict[str, Any] = {
        "name": "homes", "title": "Homes", "description": "Listings.", "domain": "real_estate",
        "source": "test", "licence": "CC0-1.0", "language": "en", "deterministic": True,
        "execution": Execution.EMULATED, "tools": tools,
    } | fields  # fmt: skip
    return ToolServer(**values)


def homes_server() -> ToolServer:
    return server(
        tool("get_price", PRICE | {"title": "price"}, listing=THING),
        tool("set_price", {"title": "status", "const": "updated"}, listing=THING, price=PRICE),
        tool("find_agent", PERSON | {"title": "agent"}, listing=THING),
        tool("get_office", THING | {"title": "office"}, agent=PERSON),
        tool("list_listings", {"type": "array", "items": THING}, city=THING),
        tool("delete_listing", {"title": "status", "const": "deleted"}, listing=THING),
        tool(
            "get_listing",
            {"type": "object", "properties": {"price": PRICE, "agent": PERSON},
             "required": ["price", "agent"]},
            listing=THING,
        ),
    )  # fmt: skip


def toy_server() -> ToolServer:
    text = {"type": "string"}
    return server(
        tool("read_note", None, name=text),
        tool("write_note", None, name=text, text=text),
        tool("count_calls"),
        tool("fail_softly"),
        tool("hang", None, seconds={"type": "number"}),
        tool("crash"),
        tool("show_home"),
        name="toy",
        execution=Execution.LIVE,
        launch=Launch(
            environment="toy",
            command=Path(sys.executable).name,
            args=(str(TOY),),
            setup={"hello.txt": "good day", "goodbye.txt": "good night"},
        ),
    )


def given(value: Any) -> ArgumentSource:
    return ArgumentSource(origin=ArgumentOrigin.TASK, value=value)


def output(step: int, *path: str | int) -> ArgumentSource:
    return ArgumentSource(origin=ArgumentOrigin.OUTPUT, step=step, path=path)


def step(name: str, /, **arguments: ArgumentSource) -> ChainStep:
    return ChainStep(tool=name, arguments=arguments)


def task(on: ToolServer, question: str, *plan: ChainStep, **fields: Any) -> Task:
    values: dict[str, Any] = {
        "server_id": on.id, "chain_id": None, "kind": TaskKind.CHAIN, "language": "en",
        "question": question, "plan": plan,
    } | fields  # fmt: skip
    return Task(**values)
