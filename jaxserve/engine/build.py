"""Wiring: from an `EngineConfig` to an engine: the one place where scheduler, runner, weights and text meet."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp

from checkpoints.open import Checkpoint, open_checkpoint
from checkpoints.sources import SHORT_NAMES, resolve
from jaxserve.core.buckets import Buckets, make_buckets
from jaxserve.core.config import EngineConfig
from jaxserve.core.errors import ConfigError
from jaxserve.core.sharding import make_mesh
from jaxserve.engine import limits as limit_rules
from jaxserve.engine.compilation_cache import use_compilation_cache
from jaxserve.engine.engine import Engine
from jaxserve.engine.limits import Limits
from jaxserve.engine.memory import memory_of
from jaxserve.engine.requests import RequestMaker
from jaxserve.engine.tokenizers import choose_tokenizer, eos_ids
from jaxserve.models import registry
from jaxserve.models.config import ModelConfig
from jaxserve.models.kv import kv_layout
from jaxserve.models.params import declare, init_random
from jaxserve.models.shapes import SHAPES
from jaxserve.runner.load import load_params, read_config
from jaxserve.runner.runner import Runner
from jaxserve.runner.state import MAX_EDITS
from jaxserve.runner.steps import StepSettings
from jaxserve.scheduler.scheduler import Scheduler
from jaxserve.text.from_folder import read_json
from jaxserve.text.tokenizer import Tokenizer

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Built:
    """Everything that `LLM` drives."""

    engine: Engine
    runner: Runner
    buckets: Buckets
    limits: Limits
    model: ModelConfig
    tokenizer: Tokenizer | None
    requests: RequestMaker


def build(config: EngineConfig, progress: Progress | None = None) -> Built:
    """Load the model and lay out memory; nothing is compiled yet but what makes the weights and the pool."""
    use_compilation_cache(config)
    if config.load_format == "dummy":
        return _build_dummy(config)
    if config.model in SHAPES and config.model not in SHORT_NAMES:
        raise ConfigError(
            f"{config.model} names a shape without weights: give a path or a Hugging Face id, or load_format='dummy' "
            "for random weights",
            param="model",
        )
    cache_dir = Path(config.cache_dir) if config.cache_dir else None
    source = resolve(config.model, cache_dir=cache_dir, revision=config.revision, token=config.hf_token)
    is_gguf = source.weights.suffix == ".gguf"
    if config.load_format in ("gguf", "safetensors") and (config.load_format == "gguf") != is_gguf:
        raise ConfigError(
            f"load_format={config.load_format!r} but the weights are {source.weights.name}", "load_format"
        )
    with open_checkpoint(source) as checkpoint:
        return _assemble(config, read_config(checkpoint), checkpoint, checkpoint.folder, progress)


def _build_dummy(config: EngineConfig) -> Built:
    """Random weights for a named shape, or for a folder's config.json; nothing is fetched."""
    for name in ("revision", "hf_token", "cache_dir"):
        if getattr(config, name) is not None:
            raise ConfigError(f"{name} means nothing with load_format='dummy', which fetches nothing", param=name)
    if config.model in SHAPES:
        return _assemble(config, SHAPES[config.model], None, None, None)
    folder = Path(config.model).expanduser()
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{config.model!r} is neither a folder with a config.json nor a shape; shapes: {', '.join(SHAPES)}",
            param="model",
        )
    return _assemble(config, registry.from_hf(read_json(folder / "config.json")), None, folder, None)


def _assemble(
    config: EngineConfig,
    model: ModelConfig,
    checkpoint: Checkpoint | None,
    folder: Path | None,
    progress: Progress | None,
) -> Built:
    """All parts for one model; `checkpoint` is None for random weights, `folder` holds the tokenizer's files."""
    mesh = make_mesh(config.tensor_parallel_size)
    dtype = choose_dtype(config.dtype, model.dtype)
    tokenizer = choose_tokenizer(config, checkpoint, folder)
    groups = model.kv_groups(limit_rules.page_size(config, mesh.devices.flat[0].platform))
    layout = kv_layout(model, mesh, groups.page_size, dtype)
    specs = declare(model, mesh, dtype)
    limits = limit_rules.resolve(
        config,
        max_position=model.max_position,
        groups=groups,
        page_bytes=layout.page_bytes,
        memory=memory_of(config, model, mesh, specs),
    )
    if checkpoint is None:
        params = init_random(specs, mesh, (config.seed ^ config.seed >> 32) & 0xFFFFFFFF)
    else:
        params = load_params(checkpoint, model, mesh, dtype, progress)
    max_logprobs = min(config.max_logprobs, model.vocab_size)
    settings = StepSettings(model, mesh, config.attention_backend, max_logprobs)
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
    return Built(Engine(scheduler, runner), runner, buckets, limits, model, tokenizer, requests)


def choose_dtype(asked: str, declared: str | None) -> jnp.dtype:
    """`auto` is float32 where a config.json says so; bfloat16 for all else, float16 and GGUF among them.

    (On CPU too: a SmolLM2 step of 8 rows takes 38 ms in bfloat16, 97 in float32.)
    """
    if asked == "auto":
        asked = "float32" if declared == "float32" else "bfloat16"
    return jnp.dtype(asked)
