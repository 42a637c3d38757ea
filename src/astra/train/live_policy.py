"""The policy while it trains: its weights for rollout servers, and what they must compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import torch

from astra.rollout.chat import LoadedPolicy
from astra.train.checkpoints import save_policy, served_weights
from astra.train.distributed import gathered_weights, is_main


class _Holder(Protocol):
    """Who holds the weights: the model alone, or a trainer that may wrap it and spread it."""

    def logprobs(self, ids: list[int]) -> list[float]:
        """Log-probabilities (nats) of all ids but the first, at temperature 1."""
        ...

    def whole(self) -> dict[str, Any] | None:
        """All weights where they are spread over ranks (collective); None: the model has them."""
        ...


class _Alone:
    def __init__(self, model: Any) -> None:
        self._model = model

    @torch.no_grad()
    def logprobs(self, ids: list[int]) -> list[float]:
        model = self._model
        batch = torch.tensor([ids], device=next(model.parameters()).device)
        training = model.training
        model.eval()
        scores = torch.log_softmax(model(input_ids=batch).logits[0, :-1].float(), -1)
        model.train(training)
        return scores.gather(1, batch[0, 1:, None])[:, 0].tolist()

    def whole(self) -> None:
        return None


class _InTrainer:
    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer

    def logprobs(self, ids: list[int]) -> list[float]:
        return self._trainer.reference_logprobs(ids)

    def whole(self) -> dict[str, Any] | None:
        return gathered_weights(self._trainer)


class LivePolicy:
    """A policy whose weights change. Every rank calls each method, since some are collective.

    The loaded model holds the weights itself until ``train_in`` names the trainer that does.
    Servers compute in ``served_dtype``, so weights are cast to it before they travel.
    """

    def __init__(self, policy: LoadedPolicy, served_dtype: str) -> None:
        self.loaded = policy
        self._served_dtype = served_dtype
        self._holder: _Holder = _Alone(policy.model)

    def train_in(self, trainer: Any) -> None:
        """Let ``trainer`` hold the weights from now on; it may wrap the model and shard it.

        Sharded weights can be had once its training has begun, no sooner.
        """
        self._holder = _InTrainer(trainer)

    def weights(self) -> dict[str, Any] | None:
        """The whole model's weights where ranks share them; None: the loaded model has them."""
        return self._holder.whole()

    def served(self) -> dict[str, torch.Tensor] | None:
        """The whole model's tensors by their names in a model folder, as servers hold them: tied
        ones once, in ``served_dtype``. None on all ranks but the first."""
        whole = self.weights()
        if not is_main():
            return None
        return served_weights(self.loaded.model, whole, self._served_dtype)

    def save(self, folder: Path) -> bool:
        """Write a complete policy folder for servers. Returns whether this rank wrote it."""
        tensors = self.served()
        if tensors is not None:
            save_policy(self.loaded.model, self.loaded.codec.tokenizer, folder, tensors)
        return tensors is not None

    def logprobs(self, ids: list[int]) -> list[float]:
        """Log-probabilities (nats) of all ids but the first, at temperature 1, by the weights as
        they are; a trainer computes them as it does when it trains."""
        return self._holder.logprobs(ids)
