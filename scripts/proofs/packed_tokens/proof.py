"""Packed weights give the tokens of the decoded ones, in every way of running them, and take the memory of the file.

GGUF files of two models are kept packed: 100 prompts x 64 tokens in float32 are compared with those of transformers for
the decoded weights, as in `scripts/prove parity`, which says what a tie is, and the devices' bytes with those of the
file. Rows are stored in .cache/proofs: an interrupted run continues as long as sources are unchanged.
"""

import argparse
import json
from typing import Any

from scripts.proofs import parity
from scripts.proofs.helpers.proof_tables import page_of, table
from scripts.proofs.helpers.stored_rows import stored_row

WAYS: dict[str, dict[str, Any]] = {
    "busy batch": {},
    "chunks of 7": {"max_chunk_tokens": 7},
    "preempted": {"is_small_pool": True},
    "cached prompts": {"is_cached": True},
    "n-grams": {"speculative_config": {"method": "ngram", "num_speculative_tokens": 4}},
    "batch-invariant": {"batch_invariant": True},
    "tensor-parallel": {"is_parallel": True},
}
MOST_BYTES = 1.02
"""Of the weights on all devices, over those of the file. Devices that share a KV head each have its weights."""


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove packed_tokens")
    parser.add_argument("--row", metavar="NAME", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.row:
        print(json.dumps([_row(args.row)]))
        return ""
    rows = dict[str, tuple[list[Any], bool]]()
    for model, num_devices in parity.MODELS.items():
        most, _ = parity.tolerances(parity.read_goldens(model)[1])
        for way in WAYS:
            count = num_devices if "is_parallel" in WAYS[way] else 1
            (row,) = stored_row("packed_tokens", f"{model}, {way}", count)
            ties = ", ".join(f"{tie['gap']:.1e}" for tie in row["ties"]) or "–"
            cells = [row["equal"], ties, len(row["faults"]), f"{row['logprob_error']:.1e} ({most:.1e})"]
            cells += [row["preemptions"], row["cached_tokens"], f"{row['bytes_ratio']:.3f}", row["seconds"]]
            passes = not row["faults"] and row["logprob_error"] <= most and 1 <= row["bytes_ratio"] <= MOST_BYTES
            figure = parity.PROOF_OF_VARIANT.get(way)
            rows[f"{model}, {way}"] = cells, passes and (figure is None or row[figure] > 0)
    titles = ["kept packed", "equal", "ties (top-2 gap)", "faults", "log-probability error (allowed)", "preemptions"]
    return page_of([table([*titles, "cached tokens", f"bytes over the file's (at most {MOST_BYTES})", "s"], rows)])


def _row(name: str) -> dict[str, Any]:
    from jaxserve.core.hardware.mesh import device_bytes

    model, _, way = name.partition(", ")
    llm, row = parity.run(model, WAYS[way] | {"quantization": "packed"})
    runner = llm.parts.runner
    on_all_devices = device_bytes(runner.params) * runner.settings.model.mesh.size
    return row | {"bytes_ratio": on_all_devices / file_bytes(model)}


def file_bytes(model: str) -> int:
    """Of all tensors of a GGUF file."""
    from gguf import GGUFReader

    from checkpoints.sources import resolve

    return sum(int(tensor.n_bytes) for tensor in GGUFReader(resolve(model).weights).tensors)
