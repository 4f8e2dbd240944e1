"""Products with packed weights of every kind and of five widths lie within their bounds of a float64 reference.

Rows of codes (int8, w8a8, fp8), and blocks of forms of GGUF, GPTQ, AWQ, compressed-tensors and bitsandbytes, by XLA and
by the kernels for TPUs and Hopper GPUs, which are interpreted, in bfloat16. A number is the largest error as a share of
its bound, the roundings of weight and result. The scales of other layers are not numbers. A cell is empty where a row
is no whole blocks. What a kernel does not serve (–) is decoded when it is loaded, or XLA multiplies it. Finished rows
are stored in .cache/proofs: an interrupted run goes on.
"""

import argparse
import sys
from collections import defaultdict
from functools import partial

from scripts.proofs.helpers.stored_rows import stored
from scripts.proofs.packed_products.product_errors import BOUND, Measured, block_len, kinds, measured

WIDTHS = (576, 640, 1536, 4096, 14336)
"""Inputs: of SmolLM2, Gemma 3 270M, SmolLM2's MLP, Llama 3 8B and its MLP."""
SERVED = {"Q8_0", "Q4_0", "Q4_1", "MXFP4", "Q4_K", "Q5_K", "Q6_K"}
SERVED |= {"INT4-g32", "INT4-g64", "INT4-g128", "NF4-g64", "FP8-g128"}
"""By every back end, at every width."""
NAMES = {"xla": "XLA", "mosaic_tpu": "TPU", "mosaic_gpu": "Hopper"}


def main(argv: list[str]) -> str:
    argparse.ArgumentParser(prog="scripts/prove packed_products").parse_args(argv)
    lines = [f"| weights | back end | {' | '.join(map(str, WIDTHS))} |", "|---|---|" + "---|" * len(WIDTHS)]
    reasons, failed = defaultdict[str, list[str]](list), list[str]()
    for kind in kinds():
        for backend, name in NAMES.items():
            row = stored("packed_products", f"{kind}, {backend}", partial(_row, kind, backend), with_tests=True)
            cells = list[str]()
            for width, found in zip(WIDTHS, row, strict=True):
                if found is None:
                    cells.append("")
                    continue
                result = Measured(*found)
                if result.error is None:
                    cells.append("–")
                    if kind in SERVED or backend == "xla":
                        failed.append(f"{kind} with {width} inputs is not served by {name}")
                    reasons[f"{name}: {result.reason}"].append(f"{kind}, {width}")
                    continue
                cells.append(f"{result.error / BOUND:.2f}")
                if not result.error <= BOUND:
                    failed.append(f"{kind} with {width} inputs by {name}")
            lines.append(f"| {kind} | {name} | {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    lines += ["", "Not served:", "", *(f"- {why} ({'; '.join(whose)})" for why, whose in reasons.items())]
    if failed:
        raise SystemExit("\n".join([*lines, "", f"failed: {'; '.join(failed)}"]))
    return "\n".join(lines)


def _row(kind: str, backend: str) -> list[Measured | None]:
    return [None if width % block_len(kind) else measured(kind, width, backend) for width in WIDTHS]
