"""The vLLM of a rehearsal: ``served.py serve MODEL ...``, as conf/launch/vllm.sh starts it.

It takes the policy's weights as vLLM does, computes real log-probabilities with them, and writes
what an expert would say. Options that training relies on are honoured as vLLM honours them: an
administration only with VLLM_SERVER_DEV_MODE, cached tokens only with
--enable-prompt-tokens-details, requests for another model refused. ``--scripted-fault`` plants
what goes wrong with servers, for the tests of a rehearsal.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path
from typing import Any

import torch
from aiohttp import web

from astra.rollout.chat import Dtype, PolicyConfig, load_policy
from astra.rollout.scripted_server import Scorer, ScriptedVLLM
from astra.train.rehearsal.architecture import saved_dtype, saved_shape
from astra.train.rehearsal.world import Expert

FAULTS = ("none", "keeps_weights", "keeps_cache", "sees_no_folder")


class RehearsedServer(ScriptedVLLM):
    """Serves the model folder of the command line, in the type that it is saved in."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._model, self._name = options.model, options.served_model_name or str(options.model)
        self._dtype: Dtype = saved_dtype(self._model)
        policy = load_policy(PolicyConfig.saved(str(self._model), self._dtype))
        self._generating = policy.model
        self._hidden = options.scripted_fault == "sees_no_folder"
        self._one_at_a_time = threading.Lock()
        expert = Expert(policy.codec)
        super().__init__(
            lambda body, number: expert.reply(body), load=self._loaded, kv_tokens=1_000_000
        )
        self.port = options.port
        self.faults.tells_cached = options.enable_prompt_tokens_details
        self.faults.loses_reload = options.scripted_fault == "keeps_weights"
        self.faults.refuses_reset = options.scripted_fault == "keeps_cache"
        if os.environ.get("VLLM_SERVER_DEV_MODE") != "1":
            self.faults.administration = 404

    def _application(self) -> web.Application:
        app = super()._application()
        app.router.add_get("/v1/models", self._models)
        return app

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": self._name, "root": str(self._model)}]})

    async def _complete(self, request: web.Request) -> web.Response:
        if (asked := (await request.json())["model"]) != self._name:
            return web.json_response(
                {"error": {"message": f"The model `{asked}` does not exist."}}, status=404
            )
        return await super()._complete(request)

    def _loaded(self, folder: Path) -> Scorer:
        """What scores prompts with the weights of ``folder``; raises as vLLM would."""
        if self._hidden or not folder.is_dir():
            raise web.HTTPInternalServerError(text=f"cannot find model weights in {folder}")
        if (found := saved_shape(folder)) != (own := saved_shape(self._model)):
            raise web.HTTPInternalServerError(text=f"weights of {found}, this server's are {own}")
        model = load_policy(PolicyConfig.saved(str(folder), self._dtype)).model
        if not self.faults.loses_reload:
            self._generating = model
        print(f"weights {folder.name}", flush=True)
        return lambda ids: self._logprobs(model, ids, len(ids) - 1)

    def _sampled(self, prompt: list[int], ids: list[int], oldest: str) -> list[float]:
        return self._logprobs(self._generating, [*prompt, *ids], len(ids))

    @torch.no_grad()
    def _logprobs(self, model: Any, ids: list[int], last: int) -> list[float]:
        """Log-probabilities of the ``last`` of ``ids``."""
        with self._one_at_a_time:
            batch = torch.tensor([ids])
            logits = model(input_ids=batch, logits_to_keep=last + 1).logits[0, :-1].float()
            picked = logits.gather(1, batch[0, -last:, None])[:, 0]
            return (picked - torch.logsumexp(logits, -1)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["serve"])
    parser.add_argument("model", type=Path)
    parser.add_argument("--served-model-name", default="")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--enable-prompt-tokens-details", action="store_true")
    parser.add_argument("--scripted-fault", choices=FAULTS, default="none")
    options, _ = parser.parse_known_args()  # the others change nothing of what is scripted
    torch.set_num_threads(1)
    with RehearsedServer(options):
        signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main()
