"""With `batch_invariant` a request's log-probabilities have the same bits in any batch, with any chunking.

The laws of the tests (tests/support/invariance_laws.py), on tiny models with one kind of layers and with two, without
and with windows, in both data types, on one and two devices: a request alone, among others, in chunks, in several
rounds, with a cached prefix, recomputed as a prompt; in a pool that preempts it; and a thousand times among others.
The control: an engine without the option gives other bits.
"""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

from itertools import product

from jaxserve import SamplingParams
from tests.support import invariance_laws as laws
from tests.support.golden_data import goldens

KINDS = [laws.Kind(*kind) for kind in product(laws.NUM_PAGES, ("float32", "bfloat16"), (1, 2))]


def main(argv: list[str]) -> str:
    if argv:
        raise SystemExit("scripts/prove invariance takes no options")
    titles = [
        "model",
        "type",
        "devices",
        "batches with other bits",
        "changed by preemption",
        "completions of one request",
    ]
    lines, has_failed = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"], False
    for kind in KINDS:
        wrong, num_changed, count = (
            laws.different_bits(kind),
            laws.num_changed_by_preemption(kind),
            laws.num_completions(kind),
        )
        has_failed |= bool(wrong) or num_changed > 0 or count != 1
        cells = [*kind, ", ".join(wrong) or "none", num_changed, count]
        lines.append(f"| {' | '.join(map(str, cells))} |")
        print(lines[-1], file=sys.stderr)
    lines += ["", f"Without the option one request has {completions_without()} different completions."]
    if has_failed:
        raise SystemExit("\n".join([*lines, "", "failed: some bits depend on the batch"]))
    return "\n".join(lines)


def completions_without() -> int:
    """The control."""
    llm = laws.engine(laws.Kind("gemma3", "float32", 1), is_invariant=False)
    prompt, params = goldens("gemma3")[2].prompt, SamplingParams(**laws.OPTIONS)
    found = {laws.drawn(laws.among(llm, prompt, params, count)) for count in (1, 3, 9, 39)}
    if len(found) == 1:
        raise SystemExit("failed: without the option all bits are the same")
    return len(found)
