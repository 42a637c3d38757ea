"""Questions of real users become tools that are proved: an action, a difference, look-ups."""

from __future__ import annotations

import pytest
from env_runs import everything, final
from env_samples import ENVS

from astra.envsynth.offline.handlers import HANDLERS
from astra.llm.offline import OfflineTeacher
from astra.qa.free import build_instance
from astra.qa.replies import Synthesis
from astra.records.environment import Environment
from astra.records.qa import QAInstance
from astra.sandbox.protocol import Sandbox
from free_questions import RECORDED, Scripted, booking, dearer, outcomes

TEACHER = OfflineTeacher(ENVS.teacher, HANDLERS)


def judged(instance: object) -> QAInstance:
    """The instance as if a judge had said that every step needs a tool."""
    assert isinstance(instance, QAInstance), instance
    steps = (step.model_copy(update={"tool_necessity": True}) for step in instance.sub_questions)
    return instance.model_copy(update={"sub_questions": tuple(steps)})


def made(instance: object, sandbox: Sandbox) -> list[str]:
    """The tools that an instance's steps become; what else comes of one says why."""
    ended = final(everything([judged(instance)], TEACHER, sandbox))
    return [one.tool.name if isinstance(one, Environment) else str(one) for one in ended]


def test_a_booking_becomes_a_look_up_and_a_write(patient_sandbox: Sandbox) -> None:
    (instance,) = outcomes(RECORDED["restaurants_tail"][0], Scripted(booking()))
    assert made(instance, patient_sandbox) == ["get_slot", "book_slot"]


def test_a_difference_becomes_a_calculator(patient_sandbox: Sandbox) -> None:
    (instance,) = outcomes(RECORDED["flights"][0], Scripted(dearer(1, 157.02)))
    assert made(instance, patient_sandbox) == ["get_price", "get_price", "subtract_amount"]


@pytest.mark.parametrize("domain", ["ticketing", "travel"])
def test_recorded_look_ups_become_tools(domain: str, patient_sandbox: Sandbox) -> None:
    request, document = RECORDED[domain]
    reply = Synthesis.model_validate({**document, "acts": False})
    instance = build_instance(request, reply, "")
    assert len(made(instance, patient_sandbox)) == len(instance.sub_questions)
