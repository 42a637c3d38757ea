"""The people who ask in mode ``persona`` of augmentation: from a file, or made up by rule.

A person is told in the first person, as a user who introduces themselves: age, occupation,
education, a line about them, at most five skills and five hobbies (ASTRA section 3.2).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, TypeAdapter, ValidationError

from astra.errors import AstraError
from astra.records.base import content_id
from astra.records.task import Task
from astra.settings import StageConfig

OFFERED = 5
"""How many people a variant's writer may choose the one from who asks."""

_OCCUPATIONS = (
    "nurse", "teacher", "clerk", "driver", "student", "farmer", "lawyer", "cook", "engineer",
    "retired builder", "shop owner", "translator", "police officer", "painter", "pilot",
)  # fmt: skip
_TRAITS = (
    "I like short answers.", "I am new here.", "I read a lot.", "I enjoy hiking.",
    "I work at night.", "I plan things well ahead.", "I play chess.", "I speak two languages.",
)  # fmt: skip


class PersonasError(AstraError):
    """The file of people cannot be used."""


class Person(StageConfig):
    """One entry of the file of people."""

    language: str = "en"
    age: int = Field(ge=1, le=120)
    occupation: str = Field(min_length=1)
    education: str = ""
    about: str = Field(default="", max_length=200)
    """One or two sentences in the first person."""
    skills: tuple[str, ...] = Field(default=(), max_length=5)
    hobbies: tuple[str, ...] = Field(default=(), max_length=5)

    def introduction(self) -> str:
        """How the person introduces themselves, in their language (English or Chinese)."""
        if self.language == "zh":
            return self._chinese()
        article = "an" if self.occupation[0].lower() in "aeiou" else "a"
        parts = [f"I am {article} {self.occupation} aged {self.age}."]
        parts += [f"I have {self.education}."] if self.education else []
        parts += [self.about.strip()] if self.about.strip() else []
        parts += [f"I am good at {_listed(self.skills, ' and ')}."] if self.skills else []
        parts += [f"I like {_listed(self.hobbies, ' and ')}."] if self.hobbies else []
        return " ".join(parts)

    def _chinese(self) -> str:
        parts = [f"我是一名{self.occupation}，今年{self.age}岁。"]
        parts += [f"我的学历是{self.education}。"] if self.education else []
        parts += [self.about.strip()] if self.about.strip() else []
        parts += [f"我擅长{'、'.join(self.skills)}。"] if self.skills else []
        parts += [f"我喜欢{'、'.join(self.hobbies)}。"] if self.hobbies else []
        return "".join(parts)


def _listed(items: Sequence[str], last: str) -> str:
    return last.join(part for part in (", ".join(items[:-1]), items[-1]) if part)


def load_people(path: Path) -> tuple[Person, ...]:
    """The people in a YAML list. Raises PersonasError naming the entry that is not usable."""
    if not path.is_file():
        raise PersonasError(
            f"personas file {path} not found; set `personas` to one, or tasks.personas to null"
        )
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        people = TypeAdapter(tuple[Person, ...]).validate_python(document)
    except (yaml.YAMLError, ValidationError) as error:
        raise PersonasError(f"personas file {path} is not usable: {error}") from None
    if not people:
        raise PersonasError(f"personas file {path} lists nobody")
    return people


def offered(people: Sequence[Person], task: Task, variant: int) -> list[str]:
    """How the people introduce themselves from whom a variant's writer chooses.

    Those who speak the task's language or, if nobody does, all of them; each variant is offered
    others while there are enough. Without a file of people they are made up, in English.
    """
    places = range(variant * OFFERED, (variant + 1) * OFFERED)
    if not people:
        return [_made_up(_generator(task, place)) for place in places]
    speakers = [person for person in people if person.language == task.language] or list(people)
    order = _generator(task, 0).sample(speakers, len(speakers))
    chosen = dict.fromkeys(order[place % len(order)].introduction() for place in places)
    return list(chosen)


def _generator(task: Task, place: int) -> random.Random:
    return random.Random(int(content_id([task.id, "persona", place]), 16))


def _made_up(rng: random.Random) -> str:
    """A made-up person's introduction: age, occupation and one trait, in two sentences."""
    occupation = rng.choice(_OCCUPATIONS)
    article = "an" if occupation[0] in "aeiou" else "a"
    return f"I am {article} {occupation} aged {rng.randint(19, 78)}. {rng.choice(_TRAITS)}"
