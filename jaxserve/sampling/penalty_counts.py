"""Device: token counts of each slot's prompt and output, for penalties.

One int16 per slot and token: the occurrences in the output, plus `IN_PROMPT` if the token is in the prompt. The array
is num_slots x V (134 MB at 256 x 262,144), so it is only updated in place. No `lax.cond` surrounds the updates: without
penalties the loop has no iterations, and every scattered index lies outside and is dropped.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Int16, Int32

from jaxserve.sampling.sampling_batch import SamplingBatch

IN_PROMPT = 1 << 14
# Counts saturate here. A tile of as many tokens then cannot carry a count into the prompt bit.
MAX_COUNT = (IN_PROMPT >> 1) - 1


@jax.named_scope("counts")
def update_counts(
    counts: Int16[Array, "L V"],
    batch: SamplingBatch,
    tokens: Int32[Array, " T"],
    token_rows: Int32[Array, " T"],
    positions: Int32[Array, " T"],
    resets: Bool[Array, " S"] | None,
) -> Int16[Array, "L V"]:
    """Count a step's input tokens in the slots of rows that have penalties.

    tokens[t] has index positions[t] in the sequence of row token_rows[t]; below the row's prompt_len it marks the
    prompt, from there on it adds one to the output. A padding token has a row outside [0, S), or one in the scratch
    slot. `resets`: rows whose chunk starts at position 0; their slots are cleared first. None: no row with penalties
    does (for the clearing loop's turns a GPU asks the host). A sequence's prompt must come before its output, and
    tokens that no step reads (a cached prefix) must be set with `set_counts`.
    """
    if resets is not None:
        counts = _clear(counts, batch.slot, resets & batch.has_penalties)
    scratch = counts.shape[0] - 1
    outside = counts.shape[0]

    def by_token(column: Array, padding: int | bool) -> Array:
        return column.at[token_rows].get(mode="fill", fill_value=padding, wrap_negative_indices=False)

    slots = by_token(batch.slot, scratch)
    is_counted = by_token(batch.has_penalties, False) & (slots != scratch)
    is_prompt = positions < by_token(batch.prompt_len, 0)
    prompt_slots = jnp.where(is_counted & is_prompt, slots, outside)
    output_slots = jnp.where(is_counted & ~is_prompt, slots, outside)
    counts = counts.at[prompt_slots, tokens].max(jnp.int16(IN_PROMPT), mode="drop")
    for start in range(0, len(tokens), MAX_COUNT):
        tile = slice(start, start + MAX_COUNT)
        is_full = (counts.at[output_slots[tile], tokens[tile]].get(mode="clip") & (IN_PROMPT - 1)) >= MAX_COUNT
        counts = counts.at[jnp.where(is_full, outside, output_slots[tile]), tokens[tile]].add(jnp.int16(1), mode="drop")
    return counts


def set_counts(counts: Int16[Array, "L V"], slots: Int[Array, " N"], lines: Int16[Array, "N V"]) -> Int16[Array, "L V"]:
    """Replace the counts of these slots with results of `count_tokens`."""
    return counts.at[slots].set(lines)


def count_tokens(tokens: np.ndarray, prompt_len: int, vocab_width: int) -> np.ndarray:
    """int16[vocab_width]: the counts of a slot that has read these tokens, computed on the host."""
    line = np.minimum(np.bincount(tokens[prompt_len:], minlength=vocab_width), MAX_COUNT).astype(np.int16)
    line[tokens[:prompt_len]] |= IN_PROMPT
    return line


def read_counts(counts: Int16[Array, "L V"], slot: Int32[Array, ""]) -> tuple[Float[Array, " V"], Bool[Array, " V"]]:
    """(occurrences in the output, at most MAX_COUNT; is in prompt or output) of each token in one slot."""
    line: Array = lax.dynamic_index_in_dim(counts, slot, keepdims=False)
    return jnp.minimum(line & (IN_PROMPT - 1), MAX_COUNT).astype(jnp.float32), line > 0


def _clear(
    counts: Int16[Array, "L V"], slots: Int32[Array, " S"], is_cleared: Bool[Array, " S"]
) -> Int16[Array, "L V"]:
    """Zero the slots of rows where `is_cleared`; one iteration for each such row, usually none."""
    (rows,) = jnp.nonzero(is_cleared, size=len(slots), fill_value=0)
    zeros = jnp.zeros((1, counts.shape[1]), counts.dtype)

    def clear_one(i: Array, counts: Array) -> Array:
        return lax.dynamic_update_slice(counts, zeros, (slots[rows[i]], jnp.int32(0)))

    return lax.fori_loop(0, jnp.sum(is_cleared), clear_one, counts)
