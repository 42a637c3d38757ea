"""Rows laid out as a tree give what the padded rows give, and compute less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from test_grpo import ScriptedRoller
from test_grpo import trainer as rl_trainer
from test_sft_trainer import loss_and_gradients
from test_sft_trainer import trainer as sft_trainer
from training_world import make_arena, make_sample
from trl.trainer.sft_trainer import SFTTrainer

from astra.rollout.chat import LoadedPolicy, PolicyConfig, load_policy
from astra.tracking.mlflow import Run
from astra.train import rl
from astra.train.layout import refuse_tree
from astra.train.lora import LoRAConfig, add_adapters
from astra.train.sft import encode_samples, train_sft
from astra.train.sft_trainer import AssistantSFTTrainer
from astra.train.token_tree import LEAST_SHARED, TokenTree, token_tree
from configs import rl_config, sft_config

SYSTEM, ASKED, OTHER = list(range(50)), list(range(100, 140)), list(range(200, 240))
ROWS = [
    [*SYSTEM, *ASKED, 1, 2, 3],
    [*SYSTEM, *OTHER, 1, 2],
    [*SYSTEM, *ASKED, 1, 2, 4],
    [*SYSTEM, *ASKED],
    [*SYSTEM, *ASKED, 1, 2, 3],
    SYSTEM[:40],
]


@pytest.fixture
def policy() -> LoadedPolicy:
    torch.set_num_threads(1)
    return load_policy(PolicyConfig.saved("policies/tiny", "float32"))


def rows_of(tree: TokenTree) -> list[list[int]]:
    for row in tree.places:
        assert [tree.positions[place] for place in row] == list(range(len(row)))
    return [[tree.ids[place] for place in row] for row in tree.places]


def test_every_row_is_found_again_and_what_is_shared_stands_once() -> None:
    tree = token_tree(ROWS)
    assert rows_of(tree) == ROWS
    # The first 40 tokens of all; what is left of the system prompt is too little to stand apart,
    # so that the row of OTHER has its own; the question of four rows; their endings.
    assert len(tree.ids) == 40 + (10 + 40) + (3 + 3 + 0 + 3) + (10 + 40 + 2)
    assert all(part.end > part.start or part.before for part in tree.parts)


@pytest.mark.parametrize("shared", [0, LEAST_SHARED - 1, LEAST_SHARED])
def test_a_short_beginning_is_computed_by_each_row(shared: int) -> None:
    rows = [[*range(shared), 900, 901], [*range(shared), 902]]
    tree = token_tree(rows)
    assert rows_of(tree) == rows
    assert len(tree.ids) == 2 * shared + 3 - (shared if shared == LEAST_SHARED else 0)


def test_one_row_alone_and_no_token_at_all() -> None:
    assert rows_of(token_tree([[5, 6]])) == [[5, 6]]
    assert rows_of(token_tree([[], [7]])) == [[], [7]]


def test_hidden_states_are_those_of_each_row_alone(policy: LoadedPolicy) -> None:
    tree = token_tree(ROWS)
    decoder = policy.model.get_decoder()
    with torch.no_grad():
        line = tree.forward(decoder, torch.device("cpu"))
        for row, places in zip(ROWS, tree.places, strict=True):
            alone = decoder(input_ids=torch.tensor([row])).last_hidden_state[0]
            torch.testing.assert_close(line[places], alone, rtol=1e-4, atol=1e-4)
    assert decoder.config._attn_implementation == "sdpa", "others attend as before"


@pytest.mark.parametrize("rank", [0, 4])
def test_sft_along_a_tree_has_the_parents_loss_and_gradients(
    policy: LoadedPolicy, tmp_path: Path, rank: int
) -> None:
    if rank:
        add_adapters(policy, LoRAConfig(rank=rank, alpha=8, dropout=0.0))
        for name, weight in policy.model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.1)
    theirs = sft_trainer(SFTTrainer, policy, tmp_path)

    class AlongTree(AssistantSFTTrainer):
        def __init__(self, **options: Any) -> None:
            super().__init__(layout="tree", **options)

    ours = sft_trainer(AlongTree, policy, tmp_path)
    inputs = next(iter(ours.get_train_dataloader()))
    computed: list[int] = []
    policy.model.get_input_embeddings().register_forward_hook(
        lambda _module, given, _out: computed.append(given[0].numel())
    )
    loss, gradients = loss_and_gradients(ours, inputs)
    expected_loss, expected = loss_and_gradients(theirs, inputs)
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-3, atol=1e-5, msg=name)
    assert computed[0] == inputs["attention_mask"].sum() < computed[1], "no padding"


def test_rl_along_a_tree_has_the_log_probabilities_of_padded_rows(
    policy: LoadedPolicy, tmp_path: Path
) -> None:
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(5, 2000, (48,), generator=generator)
    ids = torch.cat([prompt.expand(4, -1), torch.randint(5, 2000, (4, 12), generator=generator)], 1)
    mask = torch.ones_like(ids)
    mask[0, :9] = 0  # a shorter prompt, padded on the left
    mask[1, -5:] = 0  # a shorter completion
    found = []
    for layout in (None, "tree"):
        one: Any = rl_trainer(policy, tmp_path, ScriptedRoller(4), temperature=0.7, layout=layout)
        policy.model.zero_grad()
        logps, entropies, _ = one._get_per_token_logps_and_entropies(
            policy.model, ids, mask, 12, compute_entropy=True
        )
        kept = mask[:, -12:].bool()
        (logps * kept).sum().backward()
        found.append((logps[kept], entropies[kept], policy.model.model.norm.weight.grad.clone()))
    for padded, tree in zip(*found, strict=True):
        torch.testing.assert_close(tree, padded, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("stage", ["sft", "rl"])
def test_adapters_of_a_policy_in_bfloat16_train_alike_padded_and_along_a_tree(
    stage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rl, "GroupRoller", lambda driver, config: ScriptedRoller(2))
    nowhere: Any = None  # no call is made
    norms: list[list[float]] = []
    for layout in (None, "tree"):
        torch.manual_seed(0)
        policy = load_policy(PolicyConfig.saved("policies/tiny", "bfloat16"))
        options: dict[str, Any] = {
            "layout": layout, "lora": {"rank": 4}, "learning_rate": 1e-3, "save_steps": 3,
            "micro_batch_size": 4,
        }  # fmt: skip
        folder, run = tmp_path / str(layout), Run(None, "", "")
        if stage == "sft":
            as_bfloat16 = PolicyConfig.saved("policies/tiny", "bfloat16").model_dump()
            sft = sft_config(policy=as_bfloat16, max_steps=3, epochs=9, batch_size=4, **options)
            rows = encode_samples([make_sample(seed) for seed in range(8)], policy.codec, 512)
            curves = train_sft(policy, rows, rows, sft, folder, run).curves
            assert curves.last_step("eval_loss") == 3
        else:
            config = rl_config(
                dtype="bfloat16", groups=2, group_size=2, steps=3, dev_arenas=0,
                importance={"type": "trainer"}, **options,
            )  # fmt: skip
            arenas = rl.Arenas(train=[make_arena(seed) for seed in range(4)])
            curves = rl.train_rl(policy, arenas, config, nowhere, folder, run).curves
        norms.append(curves.values("grad_norm"))
        assert policy.model.dtype == torch.bfloat16, "a whole policy again"
    assert len(norms[0]) == 3
    assert min(norms[0]) > 0
    assert norms[1] == pytest.approx(norms[0], rel=0.1)


def test_a_tree_is_refused_where_layers_are_computed_again() -> None:
    refuse_tree(False)
    with pytest.raises(ValueError, match="activation_checkpointing; choose one"):
        refuse_tree(True)
    with pytest.raises(ValidationError, match="does not go with activation_checkpointing"):
        rl_config(layout="tree", activation_checkpointing=True)
