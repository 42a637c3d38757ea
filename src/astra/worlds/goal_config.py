"""Parameters of stage ``goals``."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from astra.llm.protocol import ModelConfig
from astra.records.qa import QuestionKind, Split
from astra.records.world import GoalTrait
from astra.sandbox.limits import SandboxLimits
from astra.settings import StageConfig

Share = Annotated[float, Field(ge=0.0, le=1.0)]
KINDS = frozenset(
    {
        QuestionKind.READ_ONLY, QuestionKind.WRITE, QuestionKind.MIXED, QuestionKind.FORBIDDEN,
        QuestionKind.INFEASIBLE, QuestionKind.ALREADY_SATISFIED, QuestionKind.MISSING_PARAMETER,
        QuestionKind.MISSING_TOOL,
    }
)  # fmt: skip
DRAWN = frozenset(
    {GoalTrait.IMPLICIT, GoalTrait.CHOICE, GoalTrait.CHANGES_MIND, GoalTrait.MULTI,
     GoalTrait.LATE_TOOL}
)  # fmt: skip


class WordingsBy(StrEnum):
    """Who words the turns of users."""

    RULES = "rules"
    TEACHER = "teacher"


class GoalsConfig(StageConfig):
    """Block ``goals``: which goals are made in the worlds, and how far their proofs look."""

    seed: int
    instances: dict[Split, Annotated[int, Field(ge=0)]]
    """Goals of each split, over its worlds."""
    kinds: dict[QuestionKind, Share]
    """The share of each kind."""
    traits: dict[GoalTrait, Share]
    """How often a goal that could have a trait is to have it."""
    agreed: Share
    """How often a user whose first wish is to be agreed to agrees in the opening already."""
    successive: Share
    """How often a user with several wishes comes with each when the one before is met."""
    wishes: int = Field(ge=1, le=4)
    """The most wishes of a goal with several."""
    draws: int = Field(ge=1)
    """Calls of each tool that are drawn as possible wishes, per world."""
    attempts: int = Field(ge=1)
    """How many draws a goal has to pass its proofs."""
    wordings: WordingsBy
    """Who says the turns of users; a teacher whose words do not pass leaves those of the rules."""
    teacher: ModelConfig
    """The model that words turns."""
    search_depth: int = Field(ge=1, le=3)
    """The most writes that a way round a rule may take."""
    search_calls: int = Field(ge=1)
    """The most calls that are tried at each step of that search."""
    sandbox: SandboxLimits
    """Limits of a session. One makes a world's calls as long as it lasts, then another does."""

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if abs(sum(self.kinds.values()) - 1.0) > 1e-6:
            raise ValueError(f"kinds must add up to 1, not {sum(self.kinds.values()):g}")
        if foreign := sorted({k for k, share in self.kinds.items() if share} - KINDS):
            raise ValueError(f"kinds {foreign} are no goals, only {sorted(KINDS)}")
        if foreign := sorted({t for t, share in self.traits.items() if share} - DRAWN):
            raise ValueError(f"traits {foreign} follow from others, only {sorted(DRAWN)} are drawn")
        return self
