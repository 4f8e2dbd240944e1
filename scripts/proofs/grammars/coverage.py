"""How many schemas of MaskBench can be honored, from a copy of its folder `data`; none is part of this repository.

The files are those of github.com/guidance-ai/jsonschemabench, `maskbench/data`: the schemas of JSONSchemaBench and of
further sources.
"""

import json
import time
from pathlib import Path

from scripts.proofs.helpers.laws import Law

MODEL = "smollm2-135m-instruct"
LEAST = 8909 / 11306  # what llguidance 0.7.10 has of them by MaskBench's own page
MOST_S = 5.0


def bench_coverage(folder: Path) -> list[Law]:
    from jaxserve.constrained.grammar_compiler import GrammarCompiler
    from jaxserve.core.errors import RequestError
    from jaxserve.core.options.structured_outputs import StructuredOutputsParams
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
    from scripts.benchmarks.host.empty_model_engine import tokenizer_of

    tokenizer = tokenizer_of(MODEL)
    compiler = GrammarCompiler(constraint_vocabulary(tokenizer, tokenizer.vocab_size))
    num_all = num_accepted = 0
    took_s = list[float]()
    for file in sorted(folder.glob("*.json")):
        schema = json.loads(file.read_text())["schema"]
        num_all, started = num_all + 1, time.perf_counter()
        try:
            compiler.check(StructuredOutputsParams(json=schema))
            num_accepted += 1
        except RequestError:
            pass
        took_s.append(time.perf_counter() - started)
    compiler.close()
    return [
        ("schemas", num_all, 10_000, None),
        ("accepted, share", num_accepted / num_all, LEAST, None),
        ("accepted", num_accepted, None, None),
        ("time of a check in ms, median", 1e3 * sorted(took_s)[num_all // 2], None, None),
        ("time of a check in s, largest", max(took_s), None, MOST_S),
    ]
