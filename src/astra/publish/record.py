"""What dvc.lock says of what is to be published, and whether that is what lies here."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from astra.errors import AstraError

LOCK = Path("dvc.lock")


class PublishError(AstraError):
    """Something cannot be published; the message says what does not fit and how to repair it."""


class BuildRecord:
    """The stages that made some outputs, as dvc.lock has them, in the order of dvc.yaml.

    ``outputs`` are paths that stages write. Use it in ``with``, in the repository root. Raises
    PublishError for an output that no stage makes, or outside of a DVC repository.
    """

    def __init__(self, outputs: Sequence[str]) -> None:
        from dvc.exceptions import DvcException
        from dvc.repo import Repo

        try:
            self._repo = Repo()
            every: list[Any] = [
                stage for stage in self._repo.index.stages if hasattr(stage, "name")
            ]
        except DvcException as error:
            raise PublishError(f"{Path.cwd()}: {error}; run it in the repository root") from None
        self._makers: dict[str, Any] = {str(out): stage for stage in every for out in stage.outs}
        reached: set[str] = set()
        for output in outputs:
            if output not in self._makers:
                self._repo.close()
                raise PublishError(f"no stage of dvc.yaml makes {output}")
            self._follow(self._makers[output], reached)
        self._stages: dict[str, Any] = {one.name: one for one in every if one.name in reached}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._repo.close()

    def _follow(self, stage: Any, reached: set[str]) -> None:
        """Add the stage and all that it reads from to ``reached``."""
        if stage.name in reached:
            return
        reached.add(stage.name)
        for dep in stage.deps:
            if str(dep) in self._makers:
                self._follow(self._makers[str(dep)], reached)

    @property
    def stages(self) -> list[str]:
        """Their names."""
        return list(self._stages)

    def outputs(self) -> list[str]:
        """What they make and DVC stores, in the order of the stages."""
        return [str(out) for stage in self._stages.values() for out in stage.outs if out.use_cache]

    def md5(self, output: str) -> str:
        """The hash of an output in dvc.lock. PublishError where its stage never ran."""
        stage = self._makers[output]
        found = next(out.hash_info for out in stage.outs if str(out) == output)
        if not found:
            raise PublishError(f"{LOCK} does not hold {output}: `dvc repro {stage.name}` makes it")
        return str(found.value)

    def refuse_misfits(self, needed: Collection[str]) -> None:
        """Raise PublishError unless dvc.lock is one build, and what lies here is that build.

        Each stage has to have read what the stage before it made; parameters, code, and files that
        are here have to be those of the lock. Only ``needed`` ones have to be here.
        """
        found = list(self._broken_links())
        if not found:
            found = list(self._differences(needed))
        if found:
            raise PublishError(
                f"what lies here is not the build that {LOCK} records:\n  " + "\n  ".join(found)
            )

    def _broken_links(self) -> Iterator[str]:
        for name, stage in self._stages.items():
            for dep in stage.deps:
                path = str(dep)
                maker = self._makers.get(path)
                if maker is None:
                    continue
                made, read = self.md5(path), dep.hash_info.value if dep.hash_info else "nothing"
                if made != read:
                    yield (
                        f"{name} read another {path} ({read}) than {maker.name} made ({made}): "
                        f"`dvc repro {name}`"
                    )

    def _differences(self, needed: Collection[str]) -> Iterator[str]:
        for name, stage in self._stages.items():
            if stage.cmd_changed:
                yield f"{name}: its command differs: `dvc repro {name}`"
            for item in (*stage.deps, *stage.outs):
                path = str(item)
                if not item.hash_info:
                    yield f"{name}: {LOCK} does not hold {path}: `dvc repro {name}`"
                elif not item.exists:
                    if path in needed:
                        yield f"{path} is not here: `dvc checkout {path}`, else `dvc pull {path}`"
                elif item.workspace_status():
                    stored = path in self._makers and self._is_stored(path)
                    back = f"`{'dvc' if stored else 'git'} checkout {path}`"
                    yield f"{name}: {path} differs from {LOCK}: {back}, or `dvc repro {name}`"

    def _is_stored(self, output: str) -> bool:
        return any(out.use_cache for out in self._makers[output].outs if str(out) == output)
