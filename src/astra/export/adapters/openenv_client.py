# pyright: basic, reportMissingImports=false
"""The typed client of the arenas' server."""

from typing import Any

from openenv.core.client_types import StepResult
from openenv.core.env_client import EnvClient

from astra.export.adapters.openenv_models import ArenaAction, ArenaObservation, ArenaState


class ArenaClient(EnvClient[ArenaAction, ArenaObservation, ArenaState]):
    """Plays arenas on a server: ``reset``, then ``step`` until ``done``."""

    def _step_payload(self, action: ArenaAction) -> dict[str, Any]:
        return action.model_dump()

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[ArenaObservation]:
        seen: dict[str, Any] = payload.get("observation", {})
        done, reward = payload.get("done", False), payload.get("reward")
        observation = ArenaObservation(
            messages=seen.get("messages", []),
            tools=seen.get("tools", []),
            done=done,
            reward=reward,
        )
        return StepResult(observation=observation, reward=reward, done=done)

    def _parse_state(self, payload: dict[str, Any]) -> ArenaState:
        return ArenaState(**payload)
