"""Device: drawing from a nucleus whose least logit is not known: from a larger law until a token lies in the nucleus.

A token lies in it if those likelier than it have less than top-p of the mass: one pass over the vocabulary says so,
where finding the least logit takes up to 32 (`thresholds.py`; 32 rows of 49,152 on two CPU cores: 10 ms). Each attempt
succeeds with probability top-p at least. What is drawn after any number of failures has the same law, so a row may give
up and find its least logit after all. (Rejection sampling: von Neumann, 1951, "Various techniques used in connection
with random digits".)
"""

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Bool, Float, Int32

from jaxserve.sampling.topk import BLOCK, reduce_blocks, take_blocks
from jaxserve.sampling.weights import each_row, pick, weights_of


def draw_from_nucleus(
    logits: Float[Array, "S V"],
    temperature: Float[Array, " S"],
    floor: Float[Array, " S"],
    top_p: Float[Array, " S"],
    uniforms: Float[Array, "S A 2"],
    is_wanted: Bool[Array, " S"],
) -> tuple[Int32[Array, " S"], Bool[Array, " S"]]:
    """(token, was one found?) of each row that wants one, by A attempts at most.

    floor: the least logit that other truncations allow; top-p counts the mass from there on. An attempt takes a number
    for a block of neighbours and one inside it, as `vocabulary.py` does.
    """

    def of_row(z: Array, temperature: Array, floor: Array, top_p: Array, uniforms: Array) -> tuple[Array, Array]:
        top = jnp.max(reduce_blocks(z[None], jnp.max, -jnp.inf))

        def weigh(z: Array) -> Array:
            return weights_of(z[None], top[None], temperature[None], floor[None])

        blocks = reduce_blocks(weigh(z), jnp.sum, 0.0)
        goal = top_p * jnp.sum(blocks)

        def attempt(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            count, _, _ = state
            number = lax.dynamic_index_in_dim(uniforms, count, keepdims=False)
            block = pick(blocks, number[:1])
            inside = take_blocks(z[None], block[:, None])[0, 0]
            place = pick(weigh(inside), number[1:])[0]
            likelier = jnp.sum(jnp.where(z > inside[place], weigh(z)[0], 0.0))
            return count + 1, block[0] * BLOCK + place, likelier < goal

        def is_left(state: tuple[Array, Array, Array]) -> Array:
            return (state[0] < len(uniforms)) & ~state[2]

        start = jnp.int32(0), jnp.int32(0), jnp.asarray(False)
        return lax.while_loop(is_left, attempt, start)[1:]

    def if_wanted(is_wanted: Array, *row: Array) -> tuple[Array, Array]:
        return lax.cond(is_wanted, lambda: of_row(*row), lambda: (jnp.int32(0), jnp.asarray(False)))

    return each_row(if_wanted, is_wanted, logits, temperature, floor, top_p, uniforms)
