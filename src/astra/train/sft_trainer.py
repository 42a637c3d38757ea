"""TRL's SFTTrainer, projecting to the vocabulary only where a token is trained.

Loss falls on what the assistant writes, about a third of the tokens of a tool-use conversation.
For a small policy with a large vocabulary the projection of all the others is half of a step.
All logits at once are quick for a small policy and more than a GPU holds for a large one, for
which TRL's own head projects them tile by tile.
"""

from __future__ import annotations

from typing import Any

import torch
from accelerate import DistributedType
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel
from trl.trainer.sft_trainer import SFTTrainer

from astra.train.sft_config import LOGIT_BYTES, OWN_HEAD_BYTES

IGNORED = -100


class AssistantSFTTrainer(SFTTrainer):
    """Computes its parent's loss and accuracy; its parent does so itself where a model is sharded
    or wrapped, and where logits would take more than OWN_HEAD_BYTES."""

    def compute_loss(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        # What shards or wraps a model (DDP, FSDP, DeepSpeed, PEFT) must see its forward called.
        alone = self.accelerator.distributed_type == DistributedType.NO
        if (
            not alone
            or not isinstance(model, PreTrainedModel)
            or return_outputs
            or not own_head_fits(model, inputs["labels"])
        ):
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        with self.accelerator.autocast():  # else only in the model's own forward
            loss, correct, count = assistant_loss(model, inputs["input_ids"], inputs["labels"])
        mode = "train" if model.training else "eval"
        if count:
            self._metrics[mode]["mean_token_accuracy"].append(correct / count)
        return loss / (num_items_in_batch if num_items_in_batch is not None else max(count, 1))


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
    project: torch.nn.Module = model.get_output_embeddings()  # pyright: ignore[reportAssignmentType]
    logits = project(hidden[trained]).float()
    loss = cross_entropy(logits, targets[trained], reduction="sum")
    correct = int((logits.argmax(-1) == targets[trained]).sum())
    return loss, correct, int(trained.sum())
