"""Host: `served_names` and `default_name`: the names of a server's model in requests and responses."""

import os
from pathlib import Path

from jaxserve.server.server_config import ServerConfig


def served_names(config: ServerConfig, model: str) -> tuple[str, ...]:
    """The names that the operator gave, else the default one."""
    return config.served_model_name or (default_name(model),)


def default_name(model: str) -> str:
    """`model` as it was named, or the last part of a local path: clients need not learn where files lie."""
    path = os.path.abspath(os.path.expanduser(model))  # "." and a trailing slash have no last part
    if not os.path.exists(path):
        return model
    return os.path.basename(path) if os.path.isdir(path) else Path(path).stem
