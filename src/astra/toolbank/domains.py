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
    return Ask(DOMAIN, variables, DomainLabel)


async def label_domain(
    server: ToolServer, teacher: Teacher, labels: Sequence[str]
) -> ToolServer | Rejection:
    """``server`` with the teacher's label. A reply outside ``labels`` is a rejection too."""
    try:
        label = (await teacher.ask(domain_ask(server, labels))).domain
    except (ProviderError, ParseError) as error:
        reason = "domain_ask_failed" if isinstance(error, ProviderError) else "domain_unparsable"
        return Rejection(item=server.name, reason=reason, detail=str(error))
    if label not in labels:
        return Rejection(item=server.name, reason="domain_unknown", detail=label)
    return server.model_copy(update={"domain": label, "prompt_hash": template_hash(DOMAIN)})
