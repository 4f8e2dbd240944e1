"""Device: `prefill`, `decode`, `forward` and `logits`: a model as pure functions of its weights, without an engine.

`settings` is static and hashable, all other arguments are arrays: the functions work under `jit` (static_argnums=0,
with a donated cache), under differentiation and `vmap` over the weights, and with the cache as the carry of a scan.
"""

from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Int

from jaxserve.core.hardware.mesh import replicated
from jaxserve.functional.dense_attention import whole_text_attention
from jaxserve.functional.kv_cache import Cache, make_metas
from jaxserve.models import transformer
from jaxserve.models.context import Context
from jaxserve.models.model_settings import Settings
from jaxserve.models.params import Params
from pallas_kernels.paged_attention.batch_meta import AttentionMeta


def prefill(
    settings: Settings, params: Params, tokens: Int[Array, "B T"], lengths: Int[Array, "B"], cache: Cache
) -> tuple[Float[Array, "B V"], Cache]:
    """Append the first `lengths[b]` tokens of each row to the cache; returns logits after each row's last, float32.

    The rest of a row is padding. A row with nothing to append, or beyond the capacity `Cache.max_len`, returns NaN
    and is unchanged in the cache. Further calls continue each row at `cache.lengths`.
    """
    return _extend(settings, params, tokens, lengths, cache, is_decode=False)


def decode(
    settings: Settings, params: Params, tokens: Int[Array, "B"], cache: Cache
) -> tuple[Float[Array, "B V"], Cache]:
    """Append one token to each row; returns the logits after it, float32, and the cache.

    A row beyond the cache's capacity returns NaN and is unchanged.
    """
    return _extend(settings, params, tokens[:, None], jnp.ones_like(cache.lengths), cache, is_decode=True)


def forward(
    settings: Settings, params: Params, tokens: Int[Array, "B T"], *, layers: tuple[int, ...] = ()
) -> tuple[Float[Array, "B T D"], Float[Array, "A B T D"]]:
    """Hidden states after the final norm, and the inputs of the given layers, of whole texts, without a cache.

    Differentiable in forward and reverse mode. Attention is causal, so texts padded at their ends need no mask; the
    results at the padding are meaningless. layers: distinct numbers from 0 (the embeddings) to num_layers - 1; others
    raise ValueError.
    """
    num_layers = settings.config.num_layers
    if len(set(layers)) != len(layers) or not all(0 <= layer < num_layers for layer in layers):
        raise ValueError(f"layers={layers} must be distinct numbers from 0 to {num_layers - 1}")
    num_texts, num_tokens = tokens.shape
    inputs = tokens.reshape(-1), text_positions(tokens), no_metas(settings), no_pool(settings)
    ctx = text_context(settings, num_texts)
    hidden, _, taps = transformer.forward(ctx, settings.config, params, *inputs, tap_layers=layers)
    shape = (num_texts, num_tokens, hidden.shape[-1])
    return hidden.reshape(shape), taps.reshape(len(layers), *shape)


def text_context(settings: Settings, num_texts: int) -> Context:
    """For layers that read whole texts, equally long, without a cache."""
    attention = partial(whole_text_attention, num_texts)
    return Context(settings.mesh, settings.attention_backend, attention, plan=_no_plan)


def text_positions(tokens: Int[Array, "B T"]) -> Int[Array, "BT"]:
    """Of the tokens in their texts."""
    return jnp.tile(jnp.arange(tokens.shape[1], dtype=jnp.int32), len(tokens))


def logits(settings: Settings, params: Params, hidden: Float[Array, "*b D"]) -> Float[Array, "*b V"]:
    """Next-token logits, float32, of hidden states after the final norm."""
    ctx = Context(settings.mesh, settings.attention_backend)
    rows = transformer.logits(ctx, settings.config, params, hidden.reshape(-1, hidden.shape[-1]))
    rows = lax.with_sharding_constraint(rows, replicated(settings.mesh))
    return rows[:, : settings.config.vocab_size].reshape(*hidden.shape[:-1], -1)


def _extend(
    settings: Settings,
    params: Params,
    tokens: Int[Array, "B T"],
    lengths: Int[Array, "B"],
    cache: Cache,
    *,
    is_decode: bool,
) -> tuple[Float[Array, "B V"], Cache]:
    batch_size, width = tokens.shape
    lengths = lengths.astype(jnp.int32)
    counts = jnp.clip(lengths, 0, min(width, cache.max_len))
    is_valid = (lengths >= 1) & (lengths <= width) & (cache.lengths + lengths <= cache.max_len)
    starts = jnp.minimum(cache.lengths, cache.max_len - counts)  # tokens of a row without room need valid positions too
    # As many tokens as rows would declare one token per row, which prefill cannot guarantee: it adds a padding token.
    num_tokens = batch_size * width + (width == 1 and not is_decode)
    metas = make_metas(settings, cache, starts, counts, is_valid, num_tokens, is_decode=is_decode)
    row_of, positions = metas[0].rows, metas[0].kv_positions
    packed = tokens[row_of, jnp.clip(positions - starts[row_of], 0, width - 1)]
    ctx = Context(settings.mesh, settings.attention_backend, page_layout=settings.page_layout)
    hidden, pool, _ = transformer.forward(ctx, settings.config, params, packed, positions, metas, cache.pool)
    last = jnp.maximum(metas[0].cu_q_lens[1:] - 1, 0)
    found = jnp.where(is_valid[:, None], logits(settings, params, hidden[last]), jnp.nan)
    return found, Cache(pool, cache.lengths + jnp.where(is_valid, counts, 0), cache.max_len)


def _no_plan(meta: AttentionMeta, **_: Any) -> AttentionMeta:
    return meta


def no_metas(settings: Settings) -> tuple[AttentionMeta, ...]:
    """Placeholder metadata for dense attention: one empty row in each KV group."""

    def zeros(*shape: int) -> Int[Array, "*shape"]:
        return jnp.zeros(shape, jnp.int32)

    def empty(num_groups: int) -> AttentionMeta:
        by_group = {"tables": zeros(num_groups, 1, 1), "first_pages": zeros(num_groups, 1)}
        by_token = {"rows": zeros(1), "kv_positions": zeros(1), "write_slots": zeros(num_groups, 1)}
        return AttentionMeta(zeros(2), zeros(1), **by_group, **by_token, num_seqs=zeros(), num_decodes=zeros())

    return tuple(empty(settings.config.num_groups(kind)) for kind in range(len(settings.config.kinds)))


def no_pool(settings: Settings) -> Float[Array, "Lg P K page W2"]:
    return jnp.zeros(settings.layout.shape(1), settings.dtype)
