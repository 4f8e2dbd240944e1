"""Makes weights that qwix codes, what it decodes them to, and its products with them.

Run in an environment with qwix 0.1.8 and its jax:
    python scripts/goldens/qwix_products.py
Writes tests/goldens/qwix.npz: for each kind the codes, the scales, the decoded weights [out, in] and x · wᵀ.
"""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import qwix

OUT = Path(__file__).parents[2] / "tests" / "goldens" / "qwix.npz"
NUM_ROWS, NUM_OUT, NUM_IN, GROUP = 5, 64, 256, 64
BY_ROW: dict[str, Any] = {"channelwise_axes": [0]}
BY_GROUP: dict[str, Any] = BY_ROW | {"tiled_axes": {1: GROUP}}
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "int8": (jnp.int8, BY_ROW),
    "int4": (jnp.int4, BY_GROUP),
    "nf4": ("nf4", BY_GROUP),
    "fp8": (jnp.float8_e4m3fn, BY_ROW),
}


def main() -> None:
    rng = np.random.default_rng(0)
    weights = jnp.asarray(rng.normal(size=(NUM_OUT, NUM_IN)), jnp.float32)
    x = jnp.asarray(rng.normal(size=(NUM_ROWS, NUM_IN)), jnp.float32)
    arrays = {"x": np.asarray(x)}
    for name, (kind, how) in KINDS.items():
        coded = qwix.quantize(weights, kind, **how)
        bits = np.asarray(coded.qvalue)
        arrays[f"{name} codes"] = bits.view(np.uint8) if name == "fp8" else bits.astype(np.int8)
        arrays[f"{name} scales"] = np.asarray(coded.scale)
        arrays[f"{name} decoded"] = np.asarray(qwix.dequantize(coded))
        products = qwix.dot_general(x, coded, (((1,), (1,)), ((), ())), precision="highest")
        arrays[f"{name} products"] = np.asarray(products)
    np.savez_compressed(OUT, **arrays)


if __name__ == "__main__":
    main()
