"""Host: `served_names` and `default_name`: the names of a server's model in requests and responses; `check_modules`:
those of adapters."""

import os
from pathlib import Path

from jaxserve.core.errors import ConfigError
from jaxserve.core.utf8_texts import as_utf8
from jaxserve.server.server_config import ServerConfig


def served_names(config: ServerConfig, model: str) -> tuple[str, ...]:
    """The names that the operator gave, else the default one."""
    return config.served_model_name or (default_name(model),)


def check_modules(config: ServerConfig, names: tuple[str, ...], *, is_enabled: bool) -> None:
    """Raise `ConfigError` for adapters that cannot be served next to a model of these names. is_enabled: the engine has
    adapters."""
    for module in config.adapter_modules:
        name, base = module.request.lora_name, module.base_model_name
        if not is_enabled:
            raise ConfigError("lora_modules are adapters: add --enable-lora", param="lora_modules")
        if name in names:
            raise ConfigError(f"lora_modules: {name!r} is a name of the model: give another", param="lora_modules")
        if base is not None and base not in names:
            raise ConfigError(
                f"lora_modules: base_model_name={base!r} is not {' or '.join(names)}", param="lora_modules"
            )


def default_name(model: str) -> str:
    """`model` as it was named, or the last part of a local path: clients need not learn where files lie. What is not
    UTF-8 is "?"."""
    path = os.path.abspath(os.path.expanduser(model))  # "." and a trailing slash have no last part
    name = model
    if os.path.exists(path):
        name = os.path.basename(path) if os.path.isdir(path) else Path(path).stem
    return as_utf8(name)
