"""Device: the parameter tree, declared once; shapes, shardings, byte counts, load targets and random weights follow.

    embed [Vp, D]     final_norm [D]     lm_head [Vp, D] unless tied     layers / stack / leaf [n, …], n: its layers

Layers' leaves are declared by the modules that use them: `layer.py`, `grouped_attention.py`, `gated_mlp.py`. Matrices
are stored [out, in], as in both file formats, which is 1.2 to 2 times faster than [in, out] on CPU. The vocabulary is
padded to Vp rows; padding tokens can never be drawn. On CPU the layers' matrices are tuples of n arrays, without the
axis n (`pallas_kernels/matmul/xla.py` says why). Packed matrices are `QTensor`s or
`BlockTensor`s (`pallas_kernels`).
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxserve.core.hardware.mesh import AnyMesh, num_shards, sharding
from jaxserve.models import layer
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.kv_heads import num_kv_heads_on
from jaxserve.models.packing import DENSE, Packing
from jaxserve.models.param_spec import LayerSpecs, ParamSpec, matrix, norm, packed

Params = dict[str, Any]

DRAFT = "draft"
"""The name of a proposer's own weights among the parameters, and of its KV among the extra arrays."""

VOCAB_TILE = 128  # rows of embedding and head are padded to a multiple of this times the mesh size


def with_draft(params: Params, draft: Params | None) -> Params:
    """The weights of a model and, if it has such, of its proposer."""
    return params if draft is None else params | {DRAFT: draft}


def vocab_width(config: ModelConfig, mesh: AnyMesh) -> int:
    """Vp: the vocabulary padded so that every device holds whole tiles."""
    tile = VOCAB_TILE * num_shards(mesh, "vocab")
    return -(-config.vocab_size // tile) * tile


def declare(
    config: ModelConfig, mesh: AnyMesh, dtype: Any, *, has_tuples: bool = False, packing: Packing = DENSE
) -> Params:
    """The tree of ParamSpecs of a model on a mesh.

    has_tuples: of each matrix of the layers an array per layer. packing: packed matrices are `QTensor`s and
    `BlockTensor`s, of ParamSpecs.
    """
    d, vocab = config.d_model, vocab_width(config, mesh)
    num_kv_heads = num_kv_heads_on(config, mesh)
    num_layers = Counter(config.layer_stacks)
    of_tokens = matrix(vocab, d, axes=("vocab", None), dtype=dtype)

    def of_layers(name: str, num_layers: int) -> LayerSpecs:
        return LayerSpecs(num_layers, dtype, has_tuples, packing, name)

    tree: Params = {
        "embed": packed(of_tokens, packing.of("embed")),
        "final_norm": norm(d),
        "layers": {
            stack.name: layer.declare(stack.kind, d, num_kv_heads, of_layers(stack.name, num_layers[i]))
            for i, stack in enumerate(config.stacks)
        },
    }
    if not config.is_tied:
        tree["lm_head"] = packed(of_tokens, packing.of("lm_head"))
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


def num_bytes(specs: Any) -> int:
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
        if jnp.issubdtype(s.dtype, jnp.unsignedinteger):
            return jax.random.bits(key, s.shape, s.dtype)
        if jnp.issubdtype(s.dtype, jnp.integer) or jnp.dtype(s.dtype).itemsize == 1:
            return (jax.random.normal(key, s.shape) * jnp.float32(s.init_scale)).astype(s.dtype)
        return jax.random.normal(key, s.shape, s.dtype) * jnp.asarray(s.init_scale, s.dtype)

    return cast(Callable[[jax.Array], jax.Array], jax.jit(init, out_shardings=place))
