"""Typed parameters: each stage validates its own block of params.yaml before any work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from astra.errors import AstraError

PARAMS = Path("params.yaml")


class ParamsError(AstraError):
    """A parameter is missing, unknown or ill-typed; the message names it and the repair."""


class StageConfig(BaseModel):
    """Base of every block: frozen, unknown keys refused, no silent coercion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


Config = TypeVar("Config", bound=BaseModel)


def load(block: str, model: type[Config], path: Path = PARAMS) -> Config:
    """Read one block of ``params.yaml``. Raises ParamsError with one line per bad parameter."""
    if not path.is_file():
        raise ParamsError(f"{path} not found in {Path.cwd()}; run `make params` to write it")
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ParamsError(f"{path} is not YAML ({error}); run `make params`") from error
    if not isinstance(document, dict) or block not in document:
        raise ParamsError(f"{path} has no block `{block}`; run `make params` to rewrite it")
    return validate(block, document[block], model)


def validate(block: str, values: Any, model: type[Config]) -> Config:
    """``values`` as the block's model. Raises ParamsError with one line per bad parameter."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise ParamsError(_explain(block, error)) from None


def faults(block: str, error: ValidationError) -> list[str]:
    """What is wrong with each bad parameter, by its full name, and its value if no mapping."""

    def fault(problem: ErrorDetails) -> str:
        where = ".".join([block, *map(str, problem["loc"])])
        value = problem["input"]
        shown = problem["type"] != "missing" and not isinstance(value, Mapping)
        return f"{where}: {problem['msg']}" + (f" (got {value!r})" if shown else "")

    return [fault(problem) for problem in error.errors()]


def _explain(block: str, error: ValidationError) -> str:
    lines = [f"parameters of `{block}` are not usable:"]
    lines += [f"  {fault}" for fault in faults(block, error)]
    lines.append("Change the value in conf/ (or with -S NAME=VALUE), then run `make params`.")
    return "\n".join(lines)


class Endpoint(StageConfig):
    """An OpenAI-compatible server. The key is read from the environment, never from params."""

    base_url: str
    api_key_env: str = "OPENAI_API_KEY"
    models: tuple[str, ...] = ()
    """Models that it serves; empty: any. A role's asks go to the endpoints of its model."""
    requests_per_minute: int | None = Field(default=None, gt=0)
    tokens_per_minute: int | None = Field(default=None, gt=0)
    """Prompt and completion tokens; None: no limit."""


class Price(StageConfig):
    """What a model costs per million tokens, in the currency of the budget."""

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)
    cached_prompt: float | None = Field(default=None, ge=0)
    """Prompt tokens that the provider says it had cached; None: as ``prompt``."""


class Caps(StageConfig):
    """Most that may be spent; None: no cap."""

    requests: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=0)
    money: float | None = Field(default=None, ge=0)

    @property
    def any(self) -> bool:
        return any(cap is not None for cap in (self.requests, self.tokens, self.money))


class BudgetConfig(StageConfig):
    """Caps on teachers and endpoint policies. Spending is summed on disk under ``name``, so that
    neither a kill nor a second start makes it forgotten.
    """

    name: str = "workspace"
    stage: Caps = Caps()
    """Each stage by itself."""
    run: Caps = Caps()
    """All stages together."""


class RuntimeConfig(StageConfig):
    """Block ``runtime``: how to run, never what to compute. No stage tracks it."""

    endpoints: tuple[Endpoint, ...] = ()
    embedding_endpoint: Endpoint | None = None
    """Where embedding backend `openai` sends texts."""
    concurrency: int = 16
    """Asks, episodes or server processes in flight."""
    request_timeout_s: float = 120.0
    max_attempts: int = 5
    """Tries of one request, repairs of an unparsable reply included."""
    stage_workers: int = Field(default=0, ge=0)
    """Processes on a Ray cluster that work on the items of a data stage, each with ``concurrency``
    asks in flight; 0: the stage's own process does."""
    mcp_timeout_s: float = 120.0
    """Start of a server or one tool call."""
    threads: int = 1
    """Compute threads of torch; more than idle cores makes it many times slower."""
    device: str = "auto"
    """auto | cpu | cuda"""
    sft_launch: str = ""
    rl_launch: str = ""
    """Commands that start the training stages on several devices or nodes, for example
    ``accelerate launch --config_file conf/accelerate/zero2.yaml``; empty: one process."""
    rollout_servers: tuple[str, ...] = ()
    """URLs of vLLM servers that roll episodes, for engine ``vllm`` of stage ``rl``."""
    sandbox: Literal["local", "ray"] = "local"
    """Where tool code runs: this machine, or every node of a Ray cluster."""
    sandbox_warm: int = 0
    """Isolated sessions kept ready on each machine."""
    sandbox_max_sessions: int | None = None
    """Sessions alive at once on each machine; None: what memory and open files allow."""
    sandbox_memory_mb: int | None = None
    """What all sessions of a machine may hold; None: half of what is available at start."""
    live_servers: Literal["caged", "uncaged"] = "caged"
    """Whether MCP servers that stages start are walled in; uncaged they have all rights of the
    user, and the network."""
    sandbox_min_tier: str = "B"
    sandbox_workers: int = 2
    """Zygote processes that sessions are spread over."""
    prices: dict[str, Price] = Field(default_factory=dict[str, Price])
    """Model name -> its price; needed where a budget caps money."""
    budget: BudgetConfig = BudgetConfig()
    tracking_uri: str | None = None
    """MLflow store; None: MLFLOW_TRACKING_URI, else SQLite at the repository root."""
