"""Whether texts of random draws are valid: without a model, all that keeps them in their form are the masks.

The engine's scheduler over the fake runner, with a real tokenizer. Draws prefer characters that end strings and lists.
"""

import sys
from collections import Counter

from scripts.proofs.grammars.host_time import MAX_MODEL_LEN, fake_engine, inputs_of
from scripts.proofs.grammars.schema_set import schema_set
from scripts.proofs.grammars.validity import verdict
from scripts.proofs.helpers.laws import Law

NUM_ROWS, NUM_SEEDS, MAX_TOKENS = 64, 3, 400
LEAST_ENDED = 0.5


def random_draws(model: str) -> list[Law]:
    from jaxserve.constrained.grammar_compiler import GrammarCompiler
    from jaxserve.constrained.matchers import Matchers
    from jaxserve.core.errors import RequestError
    from jaxserve.core.options.sampling_params import SamplingParams
    from jaxserve.core.options.structured_outputs import StructuredOutputsParams
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary
    from scripts.benchmarks.host.empty_model_engine import tokenizer_of

    tokenizer, schemas, counts = tokenizer_of(model), schema_set(), Counter[str]()
    vocabulary = constraint_vocabulary(tokenizer, tokenizer.vocab_size)
    matchers, compiler = Matchers(vocabulary), GrammarCompiler(vocabulary)
    inputs = inputs_of(tokenizer, compiler)
    engine, _ = fake_engine(tokenizer, NUM_ROWS, matchers, ends='"}],')
    sequences = []
    for name, schema in schemas.items():
        form = StructuredOutputsParams(json=schema)
        for seed in range(NUM_SEEDS):
            params = SamplingParams(max_tokens=MAX_TOKENS, structured_outputs=form, seed=seed)
            try:
                request = inputs.make([1, 2, 3], params)
            except RequestError:
                counts["refused"] += 1
                continue
            (made,) = engine.add(next(inputs.numbered([request], inputs.arrive([request]))))
            sequences.append((name, made))
    for _ in engine.drain():
        pass
    for name, sequence in sequences:
        tokens = [i for i in sequence.token_ids if i not in tokenizer.eos_ids]
        text = b"".join(tokenizer.token_bytes[i] for i in tokens).decode(errors="replace")
        found = verdict(schemas[name], text, sequence.finish_reason)
        counts[found] += 1
        if found in ("invalid", "failed"):
            print(name, sequence.finish_reason, sequence.stop_reason, text[-300:], file=sys.stderr)
    matchers.close()
    compiler.close()
    assert MAX_TOKENS < MAX_MODEL_LEN
    return [
        ("texts of schemas that are accepted", len(sequences), 300 * NUM_SEEDS, None),
        ("of which ended, share", (counts["valid"] + counts["invalid"]) / len(sequences), LEAST_ENDED, None),
        ("invalid", counts["invalid"], None, 0),
        ("failed", counts["failed"], None, 0),
    ]
