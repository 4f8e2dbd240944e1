"""Attention sinks as StreamingLLM defines them (arXiv 2309.17453, section 3.2), one token at a time, the reference of
streaming sequences: keys are kept as they are before rotation, and rotated by their places among those that are kept.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxserve.models.attention_metadata import kind_meta
from jaxserve.models.context import Context
from jaxserve.models.rotary import rope_tables, rotate
from jaxserve.models.transformer import forward, logits
from tests.support.naive_loop import NaiveModel


class NaiveStream:
    """One sequence of up to `max_len` tokens; the KV of its tokens is never dropped, only hidden."""

    def __init__(self, model: NaiveModel, num_sinks: int, window: int, page_size: int, max_len: int):
        config = model.config
        self.model, self.sizes, self.length = model, (num_sinks, window, page_size), 0
        heads = config.kinds[0].attention
        num_groups = sum(end - start for start, end in config.group_ranges)
        shape = (config.layers_per_group, num_groups, heads.num_kv_heads, max_len, 2 * heads.head_dim)
        self.pool = jnp.zeros(shape, jnp.float32)

    def read(self, token: int) -> np.ndarray:
        """The logits [V] after one more token."""
        model = self.model
        found, self.pool = _step(
            model.config, model.mesh, self.sizes, model.params, jnp.int32(token), jnp.int32(self.length), self.pool
        )
        self.length += 1
        return np.asarray(found)[: model.config.vocab_size]

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        """The continuation of a prompt."""
        for token in prompt[:-1]:
            self.read(token)
        tokens = [prompt[-1]]
        for _ in range(num_tokens):
            tokens.append(int(self.read(tokens[-1]).argmax()))
        return tokens[1:]


def num_dropped(position: int | jax.Array, num_sinks: int, window: int, page_size: int):
    """Tokens that a token does not see: whole pages, so that no more than the sinks and the window remain."""
    over = position + 1 - (num_sinks + window)
    return jnp.maximum(-(-over // page_size), 0) * page_size


@partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=6)
def _step(config, mesh, sizes, params, token, position, pool):
    batch = {"cu_q_lens": jnp.arange(2, dtype=jnp.int32), "num_seqs": jnp.int32(1), "num_decodes": jnp.int32(1)}
    metas = tuple(
        kind_meta(
            jnp.arange(start, end, dtype=jnp.int32)[:, None, None],  # the attention below reads its group there
            jnp.zeros((end - start, 1), jnp.int32),
            kv_lens=position[None] + 1,
            num_tokens=1,
            page_size=pool.shape[3],
            **batch,
        )
        for start, end in config.group_ranges
    )
    ropes = {kind.attention.window: kind.attention.rope for kind in config.kinds}

    def attention(q, k, v, pool, layer, meta, *, spec):
        position, group, (num_sinks, window, page_size) = meta.kv_positions[0], meta.tables[0, 0], sizes
        rope, head_dim = ropes[spec.window], q.shape[-1]

        def turned(x, positions):
            return rotate(x, *rope_tables(rope, head_dim, positions))

        unrotated = turned(k, -position[None]) / rope.attention_factor**2
        packed = jnp.concatenate([unrotated, v], axis=-1)[0][:, None]  # [K, 1, 2H]
        pool = jax.lax.dynamic_update_slice(pool, packed[None, None], (layer, group, 0, position, 0))
        keys, values = jnp.split(pool[layer, group], 2, axis=-1)  # [K, N, H]
        at = jnp.arange(keys.shape[1], dtype=jnp.int32)
        if spec.window is None:
            dropped = num_dropped(position, num_sinks, window, page_size)
            is_sink = at < num_sinks
            is_seen, place = is_sink | (at >= num_sinks + dropped), jnp.where(is_sink, at, at - dropped)
            query = turned(turned(q, -position[None]) / rope.attention_factor**2, (position - dropped)[None])
        else:
            is_seen, place, query = at > position - spec.window, at, q
        keys = turned(jnp.swapaxes(keys, 0, 1), place)  # [N, K, H]
        query = query.reshape(keys.shape[1], -1, head_dim)
        scores = jnp.einsum("kgh,nkh->kgn", query, keys) * spec.scale
        scores = scores if spec.softcap is None else jnp.tanh(scores / spec.softcap) * spec.softcap
        weights = jax.nn.softmax(jnp.where(is_seen & (at <= position), scores, -jnp.inf), axis=-1)
        return jnp.einsum("kgn,knh->kgh", weights, values).reshape(1, -1, head_dim), pool

    ctx = Context(mesh, "reference", attention, plan=lambda meta, **_: meta)
    hidden, pool, _ = forward(ctx, config, params, token[None], position[None], metas, pool)
    return logits(ctx, config, params, hidden)[0], pool
