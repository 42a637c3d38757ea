"""One step of reinforcement learning on one arena, from top to bottom.

    python examples/loop.py

The script builds an arena, teaches the committed tiny policy a little of it, rolls a group of
episodes, scores them, and takes one GRPO step. Stage ``rl`` does the same on thousands of arenas:
src/astra/train/groups.py rolls the groups, src/astra/train/grpo.py trains on them through TRL.
It needs neither data nor a GPU, and runs in seconds. One step moves the mean reward by about as
much as two groups differ by chance; stage ``rl`` takes many.
"""

from __future__ import annotations

from pathlib import Path

import torch

from astra.agent.prompt import final_message
from astra.arena.answers import render_answer
from astra.arena.env import ArenaEnv
from astra.arena.prompt import initial_messages
from astra.arena.reward import FinalAnswer, RewardMode
from astra.arena.scripted import reference_calls
from astra.records.environment import Arena, ArenaStep, ArenaTool
from astra.records.message import Message, MessageRole
from astra.records.qa import Answer, AnswerType, QuestionKind, Scenario, Split
from astra.records.tool import Tool
from astra.rollout.batched import BatchedEngine
from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.rollout.driver import RolloutDriver
from astra.rollout.engine import Sampling
from astra.rollout.live import EpisodeJob, Rollout, RolloutLimits
from astra.sandbox.local import LocalSandbox
from astra.sandbox.protocol import Sandbox
from astra.train.advantages import group_std

TINY = Path(__file__).resolve().parents[1] / "policies/tiny"
GROUP = 32
"""Episodes of one arena that are compared with each other."""
TAUGHT_LOSS = 0.15
"""Teaching stops here: the policy then solves some episodes of a group, and fails in others."""
SFT_RATE, GRPO_RATE = 1e-3, 3e-4
CLIP_LOW, CLIP_HIGH = 0.2, 0.28
"""How far a token's probability may move in one step, as a share of what it was."""
LIMITS = RolloutLimits(
    max_turns=4, max_calls=8, max_parallel_calls=4, max_result_chars=200,
    max_turn_tokens=96, max_prompt_tokens=512, max_response_tokens=256,
)  # fmt: skip


def build_arena() -> Arena:
    """An arena: a question, a tool with its code, and the calls and answers that are right."""
    prices = {"Amber Cove": 107, "Jade Mill": 114, "Calm Harbor": 121}
    schema = {
        "type": "object",
        "properties": {"listing": {"type": "string"}},
        "required": ["listing"],
    }
    tool = Tool(name="get_price", description="The price of a listing.", parameters=schema)
    code = f"def get_price(listing):\n    return {prices!r}[listing]\n"
    asked = ("Amber Cove", "Jade Mill")
    steps = tuple(
        ArenaStep(
            id=number, hop_level=1, question=f"What is the price of {name}?",
            answer=Answer(type=AnswerType.NUMBER, value=prices[name]),
            tool_name="get_price", arguments={"listing": name},
        )
        for number, name in enumerate(asked, 1)
    )  # fmt: skip
    return Arena(
        qa_id="example", split=Split.TRAIN, domain="real_estate", language="en",
        source="examples/loop.py", kind=QuestionKind.READ_ONLY,
        scenario=Scenario.PARALLEL_SINGLE_HOP, hops=1,
        main_question=f"What is the price of {asked[0]} and of {asked[1]}?",
        final_answer=Answer(type=AnswerType.LIST, value=[prices[name] for name in asked]),
        tools=(ArenaTool(tool=tool, code=code),), steps=steps, entities=asked, composition="price",
    )  # fmt: skip


