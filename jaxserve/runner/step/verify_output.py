"""Device: the results of a verify bucket: the int32 vector that returns to the host; for others see `step_output.py`.

    [ number of rounds | tokens advanced by R x S | drafts R x S | is_bad R x S | tokens R x S x W ]

A row advances by the first tokens of each of its rounds; the host joins these.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from jaxserve.core.buckets import Bucket
from jaxserve.core.step_outcome import DraftCounts, TopLogprobs
from jaxserve.runner.step.step_output import packed_size, read_logprobs
from jaxserve.runner.step.verify_loop import VerifyResults


@jax.named_scope("output")
def pack_verified(found: VerifyResults) -> Int32[Array, "O"]:
    tables = (table.astype(jnp.int32).reshape(-1) for table in found[1:-1])
    return jnp.concatenate([found.num_rounds[None], *tables])


@dataclass(frozen=True, slots=True)
class Verified:
    """What the rows of a verify bucket drew, in one order for all of a row's rounds.

    places[s, m]: (round, token of the round) of the row's m-th token, arbitrary past its last.
    """

    num_rounds: int
    num_tokens: np.ndarray  # int32[S]
    tokens: np.ndarray  # int32[S, M]
    is_bad: np.ndarray  # bool[S, M]
    drafts: DraftCounts
    places: tuple[np.ndarray, np.ndarray]  # int64[S, M] each


def read_verified(vector: np.ndarray, bucket: Bucket, num_rows: int) -> Verified:
    """The results of the first `num_rows` rows."""
    size, width = (bucket.max_rounds, bucket.num_rows), 1 + bucket.max_drafts
    end = 1 + 3 * size[0] * size[1]
    by_round, num_drafts, is_bad = (table[:, :num_rows].T for table in vector[1:end].reshape(3, *size))
    tokens = vector[end:].reshape(*size, width)[:, :num_rows].swapaxes(0, 1)  # [S, R, W]
    is_taken = np.arange(width) < by_round[:, :, None]
    num_tokens = by_round.sum(axis=1, dtype=np.int32)
    order = np.argsort(~is_taken.reshape(num_rows, -1), axis=1, kind="stable")[:, : max(1, num_tokens.max())]
    rounds, nodes = order // width, order % width
    row = np.arange(num_rows)[:, None]
    is_last = nodes == by_round[row, rounds] - 1
    return Verified(
        num_rounds=int(vector[0]),
        num_tokens=num_tokens,
        tokens=tokens[row, rounds, nodes],
        is_bad=is_last & (is_bad[row, rounds] != 0),
        drafts=DraftCounts(num_drafts, np.maximum(by_round - 1, 0)),
        places=(rounds, nodes),
    )


def read_verified_logprobs(vector: np.ndarray, bucket: Bucket, found: Verified, k: int) -> TopLogprobs:
    """Log-probabilities of the rows' tokens: one entry per token, row by row."""
    tables = vector.reshape(bucket.max_rounds, bucket.num_rows, 1 + bucket.max_drafts, packed_size(1, k))
    rounds, nodes = found.places
    return read_logprobs(tables[rounds, np.arange(len(rounds))[:, None], nodes], rounds.size, k)
