"""Host: `NeverPacked`: codes of a file that devices do not keep, however they multiply, and the reasons."""

from typing import NamedTuple

NO_FORM = "it has no packed form"
UNEVEN = "its groups or blocks do not divide rows evenly"
MIXED_ROWS = "rows of 8-bit codes stay packed only where all matrices of the layers have them"
FORMS_DIFFER = "its parts have different forms"
ORDERS_DIFFER = "its parts have their inputs in different orders (act-order)"
PART_WITHOUT = "another part of it cannot stay packed"
LOOKED_UP = "its rows are looked up, and have inputs in an order of their own (act-order)"
CUT = "a device's share of its inputs ends within a block"
ORDER_DIVIDED = "devices divide its inputs, which have an order of their own (act-order)"


class NeverPacked(NamedTuple):
    """The name of a form or type, the leaf ("qkv", "embed") or type that is decoded, and why."""

    form: str
    where: str
    reason: str
