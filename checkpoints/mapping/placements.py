"""Host: `rules.Placement`s: the rows of the parameter tree that each type of tensor fills.

`qkv` is `[n, K, (G+2)·H, D]`: for each of the K groups its G query heads, its key head and its value head, so sharding
over K keeps the rows of a group together. `gate_up` is `[n, 2, F, D]`, gate first.
"""

from checkpoints.mapping.rules import ModelDims, Run

Shape = tuple[int, ...]


def whole(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """The tensor fills the whole leaf."""
    return (Run(0, leaf[0], ()),)


def vocab(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """One row per token id `[V, D]`; the leaf's other rows are padding and stay zero."""
    return (Run(0, dims.vocab_size, (), num_padding=leaf[0] - dims.vocab_size),)


def layer(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """One layer of a stack: norms, `o`, `down`."""
    return (Run(0, leaf[1], (index,)),)


def query(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """Query heads in order, G per group."""
    rows = dims.group_rows
    return tuple(Run(group * rows, rows, (index, group)) for group in range(dims.num_tree_kv_heads))


def key(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """Each key head, after the query heads of every group that reads it."""
    return _shared_head(dims, index, dims.group_rows)


def value(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """Each value head, after the key head."""
    return _shared_head(dims, index, dims.group_rows + dims.head_dim)


def _shared_head(dims: ModelDims, index: int, target: int, source: int = 0) -> tuple[Run, ...]:
    return tuple(
        Run(source + group // dims.kv_repeat * dims.head_dim, dims.head_dim, (index, group), target)
        for group in range(dims.num_tree_kv_heads)
    )


def query_key_value(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """One tensor of all query heads, then all key heads, then all value heads."""
    keys = dims.num_heads * dims.head_dim
    values = keys + dims.num_kv_heads * dims.head_dim
    return (
        *query(dims, index, leaf),
        *_shared_head(dims, index, dims.group_rows, keys),
        *_shared_head(dims, index, dims.group_rows + dims.head_dim, values),
    )


def gate(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """The gate projection of one layer."""
    return (Run(0, leaf[2], (index, 0)),)


def up(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """The up projection of one layer."""
    return (Run(0, leaf[2], (index, 1)),)


def gate_up(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """One tensor of the gate's rows, then the up projection's."""
    return (Run(0, leaf[2], (index, 0)), Run(leaf[2], leaf[2], (index, 1)))
