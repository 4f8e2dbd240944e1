"""Wiring: `PureModel`: weights, settings and tokenizer for the pure functions, without an engine."""

import sys
from dataclasses import dataclass, fields
from typing import Any

from jax.sharding import Mesh

from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.progress_bars import LoadBar
from jaxserve.engine.build import engine_sizes
from jaxserve.engine.build.model_source import choose_dtype, open_model
from jaxserve.engine.build.model_text import choose_tokenizer
from jaxserve.engine.build.packing.choose_packing import with_packing
from jaxserve.engine.build.packing.packing_report import log_packing
from jaxserve.engine.build.startup.xla_cache import use_compilation_cache
from jaxserve.kv.pool_layout import page_layout
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params, declare, targets
from jaxserve.runner.programs.stored_layouts import place, stored
from jaxserve.text.tokenizer import Tokenizer

# The fields of `EngineConfig` that have a meaning without an engine.
OPTIONS = frozenset(
    """tokenizer revision hf_token cache_dir load_format dtype quantization seed tensor_parallel_size max_model_len
    page_size kv_layout attention_backend compilation_cache_dir""".split()
)


@dataclass(frozen=True, slots=True, eq=False)
class PureModel:
    """settings: the static first argument of the pure functions. params: the weights, as `models.params` names them.
    tokenizer: None where the model has none.
    """

    settings: Settings
    params: Params
    tokenizer: Tokenizer | None

    @property
    def config(self) -> ModelConfig:
        return self.settings.config

    @property
    def mesh(self) -> Mesh:
        return self.settings.mesh


def load(model: str, **options: Any) -> PureModel:
    """A model by path, Hugging Face id, short name or (with `load_format="dummy"`) shape; options as of `LLM`.

    Options: tokenizer, revision, hf_token, cache_dir, load_format, dtype, quantization, seed, tensor_parallel_size,
    max_model_len (for rotary embeddings that depend on the context; default: the model's), page_size (of caches),
    kv_layout (of caches), attention_backend, compilation_cache_dir. Options of an engine's scheduling and memory raise
    `ConfigError`.
    """
    config = EngineConfig.create(model, **options)
    default = EngineConfig(model=config.model)
    for field in fields(EngineConfig):
        if field.name not in OPTIONS | {"model"} and getattr(config, field.name) != getattr(default, field.name):
            raise ConfigError(f"{field.name} is an option of engines; jaxserve.pure does not have it", param=field.name)
    use_compilation_cache(config)
    mesh = make_mesh(config.tensor_parallel_size)
    device = mesh.devices.flat[0]
    with open_model(config) as found, LoadBar(sys.stderr.isatty()) as bar:
        source = with_packing(config, found, device)
        log_packing(config, source.packing)
        described, dtype = source.model, choose_dtype(config.dtype, source.model.dtype)
        packing = source.packing
        model_config = described.for_context(engine_sizes.context_len(config, described.max_position))
        specs = declare(described, mesh, dtype, packing=packing)
        params = place(source.params(mesh, specs, config.seed, bar.update), stored(targets(specs, mesh), mesh))
        tokenizer = choose_tokenizer(config, source.checkpoint, source.folder)
    page_size = engine_sizes.page_size(config, device.platform)
    layout = page_layout(config.kv_layout)
    settings = Settings(model_config, mesh, dtype, page_size, config.attention_backend, layout, packing=packing)
    return PureModel(settings, params, tokenizer)
