"""Whether constrained tokens have the model's law, restricted to what the grammar allows: the chi-square test."""

import numpy as np

from scripts.proofs.grammars.mask_laws import bits
from scripts.proofs.helpers.laws import Law

MODEL = "smollm2-135m-instruct"
PROMPT = "The capital of France is"
NUM_TEXTS, TEMPERATURE, LEAST_P = 2000, 1.2, 1e-3
FORMS = {
    "regex": ({"regex": " [A-Z][a-z]{2,12}"}, {}),
    "regex, top_p 0.9": ({"regex": " [A-Z][a-z]{2,12}"}, {"top_p": 0.9}),
    "regex, top_k 20, min_p 0.01": ({"regex": " (?s:.*)"}, {"top_k": 20, "min_p": 0.01}),
    "choice": ({"choice": [" Paris", " London", " Rome", " a city", " the"]}, {}),
}


def sampling_laws() -> list[Law]:
    """Of the first token, whose law follows from the log-probabilities of the whole vocabulary and the grammar's mask.
    The control expects the law without the mask."""
    from jaxserve import LLM, SamplingParams, StructuredOutputsParams
    from tests.support.sampling_laws import chi_square_p, expected_law

    options = {"max_model_len": 256, "max_num_seqs": 64, "max_num_batched_tokens": 72, "buckets": "64 72x64"}
    llm = LLM(MODEL, **options, dtype="float32", max_logprobs=-1)
    plain = SamplingParams(temperature=0, max_tokens=1, logprobs=-1)
    (output,) = llm.generate([PROMPT], plain, use_tqdm=False)
    entries = output.outputs[0].logprobs[0]
    logits = np.array([entries[token].logprob for token in range(len(entries))])
    laws: list[Law] = []
    for name, (fields, others) in FORMS.items():
        form = StructuredOutputsParams(**fields)
        asked = {"temperature": TEMPERATURE, "max_tokens": 1, "n": 100, "structured_outputs": form, **others}
        params = [SamplingParams(**asked, seed=i) for i in range(NUM_TEXTS // 100)]
        outputs = llm.generate([PROMPT] * len(params), params, use_tqdm=False)
        tokens = np.array([text.token_ids[0] for output in outputs for text in output.outputs])
        mask = np.flatnonzero(bits(_first_mask(llm, form))[: len(logits)])
        law = expected_law(logits, temperature=TEMPERATURE, allowed=mask, **others)
        laws.append((f"p of {len(tokens)} first tokens, {name}", chi_square_p(tokens, law), LEAST_P, None))
        if name == "regex":
            unmasked = expected_law(logits, temperature=TEMPERATURE, **others)
            laws.append(
                ("the same against the law without a mask (control)", chi_square_p(tokens, unmasked), None, 1e-6)
            )
    return laws


def _first_mask(llm, form) -> np.ndarray:
    from jaxserve.constrained.matchers import Matchers
    from jaxserve.engine.build.constraint_vocabulary import constraint_vocabulary

    parts = llm.parts
    matchers = Matchers(constraint_vocabulary(parts.tokenizer, parts.model.vocab_size))
    matchers.start(0, form, parts.input_processor.eos_ids)
    mask = matchers.advance({0: ()})[0].mask
    matchers.close()
    return mask
