"""TRL's SFTTrainer, projecting to the vocabulary only where a token is trained.

Loss falls on what the assistant writes, about a third of the tokens of a tool-use conversation.
For a small policy with a large vocabulary the projection of all the others is half of a step.
All logits at once are quick for a small policy and more than a GPU holds for a large one, for
which TRL's own head projects them tile by tile.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from accelerate import DistributedType
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel
from trl.trainer.sft_trainer import SFTTrainer

from astra.train.layout import Layout
from astra.train.lora import bare
from astra.train.sft_config import LOGIT_BYTES, OWN_HEAD_BYTES
from astra.train.token_tree import token_tree

IGNORED = -100


class AssistantSFTTrainer(SFTTrainer):
    """Computes its parent's loss and accuracy; its parent does so itself where a model is sharded
    or wrapped, and where logits would take more than OWN_HEAD_BYTES."""

    def __init__(self, *, layout: Layout = None, **kwargs: Any) -> None:
        self._layout: Layout = layout
        super().__init__(**kwargs)

    def compute_loss(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        # What shards or wraps a model (DDP, FSDP, DeepSpeed) must see its forward called. Adapters
        # are in its layers, whoever calls them.
        alone = self.accelerator.distributed_type == DistributedType.NO
        tree = self._layout == "tree"
        plain = bare(model) if tree else model
        if (
            not alone
            or not isinstance(plain, PreTrainedModel)
            or (return_outputs and not tree)
            or not own_head_fits(plain, inputs["labels"])
        ):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        with self.accelerator.autocast():  # else only in the model's own forward
            if tree:
                loss, correct, count = tree_loss(plain, inputs)
            else:
                loss, correct, count = assistant_loss(plain, inputs["input_ids"], inputs["labels"])
        mode = "train" if model.training else "eval"
        if count:
            self._metrics[mode]["mean_token_accuracy"].append(correct / count)
        loss = loss / (num_items_in_batch if num_items_in_batch is not None else max(count, 1))
        return (loss, {}) if return_outputs else loss  # an evaluation asks for outputs it drops


def own_head_fits(model: PreTrainedModel, labels: torch.Tensor) -> bool:
    """Whether the logits of all trained tokens take at most OWN_HEAD_BYTES."""
    trained = int((labels[:, 1:] != IGNORED).sum())
    return LOGIT_BYTES * trained * model.config.get_text_config().vocab_size <= OWN_HEAD_BYTES


def assistant_loss(
    model: PreTrainedModel, ids: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, int, int]:
    """Summed loss in nats, tokens predicted right, tokens trained. Shapes: (rows, width).

    Rows are padded on the right, so that causal attention alone keeps padding out of sight and
    no mask has to be built.
    """
    hidden = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
    targets = labels[:, 1:]
    trained = targets != IGNORED
    return _loss_of(model, hidden[trained], targets[trained])


def tree_loss(
    model: PreTrainedModel, inputs: Mapping[str, torch.Tensor]
) -> tuple[torch.Tensor, int, int]:
    """What ``assistant_loss`` gives, of rows that are laid out as a tree."""
    ids, labels = inputs["input_ids"], inputs["labels"]
    lengths = inputs["attention_mask"].sum(1).tolist()
    rows = [row[:length] for row, length in zip(ids.tolist(), lengths, strict=True)]
    tree = token_tree(rows)
    hidden = tree.forward(model.get_decoder(), ids.device)
    trained = (labels[:, 1:] != IGNORED).nonzero().tolist()
    before = torch.tensor([tree.places[row][at] for row, at in trained], device=ids.device)
    return _loss_of(model, hidden[before], labels[:, 1:][labels[:, 1:] != IGNORED])


def _loss_of(
    model: PreTrainedModel, hidden: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, int, int]:
    """Summed loss of ``targets``, each predicted from its hidden state."""
    project: torch.nn.Module = model.get_output_embeddings()  # pyright: ignore[reportAssignmentType]
    logits = project(hidden).float()
    loss = cross_entropy(logits, targets, reduction="sum")
    correct = int((logits.argmax(-1) == targets).sum())
    return loss, correct, len(targets)
