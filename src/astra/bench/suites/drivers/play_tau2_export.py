"""Driver of exported worlds: tau2-Bench's own orchestrator and evaluators, with scripted sides.

A task is played from moves: ``{"user": text}``, ``{"say": text}`` and ``{"tool": name,
"arguments": {...}}``, in order. The agent makes the calls and says the texts that come next, the
user answers with theirs; a side that is out of turn says a word that tells nothing.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import importlib
import os
import sys
import time
from typing import Any

import world_lines

WAITING, GO_ON, STOP = "One moment.", "Please go on.", "###STOP###"


class Moves:
    """What is left to be played; both sides take from it."""

    def __init__(self, moves: list[dict[str, Any]]) -> None:
        self.moves, self.at = moves, 0

    def _next(self, what: str) -> dict[str, Any] | None:
        if self.at < len(self.moves) and what in self.moves[self.at]:
            self.at += 1
            return self.moves[self.at - 1]
        return None

    def user(self) -> str:
        """The user's next words; they stop when nothing is left."""
        if self.at >= len(self.moves):
            return STOP
        move = self._next("user")
        return move["user"] if move else GO_ON

    def call(self) -> dict[str, Any] | None:
        """The agent's next call, if a call comes next."""
        return self._next("tool")

    def say(self) -> str:
        """All that the agent says next, as one message."""
        texts: list[str] = []
        while move := self._next("say"):
            texts.append(move["say"])
        return "\n".join(texts) or WAITING


def sides(moves: Moves) -> tuple[type, type]:
    """An agent and a user of the package that play the moves."""
    from tau2.agent.llm_agent import LLMAgent
    from tau2.data_model.message import AssistantMessage, ToolCall, UserMessage
    from tau2.user.user_simulator import UserSimulator

    class ScriptedAgent(LLMAgent):
        def generate_next_message(self, message: Any, state: Any) -> Any:
            call = moves.call()
            if call is None:
                return AssistantMessage(role="assistant", content=moves.say()), state
            made = ToolCall(id=f"call_{moves.at}", name=call["tool"], arguments=call["arguments"],
                            requestor="assistant")  # fmt: skip
            return AssistantMessage(role="assistant", content=None, tool_calls=[made]), state

        def set_seed(self, seed: int) -> None: ...

    class ScriptedSimulator(UserSimulator):
        def generate_next_message(self, message: Any, state: Any) -> Any:
            return UserMessage(role="user", content=moves.user()), state

        def set_seed(self, seed: int) -> None: ...

    return ScriptedAgent, ScriptedSimulator


class Desk:
    """Exported domains in the package's registry, and episodes in them."""

    def __init__(self) -> None:
        os.environ.update(LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION")
        from loguru import logger
        from tau2.registry import registry
        from tau2.run import run_task

        logger.remove()
        self.registry, self.run_task = registry, run_task
        self.played = 0
        self.tasks: dict[str, dict[str, Any]] = {}

    def open(self, folder: str, package: str) -> dict[str, Any]:
        """Register an exported package; each domain's task ids and tools as the package shows them
        to a model."""
        sys.path.insert(0, folder)
        names = importlib.import_module(package).register()
        for name in names:
            loaded = self.registry.get_tasks_loader(name)(task_split_name="base")
            self.tasks[name] = {task.id: task for task in loaded}
        return {
            name: {
                "tasks": list(self.tasks[name]),
                "tools": [tool.openai_schema["function"] for tool in
                          self.registry.get_env_constructor(name)().get_tools()],
                "users_read": {id: str(task.user_scenario) for id, task in
                               self.tasks[name].items()},
            }
            for name in names
        }  # fmt: skip

    def play(self, domain: str, task: str, moves: list[dict[str, Any]]) -> dict[str, Any]:
        """One episode: the reward, what it is the product of, how it ended, and calls that
        failed."""
        self.played += 1
        left = Moves(moves)
        agent, user = sides(left)
        name = f"scripted_{self.played}"
        self.registry.register_agent(agent, name)
        self.registry.register_user(user, name)
        run = self.run_task(
            domain=domain, task=self.tasks[domain][task], agent=name, user=name,
            llm_agent="none", llm_user="none", max_steps=200, max_errors=10,
        )  # fmt: skip
        info = run.reward_info
        return {
            "reward": info.reward,
            "parts": {kind.value: value for kind, value in (info.reward_breakdown or {}).items()},
            "end": run.termination_reason.value,
            "failed": [one.content for one in run.messages if one.role == "tool" and one.error],
            "left": len(moves) - left.at,
        }

    def cpu_seconds(self) -> float:
        """What the driver has used so far."""
        return time.process_time()


if __name__ == "__main__":
    world_lines.serve(Desk)
