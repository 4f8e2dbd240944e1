"""The measured sizes: full ones, or one tiny case of each part as a test of the script."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pallas_kernels.lora_matmul import workloads as adapters
from pallas_kernels.matmul import workloads as products
from pallas_kernels.paged_attention.workloads import WORKLOADS, Workload
from scripts.benchmarks.kernels.measure_kernel import Sampling
from scripts.benchmarks.kernels.workload_names import KNOWN, workloads
from tests.pallas_kernels.quant_matmul.block_checks import Case
from tests.pallas_kernels.quant_matmul.block_stacks import FORMS
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SMALL

BACKEND = "mosaic_gpu"


@dataclass(frozen=True)
class EngineSizes:
    """Whole decode steps: one engine per back end, and one run per number of sequences."""

    model: str
    """A named shape, or a folder with a config.json; weights are random."""
    batches: tuple[int, ...]
    prompt_len: int
    num_steps: int
    """Decode steps with all sequences that a run waits for."""
    options: dict[str, Any]
    """Engine options. The context must have room for tokens drawn while the prompts of other sequences are computed."""
    backends: tuple[str, ...] = (BACKEND, "xla")
    quantizations: tuple[str, ...] = ("auto",)
    profiled: tuple[int, ...] = ()
    """Numbers of sequences whose decode steps are also traced."""


@dataclass(frozen=True)
class ThroughputSizes:
    """Prompts of one length, all at once, each continued by as many tokens."""

    model: str
    num_prompts: int
    num_tokens: int
    options: dict[str, Any]
    quantizations: tuple[str, ...] = ("auto",)


@dataclass(frozen=True)
class DraftSizes:
    """Passes with drafts of a smaller model, accepted at each rate."""

    model: str
    draft: str
    rates: tuple[float, ...]
    num_drafts: int
    batches: tuple[int, ...]
    prompt_len: int
    num_steps: int
    options: dict[str, Any]


@dataclass(frozen=True)
class TextSizes:
    """Texts that must be the same with CUDA graphs and without."""

    model: str
    num_texts: int
    longest_prompt: int
    options: dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    checks: tuple[Workload, ...]
    tuned: tuple[Workload, ...]
    attention: tuple[Workload, ...]
    engine: EngineSizes
    quantized: EngineSizes
    drafts: DraftSizes
    throughput: ThroughputSizes
    texts: TextSizes
    product_checks: tuple[products.Workload, ...]
    products: tuple[products.Workload, ...]
    """With as many layers as the timed loop runs over."""
    block_checks: tuple[Case, ...]
    block_products: tuple[Case, ...]
    adapter_checks: dict[str, adapters.LoraWorkload]
    adapters: dict[str, adapters.LoraWorkload]
    """All of their sites, in as many layers as the timed loop runs over."""
    sampling: Sampling = field(default_factory=Sampling)
    product_sampling: Sampling = field(default_factory=partial(Sampling, seconds=0.05, count=3))
    """A dozen block sizes are tried for each of a hundred products."""


def weights_named(quantization: str, options: dict[str, Any]) -> str:
    """The weights of an engine with this `quantization`, in the tables."""
    return quantization if quantization != "auto" else options["dtype"]


def in_bfloat16(w: Workload) -> Workload:
    """With queries in bfloat16, and also the pool unless it has 8 bits."""
    return replace(w, dtype="bfloat16")


def like(name: str, new_name: str, **changes: Any) -> Workload:
    return replace(KNOWN[name], name=new_name, **changes)


STREAMED_BYTES = 512 * 10**6
"""Of the weights that a product reads before it reads a layer again: ten times an H200's L2 cache of 50 MB."""
ROWS_IN_ORDER = (8, 64, 1, 16, 32)
"""The time limit may cut the list off; codes of 8 bits first, where XLA is slowest."""
MODELS_IN_ORDER = ("llama3_8b", "smollm2_135m", "llama3_70b_tp2", "gemma3_4b", "gemma3_270m", "qwen2.5_0.5b")


BLOCK_PRODUCTS = tuple(
    Case(f"{w.name.removesuffix('_8')}_{form}_{num_rows}", form, num_rows, w.num_columns, w.num_inputs, w.activation)
    for form in ("Q4_0", "Q4_K", "Q6_K", "Q8_0", "INT4-g128 with zeros", "NF4-g64")
    for num_rows in (8, 64)
    for w in products.BENCH_WORKLOADS
    if w.name.startswith("llama3_8b_") and w.num_rows == 8
)
ALL_PRODUCTS = (*products.PACKED_WORKLOADS, *products.CODED_WORKLOADS, *products.BENCH_WORKLOADS)


def in_order(w: products.Workload) -> tuple[int, bool, int]:
    model = next(i for i, name in enumerate(MODELS_IN_ORDER) if w.name.startswith(name))
    return model, not w.is_packed, ROWS_IN_ORDER.index(w.num_rows)


ENGINE = EngineSizes(
    "llama-3-8b",
    (64, 8, 1, 256),
    profiled=(8, 64),
    prompt_len=1024,
    num_steps=48,
    options={
        "dtype": "bfloat16",
        "max_model_len": 1280,
        "max_num_seqs": 256,
        "max_num_batched_tokens": 2048,
        # Those of the default list that the batches need: each takes 8 s to compile.
        "buckets": "8 64 256 2048x8 2048x32 2048x128 2048x256",
    },
)

