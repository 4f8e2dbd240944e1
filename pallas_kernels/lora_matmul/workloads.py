"""Device: named workloads of `lora_matmul`, which tests compare on all back ends and `scripts/device_day` runs."""

from dataclasses import dataclass

from pallas_kernels.lora_matmul.adapter_layout import SiteShape


def sites_of(d: int, q: int, kv: int, f: int) -> tuple[SiteShape, ...]:
    """The sites of a model: d: model dim. q, kv: all heads' queries, and keys. f: MLP dim."""
    return (
        SiteShape("qkv", (("q", d, q), ("k", d, kv), ("v", d, kv)), False),
        SiteShape("o", (("o", q, d),), True),
        SiteShape("gate_up", (("gate", d, f), ("up", d, f)), False),
        SiteShape("down", (("down", f, d),), True),
    )


@dataclass(frozen=True)
class LoraWorkload:
    """page_shape: (K, page, W2). ranks: of the places from 1 on; 0: nothing at this site. row_lens: tokens of each row,
    those of one token first; (): rows of one token. untouched: parts that no adapter has."""

    site: str
    sites: tuple[SiteShape, ...]
    page_shape: tuple[int, int, int]
    ranks: tuple[int, ...]
    num_tokens: int
    row_lens: tuple[int, ...] = ()
    num_padding_rows: int = 0
    untouched: tuple[str, ...] = ()
    dtype: str = "float32"


SMOLLM2, SMOLLM2_PAGE = sites_of(576, 576, 192, 1536), (3, 16, 128)
LLAMA, LLAMA_PAGE = sites_of(4096, 4096, 1024, 14336), (8, 64, 256)
TINY, TINY_PAGE = sites_of(96, 128, 64, 160), (2, 16, 128)

WORKLOADS = {
    "decode": LoraWorkload("qkv", TINY, TINY_PAGE, (8, 4, 0, 16, 20), 16),
    "one adapter": LoraWorkload("o", TINY, TINY_PAGE, (8,), 8),
    "no adapter": LoraWorkload("down", TINY, TINY_PAGE, (0,), 8),
    "high ranks": LoraWorkload("gate_up", TINY, TINY_PAGE, (64, 1, 40), 8),
    "only some parts": LoraWorkload("qkv", TINY, TINY_PAGE, (8, 12), 8, untouched=("k",)),
    "bfloat16": LoraWorkload("down", TINY, TINY_PAGE, (8, 16, 4), 16, dtype="bfloat16"),
    "mixed": LoraWorkload("gate_up", TINY, TINY_PAGE, (8, 20, 4), 256, (1, 1, 1, 70, 130, 3), 2),
    "mixed, bfloat16": LoraWorkload(
        "qkv", TINY, TINY_PAGE, (8, 20, 4), 256, (1, 1, 1, 70, 130, 3), 2, dtype="bfloat16"
    ),
    "chunks": LoraWorkload("o", TINY, TINY_PAGE, (16, 8), 128, (64, 64)),
    "drafts": LoraWorkload("down", TINY, TINY_PAGE, (8, 16, 4), 64, (8, 5, 8, 2), 4),
    "SmolLM2": LoraWorkload("qkv", SMOLLM2, SMOLLM2_PAGE, (8, 16, 64), 8, dtype="bfloat16"),
}

BENCH_WORKLOADS = {
    f"llama3_8b_{num_rows}_rows_{num_adapters}_adapters": LoraWorkload(
        "qkv", LLAMA, LLAMA_PAGE, (16,) * num_adapters, num_rows, dtype="bfloat16"
    )
    for num_rows, num_adapters in ((8, 1), (8, 8), (64, 1), (64, 8), (64, 64))
}
"""Rows of one token, by turns of adapters of rank 16, whose sites are timed together."""
