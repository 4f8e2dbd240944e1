import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.core.row_layout import SAMPLING_FIELDS
from jaxserve.sampling.slot_state import fork_slots, init_slot_state, set_edits, set_mask
from tests.jaxserve.sampling.rows import make_batch


def test_packed_rows_are_read_by_name():
    values = {name: i + 1 for i, name in enumerate(SAMPLING_FIELDS)} | {"temperature": 0.7, "top_p": 0.25}
    batch = make_batch([{**values, "slot": 5, "seed_low": 2**32 - 1}, {"slot": 6}])
    assert batch.slot.tolist() == [5, 6]
    assert batch.temperature[0] == np.float32(0.7)
    assert batch.top_p[0] == np.float32(0.25)
    assert int(batch.seed_low[0]) == 2**32 - 1
    assert batch.has_penalties.tolist() == [True, False]
    for name in ("top_k", "sample_index", "prompt_len", "num_logprobs", "mask_row", "pooling", "min_p"):
        assert getattr(batch, name)[0] == values[name]


def filled_state():
    state = init_slot_state(num_slots=3, vocab_width=40, num_edits=2)
    state = set_edits(state, jnp.int32([1]), jnp.int32([[4, 40]]), jnp.float32([[-1, 0]]), jnp.int32([[9, 0]]))
    state = set_mask(state, jnp.int32([2]), jnp.uint32([[5, 0]]))
    return jax.tree.map(lambda x: x, state).replace(counts=state.counts.at[1, 7].set(3))


def test_a_fork_copies_all_that_a_slot_owns_and_nothing_else():
    before = filled_state()
    after = jax.jit(fork_slots)(before, jnp.int32([1, 3]), jnp.int32([2, 3]))  # the second pair is padding
    for name in ("counts", "edit_ids", "edit_bias", "edit_until"):
        old, new = getattr(before, name), getattr(after, name)
        np.testing.assert_array_equal(new, old.at[2].set(old[1]))
    np.testing.assert_array_equal(after.mask_rows, before.mask_rows)  # no slot owns one


def test_forks_happen_in_place():
    state = init_slot_state(num_slots=64, vocab_width=4096, num_edits=8)
    forked = jax.jit(fork_slots, donate_argnums=0).lower(state, jnp.zeros(4, jnp.int32), jnp.ones(4, jnp.int32))
    memory = forked.compile().memory_analysis()
    assert memory.alias_size_in_bytes == sum(x.nbytes for x in jax.tree.leaves(state))
    assert memory.temp_size_in_bytes < state.counts.nbytes / 8
