"""Whether a token that differs between two ways of computing is a tie: rounding errors alone decide which is drawn."""

from functools import cached_property, partial

import jax
import jax.numpy as jnp
import numpy as np

ERROR = 1e-4
"""Standard deviation of the errors: those between buckets of different sizes reach 5e-5 in float32 (SmolLM2)."""
NUM_DRAWS = 500
PADDING = 128  # texts are padded to a multiple of this


class TieCheck:
    """model: name of a checkpoint. penalties: of all requests. Serves requests without masks and truncation."""

    def __init__(self, model: str, penalties: dict[str, float], **options):
        from jaxserve import LLM

        self._llm, self._penalties = LLM(model, **options, max_logprobs=-1), penalties

    def drawn(
        self, prompt: list[int], answer: list[int], temperature: float, seed: int, sample_index: int = 0
    ) -> set[int]:
        """The tokens that may follow, drawn from the logits with random errors and the request's random numbers."""
        from jaxserve.sampling.sample_tokens import draw_tokens
        from tests.jaxserve.sampling.rows import make_batch

        tokens = [*prompt, *answer]
        logits = self._penalized(prompt, answer) if self._penalties else self._logprobs(tokens)
        fields = {"temperature": temperature, "seed_low": seed, "sample_index": sample_index}
        batch = jax.tree.map(partial(jnp.repeat, repeats=NUM_DRAWS), make_batch([fields]))
        random = np.random.default_rng(len(tokens))
        errors = ERROR * random.standard_normal((NUM_DRAWS, len(logits)), np.float32)
        errors[0] = 0
        # One factor for all logits of a draw, as errors of the last hidden state have: the largest logits are about 30.
        errors += np.abs(logits) * ERROR / 30 * random.standard_normal((NUM_DRAWS, 1), np.float32)
        positions = jnp.full(NUM_DRAWS, len(tokens), jnp.int32)
        return set(np.asarray(jax.jit(draw_tokens)(jnp.asarray(logits + errors), batch, positions)).tolist())

    def _logprobs(self, tokens: list[int]) -> np.ndarray:
        from jaxserve import SamplingParams

        params = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, logprobs=-1)
        found = self._llm.generate([tokens], params, use_tqdm=False)[0].outputs[0].logprobs[0]
        logprobs = np.zeros(len(found), np.float32)
        logprobs[list(found)] = [entry.logprob for entry in found.values()]
        return logprobs

    def _penalized(self, prompt: list[int], answer: list[int]) -> np.ndarray:
        """Logits, written out: the repetition penalty is for all tokens so far, the others are for the answer's."""
        tokens = [*prompt, *answer]
        padded = np.pad(tokens, (0, -len(tokens) % PADDING))
        z, seen = np.array(self._raw(padded, len(tokens) - 1)), np.unique(tokens)
        factor = self._penalties["repetition_penalty"]
        z[seen] = np.where(z[seen] > 0, z[seen] / factor, z[seen] * factor)
        times = np.bincount(answer, minlength=len(z)).astype(np.float32)
        return z - self._penalties["frequency_penalty"] * times - self._penalties["presence_penalty"] * (times > 0)

    @cached_property
    def _raw(self):
        """(tokens, place) -> the logits after it."""
        from jaxserve import pure

        runner = self._llm.parts.runner
        settings = runner.settings.model

        @jax.jit
        def raw(params, tokens, place):
            hidden, _ = pure.forward(settings, params, tokens[None])
            return pure.logits(settings, params, hidden[0, place])

        return lambda tokens, place: raw(runner.params, jnp.asarray(tokens, jnp.int32), jnp.int32(place))
