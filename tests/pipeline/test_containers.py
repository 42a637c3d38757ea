"""The image's locks hold what the project declares, and the compose file what its parts expect."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from mlflow.cli import cli as mlflow
from omegaconf import DictConfig
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from test_housekeeping import project_of

from astra.sandbox import cage

LOCKS = ("astra-gpu", "astra-cpu", "vllm-gpu")
ENVIRONMENT = {"python_version": "3.11", "sys_platform": "linux", "platform_machine": "x86_64"}
SERVERS = ("vllm-0", "vllm-1")


def pins(path: Path) -> dict[str, Version]:
    """Package -> version. Every package has a hash, or pip would refuse the file."""
    entries = re.findall(r"^([\w.-]+)==(\S+) \\\n    --hash=sha256:", path.read_text("utf-8"), re.M)
    lines = re.findall(r"^[^#\s].*$", path.read_text("utf-8"), re.M)
    assert len(entries) == len(lines), "a package without a hash"
    return {canonicalize_name(name): Version(version) for name, version in entries}


def missing(requirements: list[str], locked: dict[str, Version]) -> list[str]:
    """Those that apply to the image and that the lock does not satisfy."""
    parsed = [Requirement(one) for one in requirements]
    return [
        str(one)
        for one in parsed
        if (one.marker is None or one.marker.evaluate(ENVIRONMENT))
        and not (
            (version := locked.get(canonicalize_name(one.name)))
            and one.specifier.contains(version, prereleases=True)
        )
    ]


@pytest.mark.parametrize("name", ["astra-gpu", "astra-cpu"])
def test_the_trainers_lock_is_what_the_project_declares(name: str, root: Path) -> None:
    locked = pins(root / f"docker/{name}.lock")
    project = project_of(root)
    extras = re.findall(r"^EXTRAS := (.+)$", (root / "Makefile").read_text("utf-8"), re.M)[0]
    declared = list(project["dependencies"])
    for extra in extras.split():
        declared += project["optional-dependencies"][extra]
    constraints = (root / "constraints.txt").read_text("utf-8").split()
    others = [one for one in constraints if canonicalize_name(one.split("==")[0]) in locked]
    assert len(others) > 100
    assert not missing([*declared, *others], locked), "make locks"
    assert missing(["torch<2"], locked) == ["torch<2"]


def test_cuda_comes_with_the_packages_and_not_for_cpus(root: Path) -> None:
    gpu, cpu, vllm = (pins(root / f"docker/{name}.lock") for name in LOCKS)
    assert str(cpu["torch"]) == f"{gpu['torch']}+cpu"
    assert not [name for name in cpu if name.startswith(("nvidia-", "cuda-"))]
    for locked in (gpu, vllm):
        assert {"nvidia-nccl-cu13", "nvidia-cudnn-cu13", "triton"} <= locked.keys()
    assert "deepspeed" in gpu
    assert not missing((root / "docker/vllm.in").read_text("utf-8").split("\n")[:1], vllm)
    assert vllm["transformers"] != gpu["transformers"], "else one environment would do"


def test_the_image_copies_what_the_build_may_see(root: Path) -> None:
    text = (root / "docker/Dockerfile.gpu").read_text("utf-8")
    copied = " ".join(re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE)).split()
    ignored = (root / ".dockerignore").read_text("utf-8").splitlines()
    patterns = {re.sub(r"/[^/]+\.lock$", "/*.lock", name) for name in copied}
    assert set(ignored) == {"*", *(f"!{name}" for name in patterns)}
    for lock in ("gpu", "cpu"):
        assert all((root / name.replace("${LOCK}", lock)).is_file() for name in copied)
    installs = re.findall(r"bin/pip install (.+)", text)
    assert all(one.startswith(("--require-hashes -r", "--no-deps")) for one in installs), installs
    assert len(installs) == 3


@pytest.fixture(scope="module")
def services(root: Path) -> dict[str, Any]:
    return yaml.safe_load((root / "docker/compose.yaml").read_text("utf-8"))["services"]


@pytest.fixture(scope="module")
def rl(services: dict[str, Any], root: Path) -> DictConfig:
    """The parameters that service ``rl`` trains with."""
    program, *words = [default(word) for word in services["rl"]["command"]]
    assert [program, *words[:2]] == ["dvc", "exp", "run"]
    assert words.pop() == "rl"
    overrides = words[3::2]
    assert words[2::2] == ["-S"] * len(overrides)
    with initialize_config_dir(str(root / "conf"), version_base=None):
        return compose("config", overrides)


def default(word: str) -> str:
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", word)


def gpus(service: dict[str, Any]) -> list[str]:
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    return device["device_ids"]


def test_servers_are_started_as_the_trainer_uses_them(
    services: dict[str, Any], rl: DictConfig, root: Path
) -> None:
    script = (root / "conf/launch/vllm.sh").read_text("utf-8")
    assert "model=$1 port=$2" in script
    assert rl.rl.engine.type == "vllm"
    assert rl.rl.engine.transfer == "folder", "weights travel through the shared folder"
    for name, url in zip(SERVERS, rl.runtime.rollout_servers, strict=True):
        service = services[name]
        launcher, model, port, *options = [default(word) for word in service["command"]]
        assert (root / launcher).stat().st_mode & 0o111
        assert model == "models/sft", "what stage rl starts from"
        assert url == f"http://{name}:{port}"
        given = dict(zip(options[::2], options[1::2], strict=True))
        assert int(given["--tensor-parallel-size"]) == len(gpus(service))
        limits = rl.rl.limits
        longest = limits.max_prompt_tokens + limits.max_response_tokens
        assert int(given["--max-model-len"]) >= longest
        assert f"http://127.0.0.1:{port}/health" in service["healthcheck"]["test"][-1]
        assert services["rl"]["depends_on"][name] == {"condition": "service_healthy"}


def test_gpus_are_shared_out_once_and_processes_fit_them(
    services: dict[str, Any], rl: DictConfig, root: Path
) -> None:
    given = [gpu for name in ("rl", *SERVERS) for gpu in gpus(services[name])]
    assert sorted(given) == sorted(set(given))
    assert gpus(services["trainer"]) == gpus(services["rl"])
    launch = shlex.split(rl.runtime.rl_launch)
    config = root / launch[launch.index("--config_file") + 1]
    assert yaml.safe_load(config.read_text("utf-8"))["num_machines"] == 1
    processes = int(launch[launch.index("--num_processes") + 1])
    assert processes == len(gpus(services["rl"]))
    assert rl.rl.groups * rl.rl.group_size % (rl.rl.micro_batch_size * processes) == 0


def test_all_see_the_repository_under_one_path_and_servers_see_nobody_else(
    services: dict[str, Any], root: Path
) -> None:
    text = (root / "docker/compose.yaml").read_text("utf-8")
    assert yaml.safe_load(text)["networks"]["rollout"] == {"internal": True}
    for name in ("trainer", "rl", *SERVERS):
        assert "..:/work" in services[name]["volumes"]
        assert "rollout" in services[name]["networks"]
    for name in SERVERS:
        assert services[name]["networks"] == ["rollout"]
        assert "ports" not in services[name], "administration is open to whoever can connect"
    for name in ("trainer", "rl"):
        options = services[name]["security_opt"]
        assert {f"--security-opt {one}" for one in options} >= set(
            re.findall(r"--security-opt \S+=unconfined", cage.REMEDY)
        )


def test_mlflow_is_served_where_runs_are_sent(services: dict[str, Any]) -> None:
    program, command, *words = shlex.split(services["mlflow"]["command"])
    assert program == "mlflow"
    with mlflow.commands[command].make_context(command, words) as context:
        given = context.params
    for name in ("trainer", "rl"):
        uri = services[name]["environment"]["MLFLOW_TRACKING_URI"]
        assert uri == f"http://mlflow:{given['port']}"
        assert services[name]["depends_on"]["mlflow"] == {"condition": "service_healthy"}
    assert f"mlflow:{given['port']}" in given["allowed_hosts"].split(","), "else it answers 403"
    volume = services["mlflow"]["volumes"][-1].partition(":")[2]
    assert given["backend_store_uri"].startswith(f"sqlite:///{volume}/")
    assert given["artifacts_destination"].startswith(f"{volume}/")
    (port,) = services["mlflow"]["ports"]
    assert default(port) == f"127.0.0.1:{given['port']}:{given['port']}"
