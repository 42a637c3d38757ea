# pyright: basic, reportMissingImports=false
"""The server: ``python -m PACKAGE.server.app`` or ``uvicorn PACKAGE.server.app:app``."""

import argparse

import uvicorn
from openenv.core.env_server.http_server import create_app

from astra.export.adapters.openenv_environment import ArenaEnvironment
from astra.export.adapters.openenv_models import ArenaAction, ArenaObservation

MAX_SESSIONS = 64
"""Episodes at once; each is an isolated process of a few MB."""

app = create_app(
    ArenaEnvironment,
    ArenaAction,
    ArenaObservation,
    env_name="astra_arenas",
    max_concurrent_envs=MAX_SESSIONS,
)


def main() -> None:
    """Serve the arenas until interrupted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    uvicorn.run(app, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
