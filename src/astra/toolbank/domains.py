"""Domain labels by a teacher, from the labels that the configuration lists."""

from __future__ import annotations

from collections.abc import Sequence

from astra.llm.protocol import Ask, ParseError, ProviderError, Teacher
from astra.prompting import template_hash
from astra.records.base import Frozen
from astra.records.score import Rejection
from astra.records.tool import ToolServer

DOMAIN = "toolbank/domain"
SHOWN_CHARS = 160
"""How much of each tool's description is shown: enough to see what the server is about."""


class DomainLabel(Frozen):
    domain: str


def domain_ask(server: ToolServer, labels: Sequence[str]) -> Ask[DomainLabel]:
    variables = {
        "title": server.title,
        "description": server.description,
        "stated": server.domain,
        "tools": [
            {"name": tool.name, "description": tool.description[:SHOWN_CHARS]}
            for tool in server.tools
        ],
        "labels": list(labels),
    }

    def check(reply: DomainLabel) -> None:
        chosen_label(reply, labels)

    return Ask(DOMAIN, variables, DomainLabel, check=check)


def chosen_label(reply: DomainLabel, labels: Sequence[str]) -> str:
    """The label that the reply names, in whatever case. Raises ValueError if it is none of them."""
    wanted = reply.domain.strip().casefold()
    label = next((label for label in labels if label.casefold() == wanted), None)
    if label is None:
        raise ValueError(f"domain {reply.domain[:100]!r} is none of the labels that are listed")
    return label


async def label_domain(
    server: ToolServer, teacher: Teacher, labels: Sequence[str]
) -> ToolServer | Rejection:
    """``server`` with the teacher's label, or the rejection of a server that got none."""
    try:
        label = chosen_label(await teacher.ask(domain_ask(server, labels)), labels)
    except (ProviderError, ParseError) as error:
        reason = "domain_ask_failed" if isinstance(error, ProviderError) else "domain_unparsable"
        return Rejection(item=server.name, reason=reason, detail=str(error))
    return server.model_copy(update={"domain": label, "prompt_hash": template_hash(DOMAIN)})
