"""Host: leaves whose rows may be packed apart: queries, keys and values, which files have in several tensors."""


def has_parts(path: str) -> bool:
    """Whether the leaf of this path has parts."""
    return path.rpartition("/")[2] == "qkv"


def part_shapes(shape: tuple[int, ...], head_dim: int) -> tuple[tuple[int, ...], ...]:
    """(K, G·H, n), (K, H, n), (K, H, n): the shapes of the parts of a leaf (K, (G+2)·H, n) of one layer."""
    heads, num_rows, num_in = shape
    return tuple((heads, rows, num_in) for rows in (num_rows - 2 * head_dim, head_dim, head_dim))
