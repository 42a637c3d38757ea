"""The asks and the agent's turns of stage ``trajectories``, before they are made.

Lengths and numbers are those of a strong model as agent, emulator and user (213 recorded asks of
the SFT track: 8 episodes with 4 turns and 4 calls each).
"""

from __future__ import annotations

from astra.estimate.asks import AskForm, ExpectedAsks, expected
from astra.estimate.episodes import EpisodeFacts
from astra.estimate.plans import PlanFacts
from astra.estimate.servers import ServerFacts
from astra.trajectories.config import TrajectoriesConfig
from astra.trajectories.emulated import TEMPLATE as EMULATE
from astra.trajectories.emulated import EmulatedReply
from astra.trajectories.follow_up import TEMPLATE as FOLLOW_UP
from astra.trajectories.follow_up import FollowUp
from astra.trajectories.user import TEMPLATE as USER
from astra.trajectories.user import UserReply

RESULT = AskForm(EMULATE, EmulatedReply, 500)
WISH = AskForm(FOLLOW_UP, FollowUp, 300)
SAID = AskForm(USER, UserReply, 143)
TURN = "an agent's turn"
TURN_BYTES, SYSTEM_BYTES, QUESTION_BYTES = 430, 550, 300
"""What an agent writes in a turn, its system prompt, and a user's request."""
CALLS_A_STEP = 1.3
"""Calls per planned call: some are failed by the host and made again, some look things up."""
TURNS_A_CALL = 0.75
"""Turns with calls per call, since independent ones go out together; one turn more answers."""
CONVERSATION = 1.8
"""How much longer a conversation is than an episode with one request."""
USER_MESSAGES = 2.3
"""The user's moves after the agent's final messages, in one conversation."""
TALKING, PAIRED = 0.95, 0.3
"""The shares of drawn tasks that become conversations: where the second wish is written, and where
another task has to share a person or thing with the first (measured with the offline rules)."""


def expected_episodes(
    config: TrajectoriesConfig, tasks: PlanFacts, servers: ServerFacts
) -> EpisodeFacts:
    """The facts of table ``trajectories`` before it is there."""
    share = config.conversations.share
    longer = 1 + share * (CONVERSATION - 1)
    calls = tasks.steps * CALLS_A_STEP * longer
    turns = (1 + share) + calls * TURNS_A_CALL
    tools = min(servers.tools, config.max_tools or servers.tools)
    result = min(RESULT.reply_bytes, config.limits.max_result_chars)
    return EpisodeFacts(
        rows=tasks.rows.times(config.samples).guessed(),
        turns=turns,
        calls=calls,
        message_bytes=SYSTEM_BYTES + QUESTION_BYTES * longer + turns * TURN_BYTES + calls * result,
        documents_bytes=tools * servers.document_bytes,
    )


def episode_asks(
    config: TrajectoriesConfig, tasks: PlanFacts, servers: ServerFacts
) -> list[ExpectedAsks]:
    """The asks of stage ``trajectories``, and the agent's turns. The most are the limits."""
    episode = expected_episodes(config, tasks, servers)
    episodes = tasks.rows.times(config.samples)
    limits, talks = config.limits, config.conversations
    written = config.agent.backend == config.user.backend == "openai"
    drawn = episodes.times(talks.share, 1 if talks.share else 0)
    conversations = drawn.times(TALKING if written else PAIRED, 1)
    # Over the turns of an episode, half of its messages are there on average.
    turn = episode.documents_bytes + SYSTEM_BYTES + episode.message_bytes / 2
    answered = episode.calls * (1 - config.failure_rate) * servers.emulated
    service = servers.tool_bytes + 2 * QUESTION_BYTES + episode.message_bytes / 3
    said = 2 * QUESTION_BYTES + USER_MESSAGES * TURN_BYTES
    wishes = conversations.times(1 if written else 0)
    return [
        expected(
            "agent",
            config.agent,
            TURN,
            episodes.times(episode.turns, limits.max_turns),
            turn,
            TURN_BYTES,
        ),
        RESULT.asked(
            "emulator", config.emulator, episodes.times(answered, limits.max_calls), service
        ),
        SAID.asked(
            "user", config.user, conversations.times(USER_MESSAGES, talks.max_user_turns), said
        ),
        WISH.asked("user", config.user, wishes, episode.documents_bytes + 12 * QUESTION_BYTES),
    ]
