"""Wiring: `jaxserve serve MODEL`: serves a model over HTTP to OpenAI's clients."""

import argparse
import logging
import os
from typing import Any

from jaxserve.cli.args.arg_types import MODEL_HELP
from jaxserve.cli.args.dataclass_flags import add_engine_flags, add_flags, engine_options, given
from jaxserve.cli.args.verb_parser import VerbParser
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.server.server_config import ServerConfig

MAX_NUM_WAITING = 512  # with an unbounded queue every client waits too long under overload


def run(argv: list[str]) -> int:
    args = _parser().parse_args(argv)
    options: dict[str, Any] = {**_from_environment(), **given(args, ServerConfig)}
    config = ServerConfig(**options)
    engine_config = EngineConfig.create(args.model, **engine_options(args))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("jaxserve").setLevel(config.log_level.upper())
    logger = logging.getLogger("jaxserve.server")
    if config.is_exposed and not config.api_key:
        logger.warning("any client that reaches %s may use the server: set --api-key", config.host)
    try:
        from jaxserve.server.run import serve
    except ModuleNotFoundError as error:
        raise ConfigError(f"the server needs {error.name}: pip install 'jaxserve-engine[server]'") from None
    return serve(engine_config, config)


def _parser() -> argparse.ArgumentParser:
    parser = VerbParser(
        prog="jaxserve serve",
        description="Serve a model to OpenAI's clients: jaxserve serve smollm2-135m-instruct --port 8000",
    )
    parser.add_argument("model", help=MODEL_HELP)
    add_flags(parser, ServerConfig)
    add_engine_flags(parser, seed_help="seed of requests without one", defaults={"max_num_waiting": MAX_NUM_WAITING})
    return parser


def _from_environment() -> dict[str, str]:
    """API keys from environment variables: command lines are readable by all users of a machine. Without white space
    around them: secrets often end with a line break."""
    names = {"api_key": "JAXSERVE_API_KEY", "admin_key": "JAXSERVE_ADMIN_KEY"}
    found = {name: os.environ.get(variable, "").strip() for name, variable in names.items()}
    return {name: key for name, key in found.items() if key}