def gold_conversation(env: ArenaEnv) -> list[Message]:
    """The episode of an agent that makes the right calls and then answers."""
    calls = tuple(reference_calls(env.arena))
    results = [
        Message(
            role=MessageRole.TOOL, tool_call_id=call.id, name=call.name,
            content=env.execute_now(call).content,
        )
        for call in calls
    ]  # fmt: skip
    answer = final_message("done.", [render_answer(env.arena.final_answer)])
    return [
        *initial_messages(env.arena),
        Message(role=MessageRole.ASSISTANT, tool_calls=calls),
        *results,
        Message(role=MessageRole.ASSISTANT, content=answer),
    ]


def teach(policy: LoadedPolicy, arena: Arena, sandbox: Sandbox) -> float:
    """Supervised steps on the gold episode; the loss falls on what the assistant writes alone."""
    env = ArenaEnv(arena, sandbox)
    ids, mask = policy.codec.encode_conversation(gold_conversation(env), env.tools)
    env.close_now()
    inputs = torch.tensor([ids])
    labels = inputs.masked_fill(torch.tensor([mask]) == 0, -100)
    optimizer = torch.optim.AdamW(policy.model.parameters(), SFT_RATE)
    loss = float("inf")
    while loss > TAUGHT_LOSS:
        output = policy.model(input_ids=inputs, labels=labels)
        output.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = output.loss.item()
    return loss


def rewards_of(group: list[Rollout]) -> list[float]:
    """What the arena paid for each episode: its executed calls and its answer decide."""
    return [rollout.score.reward for rollout in group if rollout.score is not None]


def grpo_loss(policy: LoadedPolicy, rollout: Rollout, advantage: float) -> torch.Tensor:
    """The clipped objective, summed over the tokens that the policy wrote itself."""
    ids = torch.tensor([[*rollout.prompt_ids, *rollout.completion_ids]])
    logits = policy.model(input_ids=ids).logits[0, len(rollout.prompt_ids) - 1 : -1]
    new = torch.log_softmax(logits, -1).gather(1, ids[0, len(rollout.prompt_ids) :, None])[:, 0]
    ratio = torch.exp(new - torch.tensor(rollout.logprobs))  # 1 before the step, up to rounding
    clipped = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    gain = torch.minimum(ratio * advantage, clipped * advantage)
    return -(gain * torch.tensor(rollout.mask)).sum()  # what tools returned has mask 0


def advantages(rewards: list[float]) -> list[float]:
    """What each episode earned above the mean of its group, in its standard deviations."""
    mean, spread = sum(rewards) / len(rewards), group_std(rewards) + 1e-4
    return [(reward - mean) / spread for reward in rewards]


def step(policy: LoadedPolicy, group: list[Rollout]) -> None:
    """One optimizer step on one group: the mean over all its written tokens."""
    optimizer = torch.optim.AdamW(policy.model.parameters(), GRPO_RATE)
    written = sum(sum(rollout.mask) for rollout in group)
    for rollout, advantage in zip(group, advantages(rewards_of(group)), strict=True):
        (grpo_loss(policy, rollout, advantage) / written).backward()
    optimizer.step()


def main() -> None:
    torch.manual_seed(0)
    config = PolicyConfig(path=str(TINY), revision=None, template="own", dtype="float32")
    policy, arena = load_policy(config), build_arena()
    codec = policy.codec
    with LocalSandbox() as sandbox:
        print(f"taught to a loss of {teach(policy, arena, sandbox):.3f}")
        engine = BatchedEngine(policy.model, codec.eos_id, codec.pad_id, max_rows=GROUP)
        driver = RolloutDriver(engine, codec, sandbox, LIMITS, RewardMode.F1, FinalAnswer.SUBTASK)
        jobs = [EpisodeJob(arena)] * GROUP
        before = driver.run(jobs, Sampling(temperature=1.0, seed=1))
        step(policy, before)
        driver.weights_are(1)
        after = driver.run(jobs, Sampling(temperature=1.0, seed=2))
    for name, group in (("before", before), ("after", after)):
        print(f"reward {name}: {sum(rewards_of(group)) / GROUP:.3f}")


if __name__ == "__main__":
    main()
