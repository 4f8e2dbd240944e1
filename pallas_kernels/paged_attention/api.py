"""Device: `paged_attention`, the op for decode rows, prefill chunks, mixed batches and draft verification."""

from jaxtyping import Array, Float, Int, Num

from pallas_kernels.dispatch import Implementation, dispatch, imported_on_demand
from pallas_kernels.page_ops.pack_tokens import check_scales
from pallas_kernels.paged_attention import reference
from pallas_kernels.paged_attention.attention_spec import AttentionSpec, ModelSizes
from pallas_kernels.paged_attention.batch_meta import AttentionMeta
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


def paged_attention(
    q: Float[Array, "T N H"],
    k: Float[Array, "T K H"] | None,
    v: Float[Array, "T K H"] | None,
    pool: Num[Array, "Lg P K page W2"],
    layer: Int[Array, ""],
    meta: AttentionMeta,
    spec: AttentionSpec,
    *,
    sinks: Float[Array, "N"] | None = None,
    k_scale: Float[Array, "Lg K"] | None = None,
    v_scale: Float[Array, "Lg K"] | None = None,
) -> tuple[Float[Array, "T N H"], Num[Array, "Lg P K page W2"]]:
    """Writes the tokens' keys and values into their pages, then attends over each token's row.

    The pool holds keys and values as `spec.layout` defines (`page_layouts.py`): in ROWS, keys in lanes [0, H), values
    in [H, 2H), zeros up to W2; page 0 is scratch. Query head n uses KV head n // (N // K). A token at position p
    attends to (p - window, p]; draft trees restrict that further (see `AttentionMeta.tree`). Padding tokens give zeros.
    Whatever lies at positions that a row does not hold, NaN included, reaches no output. In a scan over layers, carry
    the pool and donate it: it is then updated in place.

    Args:
      layer: index in the pool's first axis.
      spec: the arguments that are fixed when the call is compiled.
      sinks: a logit per query head that takes part in the softmax's denominator only.
      k_scale, v_scale: factors of the keys and values stored in an 8-bit pool.

    Returns:
      Attention's output in q's dtype, and the pool.

    Raises:
      ValueError: arguments contradict each other.
      NotImplementedError: no back end serves them; the message lists each one's reason.
    """
    num_tokens, num_heads, head_dim = q.shape
    num_kv_heads, layout = pool.shape[2], spec.layout
    if num_heads % num_kv_heads:
        raise ValueError(f"q has {num_heads} heads, which the pool's {num_kv_heads} kv heads do not divide")
    packed_len = layout.packed_len(head_dim, pool.dtype)
    if pool.shape[layout.packed_axis] != packed_len:
        found = f"{pool.shape[layout.packed_axis]} {layout.packed_unit}"
        raise ValueError(f"pool has {found}; head dim {head_dim} needs {packed_len}")
    if spec.write != (k is not None) or spec.write != (v is not None):
        raise ValueError(f"write={spec.write} needs k and v to be {'arrays' if spec.write else 'None'}")
    for name, part in (("k", k), ("v", v)):
        if part is not None and part.shape != (num_tokens, num_kv_heads, head_dim):
            raise ValueError(f"{name} has shape {part.shape}; q and pool need {(num_tokens, num_kv_heads, head_dim)}")
    check_scales(pool.dtype, k_scale, v_scale)
    if meta.rows.shape[0] != num_tokens:
        raise ValueError(f"meta is for {meta.rows.shape[0]} tokens, q has {num_tokens}")
    operands = (q, k, v, pool, layer, meta, spec)
    scales = {"k_scale": k_scale, "v_scale": v_scale}
    return dispatch("paged_attention", IMPLEMENTATIONS, spec.backend, *operands, sinks=sinks, **scales)


def plan(meta: AttentionMeta, spec: AttentionSpec, model: ModelSizes) -> AttentionMeta:
    """`meta` with `meta.plan`: what the back end computes once per step, before the layers.

    The plan serves all calls of `paged_attention` with this spec and these sizes: all layers, and other KV groups too,
    whose `tables`, `first_pages` and `write_slots` may replace those of `meta`.
    """
    return dispatch("plan", PLANS, spec.backend, meta, spec, model)


def _no_plan(meta: AttentionMeta, spec: AttentionSpec, model: ModelSizes) -> AttentionMeta:
    return meta


PLANS = (
    Implementation("mosaic_tpu", mosaic_tpu.plan, platforms=("tpu",)),
    Implementation("mosaic_gpu", imported_on_demand(GPU, "plan"), platforms=("gpu",)),
    Implementation("xla", xla.plan),
    Implementation("invariant", _no_plan, is_automatic=False),
    Implementation("reference", _no_plan, is_automatic=False),
)
