"""Which weights train and how: Muon with AdamW as one optimizer, embedding rows, lost updates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils.deepspeed import DeepSpeedOptimizerWrapper
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from astra.train.errors import TrainingError
from astra.train.launch import launched_sharding


class RefuseRoundedUpdates(TrainerCallback):
    """Ends training before its first step where bfloat16 weights would take the updates.

    Weights are loaded in bfloat16 where the launch command asks DeepSpeed or FSDP for float32
    masters (launch.weights_dtype). Accelerate leaves FSDP out, and says nothing, for one process
    and for processes on CPUs. Raises TrainingError then.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        trained = {p.dtype for p in kwargs["model"].parameters() if p.requires_grad}
        if torch.bfloat16 in trained and not isinstance(
            kwargs["optimizer"], DeepSpeedOptimizerWrapper
        ):
            raise TrainingError(
                "bfloat16 weights would be trained, in which most updates are rounded away: the "
                f"launch command asks for {launched_sharding()}, and accelerate runs without it, "
                "as it does for a single process and on CPUs. Start several GPU processes, or "
                "launch with conf/accelerate/ddp.yaml"
            )


class MuonAdamW(torch.optim.Optimizer):
    """Two optimizers behind one interface; schedules and clipping see all parameter groups.

    Muon takes two-dimensional parameters alone and is meant for hidden layers: embeddings
    (tied to the output here), norms and biases go to AdamW.
    """

    def __init__(
        self, model: torch.nn.Module, muon_lr: float, adamw_lr: float, weight_decay: float = 0.0
    ) -> None:
        matrices: list[torch.nn.Parameter] = []
        others: list[torch.nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                hidden = parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
                (matrices if hidden else others).append(parameter)
        self._muon = torch.optim.Muon(matrices, lr=muon_lr, weight_decay=weight_decay)
        self._adamw = torch.optim.AdamW(
            others, lr=adamw_lr, betas=(0.9, 0.95), weight_decay=weight_decay
        )
        super().__init__([*matrices, *others], {})
        self._share()

    def _share(self) -> None:
        """The groups of both parts, by reference: a schedule that sets ``lr`` sets theirs."""
        self.param_groups = [*self._muon.param_groups, *self._adamw.param_groups]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # pyright: ignore[reportIncompatibleMethodOverride]
        loss = closure() if closure is not None else None
        self._muon.step()
        self._adamw.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        return {"muon": self._muon.state_dict(), "adamw": self._adamw.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._muon.load_state_dict(state_dict["muon"])
        self._adamw.load_state_dict(state_dict["adamw"])
        self._share()


def train_batch_rows_only(model: Any) -> None:
    """Give embedding rows gradients only for the tokens of the batch.

    A softmax moves every row a little at every step, and Adam makes a little as large as a
    lot: words that the data never ask for are pushed away until the model cannot write them
    any more. With tied embeddings a small policy then unlearns whatever pretraining taught it
    about words it has not met yet, the names of new tools among them.
    """
    embeddings: torch.nn.Module = model.get_input_embeddings()
    weight: torch.Tensor = embeddings.weight  # pyright: ignore[reportAssignmentType]
    present = torch.ones(weight.shape[0], 1, dtype=weight.dtype, device=weight.device)

    def record(_module: Any, args: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled():  # generating does not train
            present.zero_()
            present[torch.unique(args[0])] = 1

    def keep_present(gradient: torch.Tensor) -> torch.Tensor:
        return gradient * present

    embeddings.register_forward_pre_hook(record)
    weight.register_hook(keep_present)


def train_added_rows_only(model: Any, tokenizer: Any) -> None:
    """Give embedding rows gradients only for tokens added to the vocabulary (chat markers).

    A pretrained policy copies words it never trained on in a task because their rows lie where
    pretraining put them. Moving those that a small data set happens to hold takes them apart from
    the others; the markers, new to the policy, are all that needs to be placed.

    An optimizer's weight decay asks for no gradient: it scales the other rows too, all of them by
    one factor. With adapters (``lora.rank`` above 0) no embedding row trains, and this changes
    nothing.
    """
    weight: torch.Tensor = model.get_input_embeddings().weight
    added = torch.zeros(weight.shape[0], 1, dtype=weight.dtype, device=weight.device)
    added[sorted(tokenizer.added_tokens_decoder)] = 1
    weight.register_hook(lambda gradient: gradient * added)
