"""Driver of ACEBench agent: official simulators and checker (in package evalscope), our loop.

evalscope as a whole is not imported: it is installed without its dependencies, and only its
ACEBench modules (simulators, prompts, parser of calls, checker) are loaded. Data are ACEBench's
own files, read here.

Mode ``prompt`` is the official protocol: a transcript in one prompt, calls as text. It follows the
official runner also where that is odd, since its numbers are what scores are compared with;
``benchmarks/acebench_official.py`` plays both. Mode ``fc`` sends tools and reads tool calls; a turn
without a call ends a multi-step task.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import hashlib
import importlib
import json
import os
import re
import sys
import types
from pathlib import Path
from typing import Any

import wire
from acebench_executor import World, check_elements
from openai import APIError, DefaultHttpxClient, OpenAI

PACKAGES = ("evalscope", "openai")
CATEGORIES = ("multi_step", "multi_turn")
FINISHED = "finish conversation"
CONNECTIONS = DefaultHttpxClient(timeout=None, trust_env=False)
TYPES = {"dict": "object", "list": "array", "tuple": "array", "float": "number", "int": "integer"}
"""ACEBench's names of JSON Schema types, where they differ."""
FC_SYSTEM = (
    "You are an assistant with tools. Do the user's task step by step, each step with what the "
    "steps before returned. Do not ask for what the task says. When all is done, say so."
)
NUDGE = "Please do not ask me any questions, use the known conditions to solve the problem"
"""What the official executor answers a text that holds no call."""


OFFICIAL: dict[str, Any] = {}
"""Modules of evalscope's ACEBench port by name."""


def load_official() -> None:
    """Import them without running the packages above them."""
    root = wire.package_folder("evalscope")
    for name, folder in (
        ("evalscope", root),
        ("evalscope.benchmarks", root / "benchmarks"),
        ("evalscope.third_party", root / "third_party"),
    ):
        package = types.ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package
    for name in ("scenarios", "prompts", "parser", "checker"):
        OFFICIAL[name] = importlib.import_module(f"evalscope.benchmarks.acebench.{name}")


def read_samples(folder: Path, language: str, categories: list[str]) -> dict[str, dict[str, Any]]:
    """Samples by id, each with its answer; raises OSError, KeyError and ValueError naming files."""
    found: dict[str, dict[str, Any]] = {}
    for category in categories:
        answers = {one["id"]: one for one in lines(folder / "possible_answer", language, category)}
        for one in lines(folder, language, category):
            answer = answers[one["id"]]
            found[one["id"]] = {
                "category": category,
                "question": one["question"],
                "initial_config": one["initial_config"],
                "functions": one["function"],
                "classes": one["involved_classes"],
                "end_state": answer["ground_truth"],
                "milestones": answer["mile_stone"],
            }
    return found


