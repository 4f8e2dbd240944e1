"""Device: which tokens each slot's prompt holds and how often its output holds them, for penalties.

One int16 a slot and token: the number of times in the output, plus `IN_PROMPT` if the prompt holds it. The array is
num_slots x V (134 MB at 256 x 262,144), so it is only ever updated in place. No `lax.cond` stands around the updates:
without penalties the loop runs no rounds and every scattered index lies outside and is dropped.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int, Int16, Int32

from jaxserve.sampling.sampling_batch import SamplingBatch

IN_PROMPT = 1 << 14
# Larger counts read as this one. A tile of as many tokens cannot then carry a count into the prompt bit.
MAX_COUNT = (IN_PROMPT >> 1) - 1


@jax.named_scope("counts")
def update_counts(
    counts: Int16[Array, "L V"],
    batch: SamplingBatch,
    tokens: Int32[Array, " T"],
    token_rows: Int32[Array, " T"],
    positions: Int32[Array, " T"],
    resets: Bool[Array, " S"],
) -> Int16[Array, "L V"]:
    """Count a step's input tokens in the slots of rows that have penalties.

    tokens[t] stands at index positions[t] of the sequence of row token_rows[t]; below the row's prompt_len it marks the
    prompt, from there on it adds one to the output. A padding token has a row outside [0, S), or one in the scratch
    slot. `resets` names rows whose chunk starts at position 0: their slots are cleared first. A sequence's prompt must
    come before its output, and what does not come must have been set (`set_counts`).
    """
    counts = _clear(counts, batch.slot, resets & batch.has_penalties)
    scratch = counts.shape[0] - 1
    outside = counts.shape[0]

    def of_row(column: Array, padding: int | bool) -> Array:
        return column.at[token_rows].get(mode="fill", fill_value=padding, wrap_negative_indices=False)

    slots = of_row(batch.slot, scratch)
    is_counted = of_row(batch.has_penalties, False) & (slots != scratch)
    is_prompt = positions < of_row(batch.prompt_len, 0)
    prompt_slots = jnp.where(is_counted & is_prompt, slots, outside)
    output_slots = jnp.where(is_counted & ~is_prompt, slots, outside)
    counts = counts.at[prompt_slots, tokens].max(jnp.int16(IN_PROMPT), mode="drop")
    for start in range(0, len(tokens), MAX_COUNT):
        tile = slice(start, start + MAX_COUNT)
        is_full = (counts.at[output_slots[tile], tokens[tile]].get(mode="clip") & (IN_PROMPT - 1)) >= MAX_COUNT
        counts = counts.at[jnp.where(is_full, outside, output_slots[tile]), tokens[tile]].add(jnp.int16(1), mode="drop")
    return counts


def set_counts(counts: Int16[Array, "L V"], slot: Int[Array, ""], line: Int16[Array, " V"]) -> Int16[Array, "L V"]:
    """Replace the counts of one slot by those of `count_tokens`."""
    return counts.at[slot].set(line)


def count_tokens(tokens: np.ndarray, prompt_len: int, vocab_width: int) -> np.ndarray:
    """int16[vocab_width]: what a slot holds that has read these tokens, worked out on the host."""
    line = np.minimum(np.bincount(tokens[prompt_len:], minlength=vocab_width), MAX_COUNT).astype(np.int16)
    line[tokens[:prompt_len]] |= IN_PROMPT
    return line


def read_counts(counts: Int16[Array, "L V"], slot: Int32[Array, ""]) -> tuple[Float[Array, " V"], Bool[Array, " V"]]:
    """(times in the output, at most MAX_COUNT; is in the prompt or the output) for each token of one slot."""
    line = lax.dynamic_index_in_dim(counts, slot, keepdims=False)
    return jnp.minimum(line & (IN_PROMPT - 1), MAX_COUNT).astype(jnp.float32), line > 0


def _clear(
    counts: Int16[Array, "L V"], slots: Int32[Array, " S"], is_cleared: Bool[Array, " S"]
) -> Int16[Array, "L V"]:
    """Zero the slots of the rows named; as many rounds as there are such rows, usually none."""
    (rows,) = jnp.nonzero(is_cleared, size=len(slots), fill_value=0)
    zeros = jnp.zeros((1, counts.shape[1]), counts.dtype)

    def clear_one(i: Array, counts: Array) -> Array:
        return lax.dynamic_update_slice(counts, zeros, (slots[rows[i]], jnp.int32(0)))

    return lax.fori_loop(0, jnp.sum(is_cleared), clear_one, counts)
