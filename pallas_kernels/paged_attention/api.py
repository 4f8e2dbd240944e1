"""Device: paged attention for decode rows, prefill chunks, mixed batches and draft verification; the one way in."""

from typing import Any

from jaxtyping import Array, Float, Int, Num

from pallas_kernels.dispatch import Implementation, dispatch, imported_on_demand
from pallas_kernels.page_layouts import ROWS, PageLayout
from pallas_kernels.paged_attention import reference
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
from pallas_kernels.paged_attention.block_config import BlockSizes
from pallas_kernels.paged_attention.mosaic_tpu import backend as mosaic_tpu
from pallas_kernels.paged_attention.xla import backend as xla
from pallas_kernels.paged_attention.xla import batch_invariant

GPU = "pallas_kernels.paged_attention.mosaic_gpu.backend"
IMPLEMENTATIONS = (
    Implementation("mosaic_tpu", mosaic_tpu.paged_attention, platforms=("tpu",)),
    Implementation("mosaic_gpu", imported_on_demand(GPU, "paged_attention"), platforms=("gpu",)),
    Implementation("xla", xla.paged_attention),
    Implementation("invariant", batch_invariant.paged_attention, is_automatic=False),
    Implementation("reference", reference.paged_attention, is_automatic=False),
)

PLANS = (
    Implementation("mosaic_tpu", mosaic_tpu.plan, platforms=("tpu",)),
    Implementation("mosaic_gpu", imported_on_demand(GPU, "plan"), platforms=("gpu",)),
    Implementation("xla", lambda meta, **_: meta),
    Implementation("invariant", lambda meta, **_: meta, is_automatic=False),
    Implementation("reference", lambda meta, **_: meta, is_automatic=False),
)


def lane_width(head_dim: int) -> int:
    """W2: lanes of one position and head in a pool of rows. TPUs copy the whole pool if it is no multiple of 128."""
    return ROWS.packed_len(head_dim, None)


def paged_attention(
    q: Float[Array, "T N H"],
    k: Float[Array, "T K H"] | None,
    v: Float[Array, "T K H"] | None,
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    *,
    scale: float,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Float[Array, "N"] | None = None,
    k_scale: Float[Array, "Lg K"] | None = None,
    v_scale: Float[Array, "Lg K"] | None = None,
    write: bool = True,
    layout: PageLayout = ROWS,
    backend: str = "auto",
    block: BlockSizes | None = None,
) -> tuple[Float[Array, "T N H"], Num[Array, "Lg P K page W2"]]:
    """Writes the tokens' keys and values into their pages, then attends over each token's row.

    The pool holds keys in lanes [0, H), values in [H, 2H), zeros up to W2 = `lane_width(H)`, or what `layout` says
    (`page_layouts.py`); page 0 is scratch. Query head n uses kv head n // (N // K). A token at position p sees
    (p - window, p]; draft trees narrow that further (see `AttentionMeta.tree`). Padding tokens give zeros. Whatever
    lies at positions that a row does not hold, NaN included, reaches no output. In a scan over layers, carry the pool
    and donate it: it is then updated in place.

    Args:
      layer: index in the pool's first axis.
      scale: factor of q·k, before `softcap`: s = softcap · tanh(s / softcap).
      sinks: a logit per query head that takes part in the softmax's denominator only.
      k_scale, v_scale: factors of the keys and values stored in an 8-bit pool.
      layout: how the pool's pages are laid out: ROWS or LANES.
      write: False attends over what is stored already (layers that share another layer's KV); k and v are None then.
      block: sizes of the back end's blocks; None picks them by `config`.

    Returns:
      Attention's output in q's dtype, and the pool.

    Raises:
      ValueError: arguments contradict each other.
      NotImplementedError: no back end serves them; the message lists each one's reason.
    """
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads = pool.shape[2]
    if num_heads % num_kv_heads:
        raise ValueError(f"q has {num_heads} heads, which the pool's {num_kv_heads} kv heads do not divide")
    packed_len = layout.packed_len(head_dim, pool.dtype)
    if pool.shape[layout.packed_axis] != packed_len:
        unit = "lanes" if layout.packed_axis == 4 else "rows a page"
        raise ValueError(f"pool has {pool.shape[layout.packed_axis]} {unit}; head dim {head_dim} needs {packed_len}")
    if write != (k is not None) or write != (v is not None):
        raise ValueError(f"write={write} needs k and v to be {'arrays' if write else 'None'}")
    for name, part in (("k", k), ("v", v)):
        if part is not None and part.shape != (num_tokens, num_kv_heads, head_dim):
            raise ValueError(f"{name} has shape {part.shape}; q and pool need {(num_tokens, num_kv_heads, head_dim)}")
    for name, factors in (("k_scale", k_scale), ("v_scale", v_scale)):
        if factors is not None and pool.dtype.itemsize > 1:
            raise ValueError(f"{name} scales the numbers of an 8-bit pool; this pool holds {pool.dtype}: pass None")
    if window is not None and window < 1:
        raise ValueError(f"window={window} must be at least 1: a token sees itself")
    if softcap is not None and softcap <= 0:
        raise ValueError(f"softcap={softcap} must be positive; None turns it off")
    if meta.rows.shape[0] != num_tokens:
        raise ValueError(f"meta is for {meta.rows.shape[0]} tokens, q has {num_tokens}")
    return dispatch(
        "paged_attention",
        IMPLEMENTATIONS,
        backend,
        *(q, k, v, pool, layer, meta),
        scale=scale,
        window=window,
        softcap=softcap,
        sinks=sinks,
        k_scale=k_scale,
        v_scale=v_scale,
        layout=layout,
        block=block,
    )


def plan(
    meta: AttentionMeta,
    *,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    page_size: int,
    dtype: Any,
    pool_dtype: Any,
    window: int | None = None,
    layout: PageLayout = ROWS,
    backend: str = "auto",
    block: BlockSizes | None = None,
) -> AttentionMeta:
    """`meta` with what its back end can work out before the layers, in `meta.work`: call it once a step.

    It serves all calls of `paged_attention` with these arguments, for all layers, and for other KV groups too: their
    `tables`, `first_pages` and `write_slots` may take the place of these. Heads are those of one device.
    """
    return dispatch(
        "plan",
        PLANS,
        backend,
        meta,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        page_size=page_size,
        dtype=dtype,
        pool_dtype=pool_dtype,
        window=window,
        layout=layout,
        block=block,
    )