def digest(samples: dict[str, dict[str, Any]]) -> str:
    text = json.dumps(samples, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def lines(folder: Path, language: str, category: str) -> list[dict[str, Any]]:
    """JSON lines of a category, under this project's names or those of the official repository."""
    names = (f"{language}_agent_{category}.json", f"data_agent_{category}.json")
    for name in names:
        path = folder / name
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    raise FileNotFoundError(f"{folder} has none of {names}")


class Attempt:
    def __init__(self, main: wire.Wire, job: dict[str, Any], sample: dict[str, Any]) -> None:
        options = main.options
        self.sample, self.language, self.most = sample, options["language"], options["max_steps"]
        self.fc = options["mode"] == "fc"
        self.decoding = main.decoding(job)
        self.user_decoding = options["user_decoding"]
        self.models: dict[str, tuple[Any, str]] = {
            role: (
                OpenAI(
                    base_url=one["base_url"], api_key="none", max_retries=0,
                    http_client=CONNECTIONS, default_headers={wire.ENTRY_HEADER: job["entry_id"]},
                ),
                one["model"],
            )
            for role, one in main.request["endpoints"].items()
        }  # fmt: skip
        self.prompts = OFFICIAL["prompts"]
        self.parser = OFFICIAL["parser"]
        self.world = World(OFFICIAL["scenarios"], sample, self.language)
        self.process: list[str] = []
        self.seen: list[dict[str, Any]] = []
        self.steps = self.prompt_tokens = self.completion_tokens = 0
        self.model_error: APIError | None = None
        """What was raised by the endpoint of the model under test, as opposed to the user's."""

    def play(self) -> None:
        turns = self.sample["category"] == "multi_turn"
        if self.fc:
            self._fc(turns)
        elif turns:
            self._turns()
        else:
            self._steps()

    def _steps(self) -> None:
        transcript = f"user:{self.sample['question']}\n"
        for turn in range(self.most // 2):
            said = self._agent(transcript)
            if turn and FINISHED in said:
                return
            self.process.append(said)
            calls = self._calls(said)
            result: Any = NUDGE if calls is None else self.world.each(calls)
            transcript += f"execution result:{result}\n"
            self._note("user", f"execution result:{result}")

    def _turns(self) -> None:
        user = User(self)
        said: Any = user.say()
        sender, recipient, transcript = "user", "agent", ""
        for step in range(self.most):
            transcript += f"{sender}:{said}\n"
            if recipient == "user":
                said, sender, recipient = user.say(said), "user", "agent"
            elif recipient == "agent":
                said, sender = self._agent(transcript), "agent"
                # One line: the official agent addresses the executor so, and nobody else.
                called = re.search(r"\[.*\]", said) and self._calls(said) is not None
                recipient = "execution" if called else "user"
            else:
                self.process.append(said)
                said = self.world.together(self._calls(said) or [])
                sender, recipient = "execution", "agent"
                self._note("user", f"execution:{said}")
            if step > 1 and FINISHED in said:
                return

    def _fc(self, turns: bool) -> None:
        user = User(self) if turns else None
        system = FC_SYSTEM if user is None else self._policy()
        first = self.sample["question"] if user is None else user.say()
        self._note("system", system)
        if user is None:
            self._note("user", first)
        tools = [function_document(one) for one in self.sample["functions"]]
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": system},
            {"role": "user", "content": first},
        ]
        for _ in range(self.most // 2):
            message = self._ask("model", messages, {**self.decoding, "tools": tools})
            plain = wire.plain(message)
            self.seen.append(plain)
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls or []:
                result = self._tool(call.function.name, call.function.arguments)
                answered = {"role": "tool", "tool_call_id": call.id, "content": result}
                messages.append(answered)
                self.seen.append(answered)
            if message.tool_calls:
                continue
            if user is None:
                return
            said = user.say(message.content or "")
            messages.append({"role": "user", "content": said})
            if FINISHED in said:
                return

    def _tool(self, name: str, text: str) -> str:
        try:
            arguments = json.loads(text)
        except (ValueError, RecursionError) as error:
            return f"error: arguments are no JSON: {error}"
        if not isinstance(arguments, dict):
            return "error: arguments must be an object"
        written = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        self.process.append(f"[{name}({written})]")
        self.world.reached = True
        try:
            result = self.world.run(name, arguments)
        except Exception as error:  # what a simulator makes of bad arguments
            return f"error: {type(error).__name__}: {error}"
        return result if isinstance(result, str) else json.dumps(result, default=str)

    def _policy(self) -> str:
        """The domain's rules that the official multi-turn agent is given."""
        templates = self.prompts.agent_prompt_set(self.language)
        named = (("Travel", "travel_policy"), ("BaseApi", "base_policy"))
        return "\n".join(templates[key] for name, key in named if name in self.sample["classes"])

    def _agent(self, transcript: str) -> str:
        system, user = self.prompts.build_agent_prompts(
            transcript=transcript, functions=self.sample["functions"],
            involved_classes=self.sample["classes"],
            test_category=f"agent_{self.sample['category']}", language=self.language,
        )  # fmt: skip
        messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
        if not self.seen:
            self._note("system", system)
            self._note("user", user)
        said = self._ask("model", messages, self.decoding).content or ""
        self._note("assistant", said)
        return said

    def _ask(self, role: str, messages: list[dict[str, Any]], fields: dict[str, Any]) -> Any:
        client, model = self.models[role]
        try:
            reply = client.chat.completions.create(model=model, messages=messages, **fields)
        except APIError as error:
            if role == "model":
                self.model_error = error
            raise
        if role == "model":
            self.steps += 1
            self.prompt_tokens += reply.usage.prompt_tokens
            self.completion_tokens += reply.usage.completion_tokens
        return reply.choices[0].message

    def _calls(self, said: str) -> list[dict[str, dict[str, Any]]] | None:
        """The calls of a text, parsed and never evaluated; None where it is no list of calls."""
        try:
            calls = self.parser.decode_execution_calls(said)
            if self.sample["category"] == "multi_step":
                check_elements(said)
        except Exception:  # as the official executor: whatever cannot be parsed is no call
            return None
        return calls

    def _note(self, role: str, content: str) -> None:
        self.seen.append({"role": role, "content": content})


class User:
    """The user simulator, with the official prompt. It is shown its own messages as the system's,
    which is the official runner's way."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        sample, prompts = attempt.sample, attempt.prompts
        system = prompts.build_user_simulator_prompt(
            sample["question"], sample["classes"], attempt.language
        )
        opening = prompts.agent_prompt_set(attempt.language)["user_opening"]
        self.messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": opening},
        ]

    def say(self, agent: Any = None) -> str:
        if agent is not None:
            told = re.sub("^(user|agent):", "", str(agent))
            self.messages.append({"role": "user", "content": told})
        said = self.attempt._ask("user", self.messages, self.attempt.user_decoding).content or ""
        self.messages.append({"role": "system", "content": said})
        self.attempt._note("user", said)
        return said


def function_document(function: dict[str, Any]) -> dict[str, Any]:
    """An ACEBench function as an OpenAI tool."""
    return {
        "type": "function",
        "function": {**function, "parameters": schema(function["parameters"])},
    }


def schema(node: Any) -> Any:
    if isinstance(node, list):
        return [schema(one) for one in node]
    if not isinstance(node, dict):
        return node
    made = {key: schema(value) for key, value in node.items()}
    if isinstance(made.get("type"), str):
        made["type"] = TYPES.get(made["type"], made["type"])
    return made


def attempt(
    main: wire.Wire, samples: dict[str, dict[str, Any]], job: dict[str, Any]
) -> dict[str, Any]:
    sample = samples[job["entry_id"]]
    played = Attempt(main, job, sample)
    checker = OFFICIAL["checker"]
    outcome, reason, valid = "scored", "", False
    try:
        played.play()
        verdict = checker.check_agent_end_state(played.world.end_state(), sample["end_state"])
        valid = bool(verdict["valid"])
        reason = "" if valid else f"{verdict['error_type']}: {verdict['error']}"[: wire.MAX_REASON]
    except APIError as error:
        if error is not played.model_error or not wire.outgrown(error):
            raise
        outcome, reason = "overflow", wire.said(error)
    # Officially a task with the right end state has passed all its milestones.
    reached = 1.0 if valid else checker.milestone_accuracy(played.process, sample["milestones"])
    return {
        "outcome": outcome,
        "scores": {"accuracy": wire.scored(valid), "process": wire.scored(reached)},
        "reason": reason,
        "steps": played.steps,
        "prompt_tokens": played.prompt_tokens,
        "completion_tokens": played.completion_tokens,
        "messages": played.seen,
    }


def main() -> None:
    channel = wire.Wire()
    options = channel.options
    folder = Path(os.environ["ACEBENCH_DATA"])
    samples = read_samples(folder, options["language"], options["categories"])
    if channel.request["task"] == "list":
        listed = ((name, sample["category"]) for name, sample in samples.items())
        channel.listing(listed, PACKAGES, data=digest(samples))
        return
    load_official()
    channel.play(lambda job: attempt(channel, samples, job))


if __name__ == "__main__":
    main()
