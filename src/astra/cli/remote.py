"""``astra remote``: the bucket that data sets, models, caches and past runs travel through.

Only places are written to ``.dvc/config``, which git carries; keys stay in the environment, in
``~/.aws`` or in ``.dvc/config.local``.
"""

from __future__ import annotations

import configparser
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import SplitResult, urlsplit

import typer

from astra.errors import AstraError
from astra.tracking.store import without_login

remote_app = typer.Typer(help="The bucket that data sets travel through.", no_args_is_help=True)
NAME = "storage"
CONFIG = Path(".dvc/config")
SECRET = (
    "access_key_id secret_access_key session_token sse_customer_key password token "
    "connection_string account_key sas_token client_secret"
).split()
"""Options of a DVC remote that are a way in, not a place."""
KEYS = (
    "export AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; or keep them in "
    "`dvc remote modify --local storage access_key_id ID` and `... secret_access_key SECRET`"
)
Result = TypeVar("Result")


class RemoteError(AstraError):
    """The remote cannot be used; says why and what to do."""


@remote_app.command("set")
def set_(
    url: Annotated[str, typer.Argument(help="s3://BUCKET/PATH")],
    endpoint: Annotated[str, typer.Option(help="Of a server that speaks S3; default: AWS.")] = "",
    region: Annotated[str, typer.Option(help="Default: what the environment says.")] = "",
) -> None:
    """Make URL the default DVC remote, then check it. Commit .dvc/config afterwards."""
    place, server = _parts("the URL", url), _parts("--endpoint", endpoint)
    if place.scheme != "s3" or not place.netloc:
        shown = without_login(url)
        raise RemoteError(f"{shown!r} is no s3://BUCKET/PATH; `dvc remote add` takes other stores")
    for given in (place, server):
        if "@" in given.netloc or given.query:
            raise RemoteError(f"a URL is committed and must hold no key; {KEYS}")
    # Without `verify` dvc takes what the bucket holds for what was asked for.
    options = {"url": url, "verify": "true", "endpointurl": endpoint, "region": region}
    with _repository() as repo, repo.config.edit("repo") as config:
        config["remote"][NAME] = {name: value for name, value in options.items() if value}
        config["core"]["remote"] = NAME
    typer.echo(f"{CONFIG}: remote {NAME} is {url}" + (f" at {endpoint}" if endpoint else ""))
    check()


def _parts(name: str, url: str) -> SplitResult:
    """The parts of a URL. Raises RemoteError, which does not repeat it: it may hold a key."""
    try:
        return urlsplit(url)
    except ValueError:
        raise RemoteError(
            f"{name} cannot be read: look at its brackets; give s3://BUCKET/PATH, and as "
            "--endpoint https://HOST:PORT"
        ) from None


@remote_app.command("check")
def check() -> None:
    """List, write, read and delete in the default DVC remote; exit 1 if it cannot be read."""
    _refuse_secrets()
    with _repository() as repo:
        if not repo.config["core"].get("remote"):
            raise RemoteError("no default DVC remote; `make remote URL=s3://BUCKET/PATH` sets one")
        remote = _asked("", lambda: repo.cloud.get_remote())
        typer.echo(_used(remote))


def _used(remote: Any) -> str:
    """What can be done with the remote. Raises RemoteError where it cannot be read."""
    place = f"{remote.name} ({remote.fs.unstrip_protocol(remote.path)})"
    if remote.fs.protocol == "local":
        _asked(place, lambda: remote.fs.makedirs(remote.path, exist_ok=True))
    probe = remote.fs.join(remote.path, f".probe-{secrets.token_hex(8)}")
    _asked(place, lambda: _listed(remote))
    try:
        remote.fs.pipe_file(probe, b"astra")
    except PermissionError as error:
        return f"{place}: may be read (dvc pull), not written ({error})"
    except Exception as error:
        raise _explained(place, error) from None
    read = _asked(place, lambda: remote.fs.cat_file(probe))
    if read != b"astra":
        raise RemoteError(f"{place}: what was written is not what is read; the store is broken")
    try:
        remote.fs.rm_file(probe)
    except PermissionError:
        return f"{place}: may be read and written, not deleted from (left there: {probe})"
    return f"{place}: may be read and written (dvc pull, dvc push)"


def _listed(remote: Any) -> None:
    try:
        remote.fs.ls(remote.path, detail=False)
    except FileNotFoundError:
        return  # nothing is there yet, or no bucket: writing tells which


def _asked(place: str, ask: Callable[[], Result]) -> Result:
    try:
        return ask()
    except Exception as error:  # drivers raise what they like; all of it is for the user
        raise _explained(place, error) from None


def _explained(place: str, error: Exception) -> RemoteError:
    name, text = type(error).__name__, " ".join(str(error).split()).rstrip(".")
    if "Credentials" in name:
        return RemoteError(f"{place}: no credentials were found; {KEYS}")
    if isinstance(error, PermissionError):
        return RemoteError(f"{place}: access was refused: {text}. Wrong key or secret? {KEYS}")
    if isinstance(error, FileNotFoundError):
        return RemoteError(f"{place}: {text}; create the bucket, or correct the URL")
    if name == "EndpointConnectionError":
        return RemoteError(f"{place}: {text}; is the server up, and --endpoint right?")
    if name == "RemoteMissingDepsError":
        return RemoteError(f"{text}; pip install -c constraints.txt -e '.[s3]'")
    return RemoteError(f"{place}: {name}: {text}")


def _refuse_secrets() -> None:
    config = configparser.ConfigParser()
    config.read(CONFIG)
    for section in config.sections():
        for option in config[section]:
            if option in SECRET:
                raise RemoteError(
                    f"{CONFIG} is committed and holds {option}: take it out, replace that key "
                    f"(git keeps the old one), and {KEYS}"
                )


def _repository() -> Any:
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        return Repo()
    except DvcException as error:
        raise RemoteError(f"{error}; run it in the repository root") from None
