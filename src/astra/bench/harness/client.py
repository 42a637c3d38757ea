"""The chat client of suites that the project plays itself, and their jobs side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import httpx2

from astra.bench.harness.protocol import Decoding, Job, ModelEndpoint, Played
from astra.bench.harness.relay import ENTRY_HEADER, OVERFLOW
from astra.errors import AstraError
from astra.llm.wire import ChatReply, Fault, Refusal, read_reply, reported_tokens
from astra.records.bench import SuiteOutcome

FILTERED = "(content filter)"
"""What a model has said whose reply was taken away whole."""


class ContextOverflow(AstraError):
    """The prompt outgrew the model's context."""


class CompletionError(AstraError):
    """The endpoint gave no completion: never the model's failure."""


@dataclass(frozen=True)
class Completion:
    reply: ChatReply
    prompt_tokens: int
    completion_tokens: int


class ChatClient:
    """One endpoint, for any thread. Nothing is retried here: the relay does that."""

    def __init__(self, endpoint: ModelEndpoint) -> None:
        self._url = f"{endpoint.base_url.rstrip('/')}/chat/completions"
        self._model = endpoint.model
        self._http = httpx2.Client(timeout=None, trust_env=False)

    def complete(self, entry: str, fields: Mapping[str, Any]) -> Completion:
        """``fields`` of the request besides the model. Raises ContextOverflow, CompletionError."""
        body = {"model": self._model, **fields}
        headers = {ENTRY_HEADER: entry} if entry.isascii() else {}
        try:
            answer = self._http.post(self._url, json=body, headers=headers)
            document = json.loads(answer.content)
        except (httpx2.HTTPError, ValueError) as error:
            raise CompletionError(f"{type(error).__name__}: {error}") from error
        if answer.status_code != 200:
            text = answer.text[:500]
            if OVERFLOW in text:
                raise ContextOverflow(text)
            raise CompletionError(f"status {answer.status_code}: {text}")
        try:
            reply = _reply(document)
        except Fault as error:
            raise CompletionError(str(error)) from error
        used = reported_tokens(document)
        if used is None:
            raise CompletionError("the endpoint does not say how many tokens it used")
        return Completion(reply, used.prompt, used.completion)

    def close(self) -> None:
        self._http.close()


def _reply(document: Any) -> ChatReply:
    """The completion; a refusal is the model's own reply too: its text, without calls."""
    try:
        return read_reply(document)
    except Refusal:
        choice = document["choices"][0]
        message = choice["message"]
        said = message.get("refusal") or message.get("content") or FILTERED
        spoken = {**message, "content": said, "tool_calls": None, "refusal": None}
        return read_reply({"choices": [{"message": spoken, "finish_reason": "stop"}]})


def sampling(decoding: Decoding, job: Job) -> dict[str, Any]:
    """Request fields of one attempt; what is not set is not sent."""
    chosen = decoding.model_dump(mode="json", exclude_none=True, exclude={"extra"})
    return {**chosen, "seed": job.seed, **decoding.extra}


def play_jobs(
    jobs: Sequence[Job], concurrency: int, attempt: Callable[[Job], Played]
) -> Iterator[Played]:
    """Attempts as they finish. An AstraError is our own loss, counted as such."""

    def play(job: Job) -> Played:
        try:
            return attempt(job)
        except AstraError as error:
            reason = f"{type(error).__name__}: {error}"[:600]
            return Played(
                entry_id=job.entry_id, attempt=job.attempt, outcome=SuiteOutcome.INFRA,
                scores={}, reason=reason,
            )  # fmt: skip

    with ThreadPoolExecutor(concurrency) as pool:
        for done in as_completed([pool.submit(play, job) for job in jobs]):
            yield done.result()
