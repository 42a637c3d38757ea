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
from astra.settings import StageConfig

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
        parts = [f"I am {article} {self.occupation} of {self.age} years."]
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


def introductions(
    people: Sequence[Person], language: str, count: int, rng: random.Random
) -> list[str]:
    """Introductions of ``count`` people who speak ``language``, without repeats while there are
    enough.

    Where nobody speaks it, or no people are given, they are made up, in English.
    """
    speakers = [person for person in people if person.language == language]
    if not speakers:
        return [_made_up(rng) for _ in range(count)]
    order = rng.sample(speakers, len(speakers))
    return [order[index % len(order)].introduction() for index in range(count)]


def _made_up(rng: random.Random) -> str:
    """A made-up person's introduction: age, occupation and one trait, in two sentences."""
    occupation = rng.choice(_OCCUPATIONS)
    article = "an" if occupation[0] in "aeiou" else "a"
    return f"I am {article} {occupation} of {rng.randint(19, 78)} years. {rng.choice(_TRAITS)}"
