"""Host: named workloads of `matmul` and `quant_matmul`: the products of real models' layers on one device, at the rows
of decode steps."""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Workload:
    """One product of a layer."""

    name: str
    num_rows: int
    num_columns: int
    num_inputs: int
    activation: str | None = None
    has_bias: bool = False
    has_residual: bool = False
    dtype: str = "bfloat16"
    out_dtype: str | None = None
    """None: that of `dtype`."""
    num_layers: int = 2
    scheme: str | None = None
    """Weights are codes of 8 bits with a scale for each column, of a scheme of this name, and no residual is added."""

    @property
    def is_packed(self) -> bool:
        return self.scheme is not None

    @property
    def num_parts(self) -> int:
        """Matrices of a layer: 2 with a gate."""
        return 1 if self.activation is None else 2

    @property
    def weight_bytes(self) -> int:
        """Of one layer, in 8 or 16 bits: what a call must read."""
        return (1 if self.is_packed else 2) * self.num_parts * self.num_columns * self.num_inputs


Products = dict[str, dict[str, Any]]


def _products(width: int, qkv: int, heads: int, mlp: int, activation: str = "silu") -> Products:
    """The four products of a layer; qkv and heads are the outputs of the first and the inputs of the second."""
    return {
        "qkv": {"num_columns": qkv, "num_inputs": width},
        "o": {"num_columns": width, "num_inputs": heads, "has_residual": True},
        "gate_up": {"num_columns": mlp, "num_inputs": width, "activation": activation},
        "down": {"num_columns": width, "num_inputs": mlp, "has_residual": True},
    }


_SUMMED = {"has_residual": False, "out_dtype": "float32"}
"""Of `o` and `down` on several devices, which add their results before the residual."""
MODELS: dict[str, Products] = {
    "smollm2_135m": _products(576, 960, 576, 1536),
    "qwen2.5_0.5b": {"qkv": {"num_columns": 1152, "num_inputs": 896, "has_bias": True}},
    "gemma3_270m": _products(640, 1536, 1024, 2048, "gelu_tanh"),
    "gemma3_4b": _products(2560, 4096, 2048, 10240, "gelu_tanh"),
    "llama3_8b": _products(4096, 6144, 4096, 14336),
    "llama3_70b_tp2": {
        name: sizes | (_SUMMED if sizes.get("has_residual") else {})
        for name, sizes in _products(8192, 5120, 4096, 14336).items()
    },
}
NUM_ROWS = (1, 8, 16, 32, 64)

BENCH_WORKLOADS = tuple(
    Workload(f"{model}_{product}_{num_rows}", num_rows, **sizes)
    for model, products in MODELS.items()
    for product, sizes in products.items()
    for num_rows in NUM_ROWS
)
"""At their full size."""


def packed(w: Workload, scheme: str = "int8") -> Workload:
    """The same product with packed weights."""
    return replace(w, name=f"{w.name}_{scheme}", scheme=scheme, has_residual=False)


PACKED_WORKLOADS = tuple(packed(w) for w in BENCH_WORKLOADS if w.name.startswith(("llama3_8b", "smollm2_135m")))
CODED_WORKLOADS = tuple(
    packed(w, scheme) for scheme in ("w8a8", "fp8") for w in BENCH_WORKLOADS if w.name.startswith("llama3_8b")
)
"""With codes of activations, too."""
