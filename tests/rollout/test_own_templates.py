"""Templates of publishers, used as they are: what is trained is what is rolled and served."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import pytest
from test_chat import FINAL, PROMPT, RESULTS, TOOLS, TURN
from test_families import CALLS, FAMILIES, codec_of, spans
from test_thoughts import FIRST, LAST, MORE, SECOND, THOUGHT_OUT, sample, written

from astra.records.message import Message
from astra.rollout.chat import ChatCodec, LoadedPolicy, PolicyError, load_codec, template_text
from astra.rollout.template_traits import Thoughts
from astra.serving.chat import ChatHistory
from astra.serving.generation import Generated
from astra.serving.wire import ChatRequest
from astra.tracking.mlflow import Run
from astra.train.errors import TrainingError
from astra.train.sft import encode_samples, train_sft
from configs import policy_config, sft_config

EOS = "<|im_end|>"
ROLLED = [*PROMPT, TURN.model_copy(update={"reasoning": FIRST}), *RESULTS,
          FINAL.model_copy(update={"reasoning": LAST})]  # fmt: skip


def own(name: str, family: str = "qwen3 thinking") -> ChatCodec:
    """The codec of a template as its publisher ships it, from TRL's collection."""
    codec = codec_of(FAMILIES[family])
    folder = resources.files("trl").joinpath("chat_templates")
    codec.tokenizer.chat_template = folder.joinpath(f"{name}.jinja").read_text(encoding="utf-8")
    return ChatCodec(codec.tokenizer)


@pytest.fixture
def qwen3() -> ChatCodec:
    return own("qwen3")


def sampled(codec: ChatCodec, thought: str, said: str) -> list[int]:
    """A turn as a thinking policy writes it, EOS included."""
    return list(codec.tokenizer.encode(written(thought) + said + EOS, add_special_tokens=False))


def test_a_template_says_its_name_hash_and_whose_thoughts_it_writes(qwen3: ChatCodec) -> None:
    text = qwen3.tokenizer.chat_template
    assert (qwen3.template, qwen3.thoughts) == ("own", Thoughts.CURRENT)
    assert qwen3.template_hash == hashlib.sha256(text.encode()).hexdigest()[:16]
    found = {name: codec_of(family) for name, family in FAMILIES.items()}
    assert {name: (one.template, one.thoughts) for name, one in found.items()} == {
        "qwen3": ("qwen3", Thoughts.NEVER),
        "qwen3 thinking": ("hermes", Thoughts.ALL),
        "qwen2.5": ("hermes", Thoughts.ALL),
        "smollm2": ("hermes", Thoughts.ALL),
        "signatures": ("signatures", Thoughts.ALL),
        "llama3": ("llama3", Thoughts.ALL),
    }
    tiny = load_codec(policy_config())
    assert (tiny.template, tiny.thoughts) == ("compact", Thoughts.NEVER)
    assert own("qwen2_5").thoughts == Thoughts.NEVER


def test_a_thinking_rollout_is_the_row_that_sft_trains(qwen3: ChatCodec) -> None:
    """Prompt, sampled turn, results, sampled answer: the ids and the mask of the training row."""
    first, last = sampled(qwen3, FIRST, CALLS), sampled(qwen3, LAST, FINAL.content)
    prompt, suffix = qwen3.encode_prompt(PROMPT, TOOLS), qwen3.suffix_ids(RESULTS)
    ((ids, mask),) = qwen3.training_rows(ROLLED, TOOLS)
    built = prompt + first + suffix + last
    assert ids[: len(built)] == built
    assert len(ids) - len(built) <= 1, "at most the line end after the last turn"
    trained = [0] * len(prompt) + [1] * len(first) + [0] * len(suffix) + [1] * len(last)
    assert mask == trained + [0] * (len(ids) - len(built))


def test_forgotten_thoughts_make_a_row_per_user_message(qwen3: ChatCodec) -> None:
    early, late = qwen3.training_rows(THOUGHT_OUT, TOOLS)
    assert spans(qwen3, *early) == [
        written(FIRST) + CALLS + EOS,
        written(LAST) + FINAL.content + EOS,
    ]
    assert spans(qwen3, *late) == [written("Nobody knows.") + SECOND.content + EOS]
    assert FIRST not in qwen3.tokenizer.decode(late[0])
    served = qwen3.encode_prompt(THOUGHT_OUT[:-1], TOOLS)
    assert late[0][: len(served)] == served, "the turn is trained in the prompt it is served in"
    assert not any(late[1][: len(served)])


def test_without_thoughts_or_with_all_of_them_a_conversation_is_one_row(qwen3: ChatCodec) -> None:
    plain = [one.model_copy(update={"reasoning": ""}) for one in THOUGHT_OUT]
    ((ids, mask),) = qwen3.training_rows(plain, TOOLS)
    assert len(spans(qwen3, ids, mask)) == 3
    hermes = codec_of(FAMILIES["qwen3 thinking"])
    assert hermes.training_rows(THOUGHT_OUT, TOOLS) == [
        hermes.encode_conversation(THOUGHT_OUT, TOOLS)
    ]


