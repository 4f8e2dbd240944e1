"""Host: the rows of the parameter tree that each kind of tensor fills (`rules.Placement`s).

`qkv` is `[n, K, (G+2)·H, D]`: for each of the K groups its G query heads, its key head, its value head, so that
sharding K keeps a group's rows together. `gate_up` is `[n, 2, F, D]`, gate first.
"""

from checkpoints.mapping.rules import ModelDims, Run

Shape = tuple[int, ...]


def whole(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """A tensor that is the leaf."""
    return (Run(0, leaf[0], ()),)


def vocab(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """Rows of token ids `[V, D]`; the leaf's further rows are padding and stay zero."""
    return (Run(0, dims.vocab_size, (), num_padding=leaf[0] - dims.vocab_size),)


def layer(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """One layer of a stack: norms, `o`, `down`."""
    return (Run(0, leaf[1], (index,)),)


def query(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """Query heads in order, G to a group."""
    rows = dims.group_rows
    return tuple(Run(group * rows, rows, (index, group)) for group in range(dims.num_groups))


def key(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """Each key head, below the query heads of every group that it serves."""
    return _shared_head(dims, index, dims.group_rows)


def value(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """Each value head, below the key head."""
    return _shared_head(dims, index, dims.group_rows + dims.head_dim)


def _shared_head(dims: ModelDims, index: int, target: int, source: int = 0) -> tuple[Run, ...]:
    return tuple(
        Run(source + group // dims.kv_repeat * dims.head_dim, dims.head_dim, (index, group), target)
        for group in range(dims.num_groups)
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
    return (Run(0, leaf[2], (index, 0)),)


def up(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    return (Run(0, leaf[2], (index, 1)),)


def gate_up(dims: ModelDims, index: int, leaf: Shape) -> tuple[Run, ...]:
    """One tensor of the gate's rows, then up's."""
    return (Run(0, leaf[2], (index, 0)), Run(leaf[2], leaf[2], (index, 1)))
