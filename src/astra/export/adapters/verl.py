# pyright: basic, reportMissingImports=false
"""Arenas as a verl agent loop.

    actor_rollout_ref.rollout.agent.agent_loop_config_path=.../agent_loops.yaml
    data.train_files=.../train.parquet  data.return_raw_chat=True

The rows name this loop in their column ``agent_name``. It writes the reward into the episode's
output, so no reward function is needed. Tokens the model wrote are kept as they are; what the
tools returned is masked out.
"""

from pathlib import Path
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import (
    AgentLoopBase,
    AgentLoopMetrics,
    AgentLoopOutput,
    register,
)

from astra.agent.toolcalls import parse_assistant
from astra.export.episode import ArenaEpisode
from astra.export.rows import ROWS_FILE, ExportedArena, read_rows

ROWS = Path(__file__).with_name(ROWS_FILE)
AGENT = "astra_arena"
_rows: dict[str, ExportedArena] = {}


def row_of(arena_id: str) -> ExportedArena:
    """The arena of an id; the file is read at the first call."""
    if not _rows:
        _rows.update({row.id: row for row in read_rows(ROWS)})
    return _rows[arena_id]


@register(AGENT)
class ArenaAgentLoop(AgentLoopBase):
    """One episode: generate a turn, run its calls in the sandbox, append, until it ends."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        episode = ArenaEpisode(row_of(kwargs["extra_info"]["arena_id"]))
        try:
            return await self._play(episode, sampling_params)
        finally:
            episode.close()

    async def _play(self, episode: ArenaEpisode, sampling: dict[str, Any]) -> AgentLoopOutput:
        messages: list[dict[str, Any]] = episode.prompt
        tools = episode.tools
        prompt_ids = await self.ct_build_initial_tokens(messages, tools=tools)
        ids, mask, logprobs = list(prompt_ids), [], None
        request, turns = uuid4().hex, 1
        limit = self.rollout_config.response_length
        while not episode.done:
            reply = await self.server_manager.generate(
                request_id=request, prompt_ids=ids, sampling_params=sampling
            )
            merged, mask, logprobs = await self.ct_merge_assistant_token(
                ids, reply.token_ids, mask, logprobs or ([] if reply.log_probs else None),
                assistant_logprobs=reply.log_probs or None,
            )  # fmt: skip
            ids, turns = merged.token_ids, turns + 1
            if len(mask) >= limit or self.tokenizer.eos_token_id not in reply.token_ids[-1:]:
                episode.cut()
                break
            written = parse_assistant(
                self.tokenizer.decode(reply.token_ids[:-1], skip_special_tokens=False),
                len(episode.calls),
            )
            document = _document(written)
            replies = await episode.offer_async(document)
            if episode.done:
                break
            merged, mask, logprobs = await self.ct_merge_context_msg(
                [*messages, document], [*messages, document, *replies], ids, mask, logprobs, tools
            )
            messages += [document, *replies]
            ids = merged.token_ids
            if len(mask) >= limit:
                episode.cut()
                break
        score = episode.score()
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=ids[len(prompt_ids) :][:limit],
            response_mask=mask[:limit],
            response_logprobs=logprobs[:limit] if logprobs else None,
            reward_score=score.reward,
            num_turns=turns,
            metrics=AgentLoopMetrics(),
            extra_fields={"success": score.success, "calls": len(episode.calls)},
        )


def _document(message: Any) -> dict[str, Any]:
    """The parsed assistant turn as a chat message; broken arguments stay text."""
    calls = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in message.tool_calls
    ]
    document: dict[str, Any] = {"role": "assistant", "content": message.content}
    return {**document, "tool_calls": calls} if calls else document
