"""Device: a step's result as the one int32 vector that returns to the host; floats travel as bit patterns.

    [ tokens S | is_bad S | log-probabilities S x (chosen, rank, k ids, k log-probabilities) ]

k is the engine's max_logprobs. Log-probabilities of prompts, T such rows, and pooled hidden states are two more results
of mixed buckets, which the host reads only where a plan asks: at T 2048 and k 20 the first has 344 KB.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int32

from jaxserve.core.buckets import Bucket
from jaxserve.core.plan import Outcome, TopLogprobs

DeviceLogprobs = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


def pack_output(tokens: Int32[Array, "S"], is_bad: Bool[Array, "S"], logprobs: DeviceLogprobs) -> Int32[Array, "O"]:
    return jnp.concatenate([tokens, is_bad.astype(jnp.int32), pack_logprobs(logprobs)])


def pack_logprobs(logprobs: DeviceLogprobs) -> jax.Array:
    chosen, ranks, top_ids, top = logprobs
    bits = [chosen[:, None], ranks[:, None], top_ids, top]
    bits = [lax.bitcast_convert_type(b, jnp.int32) if b.dtype == jnp.float32 else b for b in bits]
    return jnp.concatenate(bits, axis=1).reshape(-1)


def read_output(step_id: int, vector: np.ndarray, bucket: Bucket, num_rows: int, k: int) -> Outcome:
    """The outcome of a plan of `num_rows` from the vector of its bucket, without what it asked of prompts."""
    rows = bucket.num_rows
    return Outcome(
        step_id=step_id,
        tokens=vector[:num_rows],
        is_bad=vector[rows : rows + num_rows] != 0,
        logprobs=read_logprobs(vector[2 * rows :], num_rows, k),
    )


def read_logprobs(vector: np.ndarray, count: int, k: int) -> TopLogprobs:
    """The first `count` log-probabilities of a vector."""
    table = vector.reshape(-1, 2 + 2 * k)[:count]
    return TopLogprobs(
        chosen=table[:, 0].view(np.float32),
        ranks=table[:, 1],
        top_ids=table[:, 2 : 2 + k],
        top=table[:, 2 + k :].view(np.float32),
    )