def test_an_own_mask_is_what_the_marks_of_a_training_template_say() -> None:
    derived, marked = own("qwen2_5", "qwen2.5"), own("qwen2_5_training", "qwen2.5")
    conversation = [*PROMPT, TURN, *RESULTS, FINAL]
    ids, mask = derived.encode_conversation(conversation, TOOLS)
    same, told = marked.encode_conversation(conversation, TOOLS)
    assert ids == same
    line_ends = {derived.tokenizer.encode("\n")[0]}
    differ = [i for i, a, b in zip(ids, mask, told, strict=True) if a != b]
    assert set(differ) <= line_ends, "whether the line end after a turn is trained, and no more"
    assert spans(derived, ids, mask) == [CALLS + EOS, FINAL.content + EOS]


@pytest.mark.parametrize(
    ("name", "family", "why"),
    [
        ("llama3_1", "llama3", r'writes a call as .*"parameters".*only <tool_call> tags are read'),
        ("qwen3_5_nothink", "qwen3", r"writes a call as .*<function=probe_tool>"),
        ("deepseek_r1_distill", "qwen3", r"opens a thought itself"),
        ("gemma3", "qwen3", r"ends a turn with '.*', and the tokenizer's EOS is '<\|im_end\|>'"),
    ],
)
def test_an_own_template_that_cannot_be_used_is_refused(name: str, family: str, why: str) -> None:
    with pytest.raises(PolicyError, match=rf"{why}.*; set policy\.template to hermes"):
        own(name, family)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "does not go on with an assistant's turn"),
        ("{{ raise_exception('no tools here') }}", r"does not render .*no tools here"),
        ("{% for m in messages %}{{ m.role + m.content }}<|im_end|>{% endfor %}"
         "{% if add_generation_prompt %}assistant{% endif %}", "writes a call as ''"),
        (template_text("hermes").replace("{%- elif tools %}", "{%- elif false %}"),
         "show the tools"),
        (template_text("hermes").replace("'<tool_response>\\n' + content", "'"
         "<tool_response>'"), "show the results"),
    ],
)  # fmt: skip
def test_a_template_that_hides_something_is_refused(text: str, why: str) -> None:
    codec = codec_of(FAMILIES["qwen2.5"])
    codec.tokenizer.chat_template = text
    with pytest.raises(PolicyError, match=why):
        ChatCodec(codec.tokenizer)


def test_a_policy_without_any_template_is_refused() -> None:
    codec = codec_of(FAMILIES["qwen2.5"])
    codec.tokenizer.chat_template = None
    with pytest.raises(PolicyError, match=r"no chat template of its own; set policy\.template"):
        ChatCodec(codec.tokenizer)


def test_a_conversation_that_is_rendered_otherwise_later_is_refused(qwen3: ChatCodec) -> None:
    """As one row, the first turns would be trained behind thoughts that the text has not."""
    with pytest.raises(PolicyError, match=r"before assistant message 5 in another way"):
        qwen3.encode_conversation(THOUGHT_OUT, TOOLS)


def test_a_server_forgets_thoughts_when_the_user_speaks_again(qwen3: ChatCodec) -> None:
    history = ChatHistory(qwen3)
    prompt = history.prompt(request(PROMPT))
    first = history.choice(
        request(PROMPT), prompt, Generated(sampled(qwen3, FIRST, "It is 45."), "eos")
    )
    reply = FINAL.model_copy(update={"content": first.content})
    again = history.prompt(request([*PROMPT, reply, MORE]))
    assert history.continued == 0
    assert again == qwen3.encode_prompt([*PROMPT, reply, MORE], TOOLS)
    assert FIRST not in qwen3.tokenizer.decode(again)


def request(messages: Sequence[Message]) -> ChatRequest:
    return ChatRequest(
        model="m", messages=tuple(messages), tools=tuple(TOOLS), max_tokens=None, temperature=1.0,
        top_p=1.0, top_k=0, seed=None, n=1, stop=(), return_token_ids=False,
    )  # fmt: skip


def test_a_thinking_policy_is_not_trained_on_a_set_without_thoughts(
    qwen3: ChatCodec, tmp_path: Path
) -> None:
    plain = [one.model_copy(update={"reasoning": ""}) for one in ROLLED]
    train = encode_samples([sample(plain)], qwen3, 4096)
    assert train.thoughts == 0
    with pytest.raises(TrainingError, match=r"'own'.*none of the 1 .* holds a thought.*=qwen3"):
        train_sft(
            LoadedPolicy(None, qwen3), train, encode_samples([], qwen3, 4096), sft_config(),
            tmp_path, Run(None, "", ""),
        )  # fmt: skip
    kept = encode_samples([sample(THOUGHT_OUT)], qwen3, 4096)
    assert (kept.thoughts, len(kept.rows), kept.rejections) == (3, 2, [])
    short = encode_samples([sample(THOUGHT_OUT)], qwen3, 16)
    assert [one.reason for one in short.rejections] == ["too_long", "too_long"]
