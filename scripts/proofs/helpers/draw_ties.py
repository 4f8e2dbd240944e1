"""Whether a token that differs between two ways of computing is a tie: rounding errors alone decide which is drawn."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

ERROR = 1e-4
"""Standard deviation of the errors: those between buckets of different sizes reach 5e-5 in float32 (SmolLM2)."""
NUM_DRAWS = 500


class TieCheck:
    """model: name of a checkpoint. Serves requests without penalties, masks and truncation."""

    def __init__(self, model: str, **options):
        from jaxserve import LLM

        self._llm = LLM(model, **options, max_logprobs=-1)

    def drawn(self, tokens: list[int], temperature: float, seed: int, sample_index: int = 0) -> set[int]:
        """The tokens that may follow, drawn from the logits with random errors and the request's random numbers."""
        from jaxserve import SamplingParams
        from jaxserve.sampling.sample_tokens import draw_tokens
        from tests.jaxserve.sampling.rows import make_batch

        params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, logprobs=-1)
        output = self._llm.generate([tokens], params, use_tqdm=False)[0].outputs[0]
        found = output.logprobs[0]
        logits = np.zeros(len(found), np.float32)
        logits[list(found)] = [entry.logprob for entry in found.values()]
        fields = {"temperature": temperature, "seed_low": seed, "sample_index": sample_index}
        batch = jax.tree.map(partial(jnp.repeat, repeats=NUM_DRAWS), make_batch([fields]))
        random = np.random.default_rng(len(tokens))
        errors = ERROR * random.standard_normal((NUM_DRAWS, len(logits)), np.float32)
        errors[0] = 0
        # One factor for all logits of a draw, as errors of the last hidden state have: the largest logits are about 30.
        errors += np.abs(logits) * ERROR / 30 * random.standard_normal((NUM_DRAWS, 1), np.float32)
        positions = jnp.full(NUM_DRAWS, len(tokens), jnp.int32)
        return set(np.asarray(jax.jit(draw_tokens)(jnp.asarray(logits + errors), batch, positions)).tolist())
