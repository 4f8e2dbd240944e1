"""Device: the parameter tree, declared once; shapes, shardings, byte counts, load targets and random weights follow.

    embed [Vp, D]   final_norm [D]   lm_head [Vp, D] unless tied        layers / kind / leaf, over the kind's n layers:
    attn_norm [n, D]     qkv [n, K, (G+2)*H, D]  rows of KV head k: its G query heads, its key, its value
    qkv_bias [n, K, (G+2)*H]     q_norm, k_norm [n, H]     o [n, D, N*H]     mlp_norm [n, D]
    gate_up [n, 2, F, D]     down [n, D, F]     post_attn_norm, post_mlp_norm [n, D]

Matrices are stored [out, in], as in both file formats, which is 1.2 to 2 times faster than [in, out] on CPU. Norms
stay float32. The vocabulary is padded to Vp rows; padding tokens can never be drawn. On CPU qkv, o, gate_up and down
are tuples of n arrays, without the axis n (`linear.py` says why).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxserve.core.hardware.mesh import AnyMesh, num_shards, sharding
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.kv_heads import num_kv_heads_on

Params = dict[str, Any]

VOCAB_TILE = 128  # rows of embedding and head are padded to a multiple of this times the mesh size


@dataclass(frozen=True, slots=True)
class ParamSpec:
    """One parameter: shape, logical axes, dtype, and the scale of its random values (None: all ones)."""

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    dtype: Any
    init_scale: float | None

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * jnp.dtype(self.dtype).itemsize


def vocab_width(config: ModelConfig, mesh: AnyMesh) -> int:
    """Vp: the vocabulary padded so that every device holds whole tiles."""
    tile = VOCAB_TILE * num_shards(mesh, "vocab")
    return -(-config.vocab_size // tile) * tile


def declare(config: ModelConfig, mesh: AnyMesh, dtype: Any, *, has_tuples: bool = False) -> Params:
    """The tree of ParamSpecs of a model on a mesh; has_tuples: of each matrix of the layers an array per layer."""
    d, f, h, n = config.d_model, config.d_mlp, config.head_dim, config.num_heads
    k = num_kv_heads_on(config, mesh)
    vocab = vocab_width(config, mesh)

    def norm(*shape: int) -> ParamSpec:
        return ParamSpec(shape, (None,) * len(shape), jnp.float32, None)

    def matrix(*shape: int, axes: tuple[str | None, ...]) -> ParamSpec:
        return ParamSpec(shape, axes, dtype, shape[-1] ** -0.5)

    def matrices(count: int, *shape: int, axes: tuple[str | None, ...]) -> ParamSpec | tuple[ParamSpec, ...]:
        return (matrix(*shape, axes=axes),) * count if has_tuples else matrix(count, *shape, axes=(None, *axes))

    def layers(count: int) -> Params:
        leaves = {
            "attn_norm": norm(count, d),
            "qkv": matrices(count, k, (n // k + 2) * h, d, axes=("kv_heads", None, None)),
            "o": matrices(count, d, n * h, axes=(None, "heads")),
            "mlp_norm": norm(count, d),
            "gate_up": matrices(count, 2, f, d, axes=(None, "mlp", None)),
            "down": matrices(count, d, f, axes=(None, "mlp")),
        }
        if config.has_qkv_bias:
            leaves["qkv_bias"] = matrix(count, k, (n // k + 2) * h, axes=(None, "kv_heads", None))
        if config.has_qk_norm:
            leaves |= {"q_norm": norm(count, h), "k_norm": norm(count, h)}
        if config.has_post_norms:
            leaves |= {"post_attn_norm": norm(count, d), "post_mlp_norm": norm(count, d)}
        return leaves

    tree = {
        "embed": matrix(vocab, d, axes=("vocab", None)),
        "final_norm": norm(d),
        "layers": {kind.name: layers(config.layer_kinds.count(i)) for i, kind in enumerate(config.kinds)},
    }
    if not config.is_tied:
        tree["lm_head"] = matrix(vocab, d, axes=("vocab", None))
    return tree


def has_tuples_on(mesh: Mesh) -> bool:
    """Whether engines on this mesh keep the layers' matrices in tuples."""
    return mesh.devices.flat[0].platform == "cpu"


def is_spec(leaf: Any) -> bool:
    return isinstance(leaf, ParamSpec)


def targets(specs: Params, mesh: Mesh) -> Params:
    """The tree as ShapeDtypeStructs with shardings, for a loader to fill."""

    def target(s: ParamSpec) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(s.shape, s.dtype, sharding=sharding(mesh, *s.axes))

    return jax.tree.map(target, specs, is_leaf=is_spec)


def num_bytes(specs: Params) -> int:
    """Bytes of all parameters, over the whole mesh."""
    return sum(s.num_bytes for s in jax.tree.leaves(specs, is_leaf=is_spec))


def init_random(specs: Params, mesh: Mesh, seed: int = 0) -> Params:
    """Random weights, generated on the devices in their sharding; norms are ones."""
    leaves: list[ParamSpec] = jax.tree.leaves(specs, is_leaf=is_spec)
    tree = jax.tree.structure(specs, is_leaf=is_spec)
    # A program for each different leaf: one for all would be compiled for as many random arrays as there are leaves.
    programs = {s: _init_program(s, sharding(mesh, *s.axes)) for s in leaves}
    key = jax.random.key(seed)
    return jax.tree.unflatten(tree, [programs[s](jax.random.fold_in(key, i)) for i, s in enumerate(leaves)])


def _init_program(s: ParamSpec, place: jax.sharding.Sharding) -> Callable[[jax.Array], jax.Array]:
    def init(key: jax.Array) -> jax.Array:
        if s.init_scale is None:
            return jnp.ones(s.shape, s.dtype)
        return jax.random.normal(key, s.shape, s.dtype) * jnp.asarray(s.init_scale, s.dtype)

    return cast(Callable[[jax.Array], jax.Array], jax.jit(init, out_shardings=place))
