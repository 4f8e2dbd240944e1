"""Device: a step's results: the int32 vector that returns to the host, and `ExtraOutputs`, read only on request.

    [ number of rounds | tokens drawn S | tokens R x S | is_bad R x S ]              R = bucket.max_rounds

Log-probabilities of drawn tokens and of prompts are tables of (chosen, rank, k ids, k log-probabilities), floats as
bit patterns; k is the engine's max_logprobs. They and pooled hidden states stay on the device unless a plan requests
them: at 256 rows and k = 20, the log-probabilities of one round have 688 KB.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import TopLogprobs

DeviceLogprobs = tuple[jax.Array, jax.Array, jax.Array, jax.Array]


class LateNodes(NamedTuple):
    """What a verify bucket leaves to `draw_nodes`: the hidden state after each node (a row's own token, then its
    drafts), and the drafts, in chains. Of rows that do not draw late, the hidden states alone are defined."""

    hidden: Float[Array, "S W D"]
    drafts: Int32[Array, "S N"]
    num: Int32[Array, "S"]


class ExtraOutputs(NamedTuple):
    """Results on request. logprobs: of drawn tokens, O1 = R·S·(2 + 2k).

    prompt_logprobs, pooled: in mixed buckets only; one entry for each requested target, in order, arbitrary after the
    last; one entry per row. late: in verify buckets only, where late rows may have drafts.
    """

    logprobs: Int32[Array, "O1"]
    prompt_logprobs: Int32[Array, "O2"] | None
    pooled: Float[Array, "S D"] | None
    late: LateNodes | None = None


@jax.named_scope("output")
def pack_output(
    num_rounds: Int32[Array, ""],
    num_tokens: Int32[Array, "S"],
    tokens: Int32[Array, "R S"],
    is_bad: Bool[Array, "R S"],
) -> Int32[Array, "O"]:
    return jnp.concatenate([num_rounds[None], num_tokens, tokens.reshape(-1), is_bad.astype(jnp.int32).reshape(-1)])


def no_logprobs(count: int, k: int) -> DeviceLogprobs:
    """Zeros in place of the entries of `count` tokens with k candidates."""
    floats, ids = jnp.zeros(count, jnp.float32), jnp.zeros(count, jnp.int32)
    return floats, ids, jnp.zeros((count, k), jnp.int32), jnp.zeros((count, k), jnp.float32)


def packed_size(count: int, k: int) -> int:
    """Numbers of `count` packed entries with k candidates."""
    return count * (2 + 2 * k)


def pack_logprobs(logprobs: DeviceLogprobs) -> jax.Array:
    chosen, ranks, top_ids, top = logprobs
    bits = [chosen[:, None], ranks[:, None], top_ids, top]
    bits = [lax.bitcast_convert_type(b, jnp.int32) if b.dtype == jnp.float32 else b for b in bits]
    return jnp.concatenate(bits, axis=1).reshape(-1)


def read_output(vector: np.ndarray, bucket: Bucket, num_rows: int) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
    """(number of rounds, tokens drawn [S], tokens [S, R], is_bad [S, R]) of the first `num_rows` rows."""
    start = 1 + bucket.num_rows
    tables = vector[start:].reshape(2, bucket.max_rounds, bucket.num_rows)[:, :, :num_rows]
    return int(vector[0]), vector[1 : 1 + num_rows], tables[0].T, tables[1].T != 0


def read_row_logprobs(vector: np.ndarray, bucket: Bucket, num_rows: int, k: int) -> TopLogprobs:
    """Log-probabilities of the first `num_rows` rows: one entry per token, row by row."""
    tables = vector.reshape(bucket.max_rounds, bucket.num_rows, packed_size(1, k))[:, :num_rows]
    return read_logprobs(tables.swapaxes(0, 1), num_rows * bucket.max_rounds, k)


def read_logprobs(vector: np.ndarray, count: int, k: int) -> TopLogprobs:
    """The first `count` entries of a packed vector."""
    table = np.ascontiguousarray(vector).reshape(-1, packed_size(1, k))[:count]
    return TopLogprobs(
        chosen=table[:, 0].view(np.float32),
        ranks=table[:, 1],
        top_ids=table[:, 2 : 2 + k],
        top=table[:, 2 + k :].view(np.float32),
    )