FULL = Sizes(
    checks=tuple(in_bfloat16(w) for w in WORKLOADS if w.layout == "rows"),
    # The shapes of `attention` first: the time limit may cut the list off.
    tuned=tuple(
        workloads(
            [
                "llama3_8b_decode_64x8k",
                "llama3_8b_prefill_4x2k",
                "llama3_8b_decode_64x8k_float8",
                "gpt_oss_20b_global_decode_64x8k",
                "llama3_8b_tp4_decode_64x2k",
                "smollm2_decode_128x1k",
                "gemma3_4b_global_decode_64x8k",
                "qwen3_0.6b_decode_64x4k",
                "smollm2_prefill_4x2k",
                "llama3_8b_decode_64x8k_int8",
                "phi3_mini_decode_32x2k",
            ]
        )
    ),
    attention=(
        KNOWN["llama3_8b_decode_64x2k"],
        KNOWN["llama3_8b_decode_64x8k"],
        like("llama3_8b_decode_64x8k", "llama3_8b_decode_64x32k", kv_lens=(32_768,) * 64),
        like("llama3_8b_prefill_4x2k", "llama3_8b_prefill_4x4k", q_lens=(4096,) * 4, kv_lens=(4096,) * 4),
    ),
    engine=ENGINE,
    quantized=replace(
        ENGINE,
        batches=(64, 1, 256, 16),
        profiled=(),
        backends=(BACKEND,),
        quantizations=("fp8", "int8", "int4-g64", "w8a8"),
    ),
    drafts=DraftSizes(
        "llama-3-8b",
        "llama-3.2-1b",
        rates=(0.7, 0.6, 0.8),
        num_drafts=4,
        batches=(1, 64, 8),
        prompt_len=256,
        num_steps=192,  # tokens of a pass have a standard deviation of 40 % of their mean
        options=ENGINE.options | {"max_num_seqs": 64, "buckets": "8 64 2048x64"},
    ),
    texts=TextSizes(
        "smollm2-135m",
        num_texts=24,
        longest_prompt=300,
        options={
            "dtype": "bfloat16",
            "buckets": "16 512x16",
            "max_num_seqs": 16,
            "max_num_batched_tokens": 512,
            "max_model_len": 512,
        },
    ),
    throughput=ThroughputSizes(
        "llama-3-8b",
        num_prompts=512,
        num_tokens=1024,
        options=ENGINE.options | {"max_model_len": 2048, "buckets": "64 128 192 256 2048x32 2048x256"},
        quantizations=("auto", "fp8"),
    ),
    product_checks=tuple(w for w in ALL_PRODUCTS if w.num_rows in (1, 64)),
    products=tuple(
        replace(w, num_layers=-(-STREAMED_BYTES // w.weight_bytes)) for w in sorted(ALL_PRODUCTS, key=in_order)
    ),
    block_checks=tuple(
        Case(f"{form}_{num_rows}", form, num_rows, 4096, 4096)
        for form in FORMS
        if form not in ("Q5_0", "Q5_1")  # a GPU has their wide forms
        for num_rows in (1, 64, 200)
    ),
    block_products=BLOCK_PRODUCTS,
    adapter_checks=adapters.WORKLOADS,
    adapters=adapters.BENCH_WORKLOADS,
)

TINY_MODEL = str(checkpoint("llama3"))
_TINY_DECODE = Workload("tiny_decode", (1,), (32,), 2, 1, 16, num_layers=1, dtype="bfloat16")
_TINY_BLOCKS = Case("tiny_blocks", "Q4_0", 3, 64, 256)
_TINY_PRODUCT = products.Workload("tiny_product", 3, 64, 64, has_residual=True)

_TINY_ADAPTER = adapters.LoraWorkload("o", adapters.TINY, adapters.TINY_PAGE, (8,), 2)
_TINY_ENGINE = EngineSizes(
    TINY_MODEL,
    (2,),
    profiled=(2,),
    prompt_len=40,  # both prompts take three steps
    num_steps=20,  # more than the tokens that a request has by default
    options=SMALL,
    backends=("xla",),  # an interpreted GPU kernel takes a second per layer
)

TINY = Sizes(
    checks=(_TINY_DECODE, in_bfloat16(KNOWN["phi3_mini_mixed_lanes"])),  # GPU kernels refuse the second
    tuned=(_TINY_DECODE,),
    attention=(_TINY_DECODE,),
    engine=_TINY_ENGINE,
    quantized=replace(_TINY_ENGINE, quantizations=("int8",), profiled=()),
    drafts=DraftSizes(TINY_MODEL, TINY_MODEL, (0.5,), 3, (2,), prompt_len=10, num_steps=10, options=SMALL),
    texts=TextSizes(TINY_MODEL, num_texts=8, longest_prompt=20, options=SMALL),
    throughput=ThroughputSizes(TINY_MODEL, num_prompts=4, num_tokens=8, options=SMALL, quantizations=("auto", "int8")),
    product_checks=(_TINY_PRODUCT, products.packed(_TINY_PRODUCT), products.packed(_TINY_PRODUCT, "fp8")),
    products=(products.packed(_TINY_PRODUCT),),
    block_checks=(_TINY_BLOCKS,),
    block_products=(_TINY_BLOCKS,),
    adapter_checks={"tiny": _TINY_ADAPTER},
    adapters={"tiny_adapter": replace(_TINY_ADAPTER, sites=_TINY_ADAPTER.sites[1:2], dtype="bfloat16")},
    sampling=Sampling(seconds=0, count=1),
    product_sampling=Sampling(seconds=0, count=1),
)
