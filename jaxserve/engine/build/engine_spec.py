"""Wiring: `EngineSpec`, an engine's sizes and programs before anything of it is allocated or its weights are read."""

from dataclasses import dataclass, replace
from functools import partial

import jax.numpy as jnp
from jax.sharding import Mesh

from jaxserve.core.buckets import Buckets, default_rounds, make_buckets, read_buckets, with_rounds, with_verify
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import INVARIANT, EngineConfig
from jaxserve.engine.build.adapter_reading import choose_layout
from jaxserve.engine.build.engine_sizes import (
    EngineSizes,
    max_rows_and_tokens,
    may_have_fewer_rows,
    narrowed,
    page_size,
    resolve,
)
from jaxserve.engine.build.kv_pool_size import MemoryBudget
from jaxserve.engine.build.memory_budget import memory_budget
from jaxserve.engine.build.model_source import choose_dtype
from jaxserve.kv.pool_layout import page_layout
from jaxserve.models.attention import check_backend
from jaxserve.models.config.eagle_config import EagleConfig
from jaxserve.models.config.medusa_heads import MedusaHeads
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.model_settings import Settings
from jaxserve.models.packing import DENSE, Packing
from jaxserve.models.params import declare, with_draft
from jaxserve.models.row_tiles import row_tiles
from jaxserve.runner.drafts.acceptance_rules import make_rule
from jaxserve.runner.drafts.proposers import DraftShape, make_proposer
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.step.step_settings import StepSettings


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What `build` makes an engine of, and `plan` compiles for devices that may be absent.

    memory: what its parts are expected to take; an upper bound for what only the compiler knows. draft: the shape
    of the proposer's own weights, if it has such.
    """

    sizes: EngineSizes
    buckets: Buckets
    programs: Programs
    memory: MemoryBudget
    draft: DraftShape | None = None


def make_spec(
    config: EngineConfig,
    model: ModelConfig,
    mesh: Mesh,
    limit_bytes: int | None,
    draft: DraftShape | None = None,
    packing: Packing = DENSE,
) -> EngineSpec:
    """An engine for `model` on a mesh whose devices have `limit_bytes` each (None: not known). draft: as of
    `EngineSpec`. packing: of the matrices.

    Where memory is scarce, sizes that the configuration leaves open are smaller than by default
    (`engine_sizes.narrowed`).
    """
    options, num_rows = config, max_rows_and_tokens(config, mesh.devices.flat[0].platform)[0]
    while True:
        try:
            spec = _spec_of(options, model, mesh, limit_bytes, draft, packing)
        except ConfigError as error:
            if error.param != "memory_utilization" or not may_have_fewer_rows(config, num_rows):
                raise
            smaller = replace(config, max_num_seqs=num_rows // 2)
        else:
            smaller = narrowed(config, spec.sizes, spec.programs.groups, spec.memory)
            if smaller is None:
                return spec
        options, num_rows = smaller, smaller.max_num_seqs or num_rows


def _spec_of(
    config: EngineConfig,
    model: ModelConfig,
    mesh: Mesh,
    limit_bytes: int | None,
    draft: DraftShape | None,
    packing: Packing,
) -> EngineSpec:
    """The engine of these options, with defaults for those left open."""
    platform, dtype = mesh.devices.flat[0].platform, choose_dtype(config.dtype, model.dtype)
    groups = model.kv_groups(page_size(config, platform))
    backend = INVARIANT if config.batch_invariant else config.attention_backend
    layout = page_layout(config.kv_layout)
    settings = Settings(model, mesh, dtype, groups.page_size, backend, layout, packing=packing)
    check_backend(settings)
    speculation, streaming = config.speculation, config.streaming
    make = None if speculation is None else partial(make_proposer, speculation)
    proposer = None if make is None else make(settings, draft)
    if proposer is not None:
        settings = replace(settings, extra=proposer.extra_arrays)
        _check_streaming(config, has_own_kv=bool(settings.extra))
    layers_of_draft = draft.model if isinstance(draft, EagleConfig) else draft
    if isinstance(layers_of_draft, ModelConfig):
        check_backend(replace(settings, config=layers_of_draft, extra=()))
    page_bytes = settings.layout.page_bytes
    specs = with_draft(declare(model, mesh, dtype, packing=packing), None if proposer is None else proposer.weights)
    memory = memory_budget(config, model, mesh, specs, page_bytes=page_bytes, limit_bytes=limit_bytes)
    adapters = choose_layout(config, settings)
    adapter_pages = 0 if adapters is None else adapters.max_pages * groups.num_groups
    sizes = resolve(
        config,
        max_position=model.max_position,
        groups=groups,
        page_bytes=page_bytes,
        memory=memory,
        adapter_pages=adapter_pages,
    )
    settings = replace(settings, config=model.for_context(sizes.max_model_len))  # the pool may have made it shorter
    max_logprobs = config.most_logprobs(model.vocab_size)
    tiles = row_tiles(platform) if config.batch_invariant else None
    has_host_tier = sizes.num_host_pages > 0
    if streaming is not None:
        streaming.check_sizes(groups.page_size, sizes.max_model_len, groups.windows)
    of_context = draft if isinstance(draft, MedusaHeads | None) else draft.for_context(sizes.max_model_len)
    proposer = None if make is None else make(settings, of_context)
    synthetic, rule = (
        (None, None) if speculation is None else (speculation.synthetic_acceptance, make_rule(speculation))
    )
    # On CPU products of one row are computed with two, and eight rows of SmolLM2 take 1.3 times as long as two;
    # accelerators pad to 8 rows anyway.
    first_rows = 2 if platform == "cpu" else 8
    min_rows = 1 if dtype == jnp.float32 else first_rows
    largest = sizes.max_num_seqs, sizes.max_num_batched_tokens, groups.end_page(sizes.max_model_len)
    if config.buckets is None:
        buckets = make_buckets(*largest, min_rows=min_rows, first_rows=first_rows)
    else:
        buckets = read_buckets(config.buckets, *largest)
    if speculation is not None:
        buckets = with_verify(buckets, speculation.num_speculative_tokens)
    step_settings = StepSettings(settings, max_logprobs, tiles, proposer, synthetic, rule, adapters)
    programs = Programs(
        step_settings,
        sizes.num_pages,
        sizes.max_num_seqs,
        has_host_tier,
        history_len=0 if speculation is None else sizes.max_model_len,
        num_earlier_tokens=0 if speculation is None else speculation.num_earlier_tokens,
        num_sinks=None if streaming is None else streaming.num_sinks,
        num_draft_masks=buckets.most_drafts if step_settings.has_late_drafts else 0,
    )
    rounds = config.max_decode_rounds or default_rounds(platform)
    return EngineSpec(sizes, with_rounds(buckets, rounds), programs, memory, draft)


def _check_streaming(config: EngineConfig, *, has_own_kv: bool) -> None:
    """Raises ConfigError where positions are dropped of which drafts have KV of their own, too."""
    if config.streaming is not None and config.speculation is not None and has_own_kv:
        raise ConfigError(
            f"kv_policy drops KV of the model, but not that which drafts of {config.speculation.method!r} "
            "(speculative_config) have of their own: leave one of the two out, or draft with ngram, suffix, medusa or "
            "layer_skip",
            "kv_policy",
        )
