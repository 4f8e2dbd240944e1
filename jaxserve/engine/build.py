"""Wiring: from an `EngineConfig` to an engine: the one place where scheduler, runner, weights and text meet."""

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp

from jaxserve.core.buckets import Buckets, make_buckets
from jaxserve.core.config import EngineConfig
from jaxserve.core.sharding import make_mesh
from jaxserve.engine import limits as limit_rules
from jaxserve.engine.compilation_cache import use_compilation_cache
from jaxserve.engine.dtype import choose_dtype
from jaxserve.engine.engine import Engine
from jaxserve.engine.limits import Limits
from jaxserve.engine.memory import memory_of
from jaxserve.engine.open_model import OpenModel, open_model
from jaxserve.engine.requests import RequestMaker
from jaxserve.engine.tokenizers import choose_chat_template, choose_tokenizer, eos_ids
from jaxserve.kv.layout import page_layout
from jaxserve.models.attention import check_backend
from jaxserve.models.config import ModelConfig
from jaxserve.models.kv import kv_layout
from jaxserve.models.params import declare
from jaxserve.runner.runner import Runner
from jaxserve.runner.state import MAX_EDITS
from jaxserve.runner.steps import StepSettings
from jaxserve.scheduler.scheduler import Scheduler
from jaxserve.text.chat import ChatTemplate
from jaxserve.text.tokenizer import Tokenizer

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Built:
    """Everything that `LLM` drives.

    model: as it runs, its ropes settled for the context. described: as the checkpoint describes it.
    """

    engine: Engine
    runner: Runner
    buckets: Buckets
    limits: Limits
    model: ModelConfig
    described: ModelConfig
    tokenizer: Tokenizer | None
    chat_template: ChatTemplate
    requests: RequestMaker


def build(config: EngineConfig, progress: Progress | None = None) -> Built:
    """Load the model and lay out memory; nothing is compiled yet but what makes the weights and the pool."""
    use_compilation_cache(config)
    with open_model(config) as source:
        return _assemble(config, source, progress)


def _assemble(config: EngineConfig, source: OpenModel, progress: Progress | None) -> Built:
    """All parts for one model."""
    model = source.model
    mesh = make_mesh(config.tensor_parallel_size)
    dtype = choose_dtype(config.dtype, model.dtype)
    tokenizer = choose_tokenizer(config, source.checkpoint, source.folder)
    chat_template = choose_chat_template(config, source.checkpoint, source.folder)
    groups = model.kv_groups(limit_rules.page_size(config, mesh.devices.flat[0].platform))
    layout = kv_layout(model, mesh, groups.page_size, dtype, page_layout(config.kv_layout))
    check_backend(model, layout, mesh, config.attention_backend)
    specs = declare(model, mesh, dtype)
    limits = limit_rules.resolve(
        config,
        max_position=model.max_position,
        groups=groups,
        page_bytes=layout.page_bytes,
        memory=memory_of(config, model, mesh, specs),
    )
    model = model.for_context(limits.max_model_len)  # the pool may have made it shorter
    params = source.params(mesh, dtype, config.seed, progress)
    max_logprobs = min(config.max_logprobs, model.vocab_size)
    settings = StepSettings(model, mesh, config.attention_backend, max_logprobs, layout.pages)
    runner = Runner(settings, params, layout, groups, num_pages=limits.num_pages, num_slots=limits.max_num_seqs)
    # A bfloat16 product of one row takes XLA on CPU 40 ms where eight rows take 3.8; accelerators pad to 8 rows anyway.
    min_rows = 1 if dtype == jnp.float32 else 8
    columns = groups.end_page(limits.max_model_len)
    buckets = make_buckets(limits.max_num_seqs, limits.max_num_batched_tokens, columns, min_rows)
    scheduler = Scheduler(
        groups,
        buckets,
        num_pages=limits.num_pages,
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len,
        vocab_size=model.vocab_size,
        max_chunk_tokens=limits.max_chunk_tokens,
        scheduling_policy=config.scheduling_policy,
    )
    requests = RequestMaker(
        tokenizer=tokenizer,
        eos_ids=eos_ids(model, tokenizer),
        vocab_size=model.vocab_size,
        max_model_len=limits.max_model_len,
        max_logprobs=max_logprobs,
        max_edits=MAX_EDITS,
        seed=config.seed,
    )
    return Built(
        Engine(scheduler, runner), runner, buckets, limits, model, source.model, tokenizer, chat_template, requests
    )
