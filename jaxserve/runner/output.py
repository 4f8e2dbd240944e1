"""Device: a step's result as the one int32 vector that returns to the host; floats travel as bit patterns.

    [ tokens S | is_bad S | log-probabilities S x (2 + 2k) | of the prompt, in mixed buckets: T x (2 + 2k) ]

The two k-wide parts are the likeliest tokens' ids and log-probabilities; k is the engine's max_logprobs.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32

from jaxserve.core.buckets import Bucket
from jaxserve.core.plan import Outcome, TopLogprobs

DeviceLogprobs = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def pack_output(
    tokens: Int32[Array, "S"],
    is_bad: Bool[Array, "S"],
    logprobs: DeviceLogprobs,
    prompt_logprobs: DeviceLogprobs | None,
) -> Int32[Array, "O"]:
    parts = [tokens, is_bad.astype(jnp.int32), _pack_logprobs(logprobs)]
    if prompt_logprobs is not None:
        parts.append(_pack_logprobs(prompt_logprobs))
    return jnp.concatenate(parts)


def _pack_logprobs(logprobs: DeviceLogprobs) -> jax.Array:
    chosen, ranks, top_ids, top = logprobs
    bits = [chosen[:, None], ranks[:, None], top_ids, top]
    bits = [lax.bitcast_convert_type(b, jnp.int32) if b.dtype == jnp.float32 else b for b in bits]
    return jnp.concatenate(bits, axis=1).reshape(-1)


def read_output(step_id: int, vector: np.ndarray, bucket: Bucket, num_rows: int, num_tokens: int, k: int) -> Outcome:
    """The outcome of a plan of `num_rows` and `num_tokens` from the vector of its bucket."""
    rows, width = bucket.num_rows, 2 + 2 * k
    end = 2 * rows + rows * width
    prompt = None
    if not bucket.is_decode:
        prompt = _read_logprobs(vector[end:].reshape(-1, width)[:num_tokens], k)
    return Outcome(
        step_id=step_id,
        tokens=vector[:num_rows],
        is_bad=vector[rows : rows + num_rows] != 0,
        logprobs=_read_logprobs(vector[2 * rows : end].reshape(rows, width)[:num_rows], k),
        prompt_logprobs=prompt,
    )


def _read_logprobs(table: np.ndarray, k: int) -> TopLogprobs:
    return TopLogprobs(
        chosen=table[:, 0].view(np.float32),
        ranks=table[:, 1],
        top_ids=table[:, 2 : 2 + k],
        top=table[:, 2 + k :].view(np.float32),
    )
