"""Host: `NeverPacked`: codes of a file that devices do not keep, however they multiply, and the reasons."""

from typing import NamedTuple

NO_FORM = "it has no packed form"
UNEVEN = "its groups or blocks do not divide rows evenly"
MIXED_ROWS = "rows of 8-bit codes stay packed only where all matrices of the layers have them"
FORMS_DIFFER = "its parts have different forms"
ORDERS_DIFFER = "its parts have their inputs in different orders (act-order)"
PART_WITHOUT = "another part of it cannot stay packed"
LOOKED_UP = "its rows are looked up, and have inputs in an order of their own (act-order)"


class NeverPacked(NamedTuple):
    """The name of a form or type, the leaf ("qkv", "embed") or type that is decoded, and why."""

    form: str
    where: str
    reason: str


def cut(form: str, leaf: str, num_shards: int) -> NeverPacked:
    """A leaf whose inputs are divided over devices, of which each would have a part of a block."""
    return NeverPacked(form, leaf, f"a device's share, 1 of {num_shards}, ends within a block of inputs")
