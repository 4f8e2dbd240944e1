"""Wiring: from an `EngineConfig` to an engine: the one place where scheduler, runner, weights and text meet."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from checkpoints.open import Checkpoint, open_checkpoint
from checkpoints.sources import SHORT_NAMES, resolve
from jaxserve.core.buckets import Buckets, make_buckets
from jaxserve.core.config import EngineConfig
from jaxserve.core.errors import ConfigError
from jaxserve.core.sharding import make_mesh
from jaxserve.engine import limits as limit_rules
from jaxserve.engine.engine import Engine
from jaxserve.engine.limits import Limits, Memory
from jaxserve.engine.requests import RequestMaker
from jaxserve.models import registry
from jaxserve.models.config import ModelConfig
from jaxserve.models.kv import kv_layout
from jaxserve.models.params import Params, declare, init_random, num_bytes, vocab_width
from jaxserve.models.shapes import SHAPES
from jaxserve.runner.load import load_params, read_config
from jaxserve.runner.runner import Runner
from jaxserve.runner.state import MAX_EDITS, slot_bytes
from jaxserve.runner.steps import StepSettings
from jaxserve.scheduler.scheduler import Scheduler
from jaxserve.text.from_folder import read_json, tokenizer_from_folder
from jaxserve.text.from_gguf import tokenizer_from_gguf
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
    _use_compilation_cache(config)
    if config.load_format == "dummy" and (model := _described(config.model)) is not None:
        return _assemble(config, model, None, progress)
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
        return _assemble(config, read_config(checkpoint), checkpoint, progress)


def _described(model: str) -> ModelConfig | None:
    """A model known by its configuration alone: a named shape, or a folder with a config.json."""
    if model in SHAPES:
        return SHAPES[model]
    path = Path(model).expanduser() / "config.json"
    return registry.from_hf(read_json(path)) if path.is_file() else None


def _assemble(
    config: EngineConfig, model: ModelConfig, checkpoint: Checkpoint | None, progress: Progress | None
) -> Built:
    mesh = make_mesh(config.tensor_parallel_size)
    platform = mesh.devices.flat[0].platform
    dtype = choose_dtype(config.dtype, model.dtype)
    tokenizer = _tokenizer(config, checkpoint)

    groups = model.kv_groups(limit_rules.page_size(config, platform))
    layout = kv_layout(model, mesh, groups.page_size, dtype)
    specs = declare(model, mesh, dtype)
    max_num_seqs, _ = limit_rules.step_limits(config, platform)
    width = vocab_width(model, mesh)
    memory = Memory(
        platform=platform,
        limit_bytes=_memory_limit(mesh),
        weight_bytes=num_bytes(specs),
        state_bytes=slot_bytes(max_num_seqs, width) * mesh.size,
        # Logits in float32, and the copies that penalties, candidates and log-probabilities make of them.
        step_bytes=6 * 4 * max_num_seqs * width * mesh.size,
    )
    limits = limit_rules.resolve(
        config, max_position=model.max_position, groups=groups, page_bytes=layout.page_bytes, memory=memory
    )
    params = _params(config, model, checkpoint, mesh, dtype, specs, progress)
    max_logprobs = min(config.max_logprobs, model.vocab_size)
    settings = StepSettings(model, mesh, config.attention_backend, max_logprobs)
    runner = Runner(settings, params, layout, groups, num_pages=limits.num_pages, num_slots=limits.max_num_seqs)
    columns = groups.end_page(limits.max_model_len)
    # A bfloat16 product of one row takes XLA on CPU 40 ms where eight rows take 3.8; accelerators pad to 8 rows anyway.
    min_rows = 1 if dtype == jnp.float32 else 8
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
    eos_ids = model.eos_ids if tokenizer is None else tuple(dict.fromkeys((*tokenizer.eos_ids, *model.eos_ids)))
    requests = RequestMaker(
        tokenizer=tokenizer,
        eos_ids=eos_ids,
        vocab_size=model.vocab_size,
        max_model_len=limits.max_model_len,
        max_logprobs=max_logprobs,
        max_edits=MAX_EDITS,
        seed=config.seed,
    )
    return Built(Engine(scheduler, runner), runner, buckets, limits, model, tokenizer, requests)


def _params(
    config: EngineConfig,
    model: ModelConfig,
    checkpoint: Checkpoint | None,
    mesh: jax.sharding.Mesh,
    dtype: jnp.dtype,
    specs: Params,
    progress: Progress | None,
) -> Params:
    if checkpoint is None or config.load_format == "dummy":
        return init_random(specs, mesh, config.seed)
    return load_params(checkpoint, model, mesh, dtype, progress)


def choose_dtype(asked: str, declared: str | None) -> jnp.dtype:
    """`auto` is the checkpoint's own float32 or bfloat16; float16 and quantised weights become bfloat16.

    (On CPU too: a SmolLM2 step of 8 rows takes 38 ms in bfloat16, 97 in float32.)
    """
    if asked == "auto":
        asked = "float32" if declared == "float32" else "bfloat16"
    return jnp.dtype(asked)


def _tokenizer(config: EngineConfig, checkpoint: Checkpoint | None) -> Tokenizer | None:
    """The named tokenizer, or the model's own; None when a shape has none."""
    if config.tokenizer is not None:
        path = Path(config.tokenizer).expanduser()
        folder = path.parent if path.name == "tokenizer.json" else path
        if not folder.is_dir():
            raise ConfigError(f"tokenizer={config.tokenizer!r}: no such folder or tokenizer.json", param="tokenizer")
        return tokenizer_from_folder(folder)
    if checkpoint is None:
        return None
    if checkpoint.spelling == "gguf":
        return tokenizer_from_gguf(checkpoint.metadata)
    if not (checkpoint.folder / "tokenizer.json").is_file():
        return None
    return tokenizer_from_folder(checkpoint.folder)


def _memory_limit(mesh: jax.sharding.Mesh) -> int:
    """Bytes over all devices; on CPU the host's physical memory, however many devices share it."""
    device = mesh.devices.flat[0]
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    stats: dict[str, Any] = device.memory_stats() or {}
    if "bytes_limit" not in stats:
        raise ConfigError(
            f"{device.device_kind} does not tell its memory; set kv_cache_memory_bytes", param="kv_cache_memory_bytes"
        )
    return stats["bytes_limit"] * mesh.size


def _use_compilation_cache(config: EngineConfig) -> None:
    """Keep compiled steps in the user's cache folder, so that the next process starts in seconds."""
    if config.compilation_cache_dir is None and (os.environ.get("JAX_COMPILATION_CACHE_DIR") is not None):
        return
    base = os.environ.get("JAXSERVE_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "jaxserve"
    )
    jax.config.update("jax_compilation_cache_dir", config.compilation_cache_dir or os.path.join(base, "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)


def announce(built: Built) -> None:
    """One line about what was built, on standard error."""
    device = built.runner.settings.mesh.devices.flat[0]
    limits = built.limits
    print(
        f"jaxserve: {built.model.family} on {built.runner.settings.mesh.size} {device.platform} device(s), "
        f"{built.runner.dtype}, context {limits.max_model_len}, {limits.max_num_seqs} sequences, "
        f"{limits.num_pages} pages of {limits.page_size} positions",
        file=sys.stderr,
    )
