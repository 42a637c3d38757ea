"""How weights get from the trainer to vLLM servers: through a folder they share, or over NCCL.

The folder needs nothing but vLLM. NCCL needs vLLM beside the trainer as well, as in TRL, whose
order of requests this is: a group of one trainer and the server's workers is formed once, then
every version is one broadcast per tensor while the server waits in ``/update_weights``.
"""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypedDict, TypeVar
from urllib.parse import urlsplit

import torch

from astra.rollout.errors import EngineError

Tensors = Mapping[str, torch.Tensor]
T = TypeVar("T")


class Administered(Protocol):
    """A server as a transfer needs it. Requests raise OSError where they fail."""

    url: str
    started: float
    """When its process started: another value is another process, which knows no group."""

    def get(self, path: str) -> str: ...

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> str: ...


class Transfer(Protocol):
    """One way to hand weights over."""

    def offer(self, version: int) -> bool:
        """Collect the weights; every rank calls it. True on the one that then gives them."""
        ...

    def give(self, server: Administered) -> None:
        """Have ``server`` take what was offered; called for several servers side by side.

        Raises OSError where it does not.
        """
        ...

    def close(self) -> None:
        """Every server was asked: drop what only the giving needed. The rank that gave calls it."""
        ...


class FolderTransfer:
    """``save(folder)`` writes the policy as a model folder and says whether this rank gives it.

    Every server must see ``folder`` under the same path. Older versions are deleted.
    """

    def __init__(self, folder: Path, save: Callable[[Path], bool]) -> None:
        self._folder, self._save = folder, save
        self._newest = folder

    def offer(self, version: int) -> bool:
        self._newest = (self._folder / f"version-{version}").absolute()
        return self._save(self._newest)

    def give(self, server: Administered) -> None:
        arguments = {"weights_path": str(self._newest)}
        try:
            server.post("/collective_rpc", {"method": "reload_weights", "kwargs": arguments})
        except OSError as error:
            raise OSError(
                f"{error}; it must run with VLLM_SERVER_DEV_MODE=1 and see {self._newest}"
            ) from error

    def close(self) -> None:
        for stale in self._folder.glob("version-*"):
            if stale.name != self._newest.name:
                shutil.rmtree(stale)


class Broadcast(Protocol):
    """A group of the trainer (rank 0) and one server's workers."""

    def broadcast(self, tensor: torch.Tensor, src: int) -> Any:
        """Give every member the tensor of rank ``src``, in place."""
        ...


Join = Callable[[Mapping[str, Any]], Broadcast]
"""Forms one side of a group from what ``/init_weight_transfer_engine`` is told."""


class UpdateInfo(TypedDict):
    """What a server is told before tensors come: as many broadcasts, in this order."""

    names: list[str]
    dtype_names: list[str]
    shapes: list[list[int]]


class NCCLTransfer:
    """``served()`` gives the whole model's tensors, as servers hold them, on the rank that gives.

    ``join(init_info)`` forms the group on the trainer's side. Servers are given weights one after
    the other: two groups on one device at once may block each other. NCCL knows no time limit,
    so its side runs in a thread; where the server's request fails, that thread is left behind.
    """

    def __init__(
        self,
        served: Callable[[], Tensors | None],
        join: Join,
    ) -> None:
        self._served, self._join = served, join
        self._tensors: Tensors = {}
        self._groups: dict[tuple[str, float], Broadcast] = {}
        self._one_at_a_time = threading.Lock()
        self._device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def offer(self, version: int) -> bool:
        tensors = self._served()
        self._tensors = tensors or {}
        return tensors is not None

    def give(self, server: Administered) -> None:
        with self._one_at_a_time:
            process = (server.url, server.started)
            if process not in self._groups:
                self._groups[process] = self._form(server)
            group = self._groups.pop(process)
            server.post("/start_weight_update", {"is_checkpoint_format": True})
            self._beside(
                lambda: self._send(group),
                lambda: server.post("/update_weights", {"update_info": self._announced()}),
            )
            server.post("/finish_weight_update")
            self._groups[process] = group  # only one that worked is used again

    def close(self) -> None:
        self._tensors = {}

    def _form(self, server: Administered) -> Broadcast:
        workers = int(_field(server.get("/get_world_size"), "world_size"))
        address, port = _own_address(server.url)
        info = {
            "master_address": address,
            "master_port": port,
            "rank_offset": 1,
            "world_size": workers + 1,
        }
        return self._beside(
            lambda: self._join(info),
            lambda: server.post("/init_weight_transfer_engine", {"init_info": info}),
        )

    def _announced(self) -> UpdateInfo:
        tensors = self._tensors.values()
        return {
            "names": list(self._tensors),
            "dtype_names": [str(tensor.dtype).removeprefix("torch.") for tensor in tensors],
            "shapes": [list(tensor.shape) for tensor in tensors],
        }

    def _send(self, group: Broadcast) -> None:
        for tensor in self._tensors.values():
            group.broadcast(tensor.to(self._device or "cpu").contiguous(), src=0)
        if self._device is not None:
            torch.cuda.synchronize(self._device)

    def _beside(self, work: Callable[[], T], request: Callable[[], Any]) -> T:
        """``work`` in a thread while ``request`` is answered. OSError where either fails."""
        made: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                if self._device is not None:
                    torch.cuda.set_device(self._device)  # threads begin on the first one
                made.append(work())
            except BaseException as error:  # told below, where somebody waits for it
                errors.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        request()
        thread.join()
        if errors:
            raise OSError(f"the trainer's side of the transfer failed: {errors[0]!r}")
        return made[0]


def nccl_join() -> Join:
    """What forms the trainer's side of a group with vLLM's workers.

    Raises EngineError where vLLM is not installed beside the trainer.
    """
    try:
        # vLLM 0.28 moved it out of the engine of the workers' side.
        from vllm.distributed.weight_transfer.nccl_common import trainer_init  # pyright: ignore[reportMissingImports]
    except ImportError:
        try:
            from vllm.distributed.weight_transfer.nccl_engine import (  # pyright: ignore[reportMissingImports]
                NCCLWeightTransferEngine,
            )
        except ImportError as error:
            raise EngineError(
                "rl.engine.transfer is nccl, which needs vLLM (0.22 to 0.31) in the trainer's own "
                f"environment ({error}); install it there, or set rl.engine.transfer=folder"
            ) from error
        trainer_init = NCCLWeightTransferEngine.trainer_init
    return lambda info: trainer_init(dict(info))


def _own_address(url: str) -> tuple[str, int]:
    """This machine's address as seen from the server's network, and a free port."""
    parts = urlsplit(url)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((parts.hostname or "localhost", parts.port or 80))  # sends nothing
        address = probe.getsockname()[0]
    with socket.socket() as free:
        free.bind((address, 0))
        return address, free.getsockname()[1]


def _field(text: str, name: str) -> Any:
    try:
        return json.loads(text)[name]
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(f"no {name} in {text[:200]!r}") from error
