"""Wiring: `EngineSpec`, an engine's sizes and programs before anything of it is allocated or its weights are read."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax.sharding import Mesh

from jaxserve.core.buckets import Buckets, make_buckets, read_buckets
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import INVARIANT, EngineConfig
from jaxserve.engine.build import memory_plan as limit_rules
from jaxserve.engine.build.dtype import choose_dtype
from jaxserve.engine.build.memory_plan import EngineSizes, MemoryBudget
from jaxserve.engine.build.memory_use import memory_of
from jaxserve.engine.build.scarce_sizes import may_have_fewer_rows, narrowed
from jaxserve.kv.pool_layout import page_layout
from jaxserve.models.attention import check_backend
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import declare
from jaxserve.models.row_tiles import tile_rows
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.step.step import StepSettings


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What `build` makes an engine of, and `plan` compiles for devices that may not be here.

    memory: what its parts are expected to take; a bound where only compiling tells.
    """

    limits: EngineSizes
    buckets: Buckets
    programs: Programs
    memory: MemoryBudget


def make_spec(config: EngineConfig, model: ModelConfig, mesh: Mesh, limit_bytes: int | None) -> EngineSpec:
    """An engine for `model` on a mesh whose devices have `limit_bytes` each (None: they do not tell).

    Where memory is scarce, sizes that the configuration leaves open are smaller than by default (`scarce_sizes.py`).
    """
    sizes, num_rows = config, limit_rules.step_limits(config, mesh.devices.flat[0].platform)[0]
    while True:
        try:
            drawn = _draw_up(sizes, model, mesh, limit_bytes)
        except ConfigError as error:
            if error.param != "memory_utilization" or not may_have_fewer_rows(config, num_rows):
                raise
            smaller = replace(config, max_num_seqs=num_rows // 2)
        else:
            smaller = narrowed(config, drawn.limits, drawn.programs.groups, drawn.memory)
            if smaller is None:
                return drawn
        sizes, num_rows = smaller, smaller.max_num_seqs or num_rows


def _draw_up(config: EngineConfig, model: ModelConfig, mesh: Mesh, limit_bytes: int | None) -> EngineSpec:
    dtype = choose_dtype(config.dtype, model.dtype)
    groups = model.kv_groups(limit_rules.page_size(config, mesh.devices.flat[0].platform))
    backend = INVARIANT if config.batch_invariant else config.attention_backend
    settings = Settings(model, mesh, dtype, groups.page_size, backend, page_layout(config.kv_layout))
    layout = settings.layout
    check_backend(model, layout, mesh, backend)
    specs = declare(model, mesh, dtype)
    memory = memory_of(config, model, mesh, specs, page_bytes=layout.page_bytes, limit_bytes=limit_bytes)
    limits = limit_rules.resolve(
        config, max_position=model.max_position, groups=groups, page_bytes=layout.page_bytes, memory=memory
    )
    settings = replace(settings, config=model.for_context(limits.max_model_len))  # the pool may have made it shorter
    max_logprobs = min(config.max_logprobs, model.vocab_size)
    tile = tile_rows(mesh.devices.flat[0].platform) if config.batch_invariant else None
    has_host_tier = limits.num_host_pages > 0
    programs = Programs(
        StepSettings(settings, max_logprobs, tile), limits.num_pages, limits.max_num_seqs, has_host_tier
    )
    # A bfloat16 product of one row takes XLA on CPU 40 ms where eight rows take 3.8; accelerators pad to 8 rows anyway.
    min_rows = 1 if dtype == jnp.float32 else 8
    columns = groups.end_page(limits.max_model_len)
    sizes = limits.max_num_seqs, limits.max_num_batched_tokens, columns
    buckets = make_buckets(*sizes, min_rows) if config.buckets is None else read_buckets(config.buckets, *sizes)
    return EngineSpec(limits, buckets, programs, memory)
