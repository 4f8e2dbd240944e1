"""Host: `stored_forms`: in which packed form a file has each matrix of each layer."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from checkpoints.formats.tensor_file import INTEGER_DTYPES, TensorFile
from checkpoints.mapping.never_packed import (
    CUT,
    FORMS_DIFFER,
    LOOKED_UP,
    MIXED_ROWS,
    NO_FORM,
    ORDERS_DIFFER,
    PART_WITHOUT,
    UNEVEN,
    NeverPacked,
)
from checkpoints.mapping.rules import Rule, Run, Shapes
from checkpoints.quantized.packed_file import PackedFile
from checkpoints.quantized.quantized_file import QuantizedFile

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

DENSE = frozenset({"F64", "F32", "F16", "BF16"})
"""Types of numbers that are read as they are."""
Forms = dict[str, "BlockForm | tuple[BlockForm, ...]"]
"""By the name of the leaf ("qkv", "embed"); several: of the parts of its rows, in order."""
Part = tuple[Run, "BlockForm | None", bytes]
"""A tensor of a leaf: where its rows go, its form, and the order of its inputs."""


def stored_forms(
    file: TensorFile,
    rules: Sequence[Rule],
    shapes: Shapes,
    num_layers: int,
    num_shards: int,
    divided: Collection[str],
    *,
    on_device: Callable[["BlockForm", int], "BlockForm"],
) -> tuple[list[Forms], Forms, set[NeverPacked]]:
    """(of each layer, of the matrices outside the layers, codes that cannot stay packed); other matrices are dense.

    Such codes are of types without a form, of a gate and its other half in different forms or orders, or of the leaves
    `divided`, whose inputs are divided over `num_shards` devices, if a device's share ends within a block. shapes: of
    the leaves. on_device: the form in which devices have blocks of a file's form, by it and by a device's share of
    a row's inputs.
    """
    matrices = {name: info for name, info in file.tensors.items() if len(info.shape) == 2 and 0 not in info.shape}
    coded = {name: info.dtype for name, info in matrices.items() if info.dtype not in INTEGER_DTYPES | DENSE}
    stored = {name: file.form_of(name) for name in coded} if isinstance(file, PackedFile) else {}
    rows = {name for name in coded if isinstance(file, QuantizedFile) and file.row_scheme_of(name) is not None}
    kept = {coded[name] for name, form in stored.items() if form is not None or name in rows}
    never = {NeverPacked(kind, kind, NO_FORM) for kind in {coded[name] for name in stored} - kept}
    found: dict[tuple[int | None, str], list[Part]] = defaultdict(list)
    for name, info in matrices.items():
        matches = [(rule, layer) for rule in rules if (layer := rule.match(name)) is not None]
        if not matches or matches[0][0].path is None or matches[0][0].leaf(matches[0][1]) not in shapes:
            continue
        rule, layer = matches[0]
        path = rule.leaf(layer)
        leaf, form, lost = path.rpartition("/")[2], stored.get(name), None
        if form is not None:
            form = on_device(form, info.shape[1] // (num_shards if path in divided else 1))
            if path in divided and info.shape[1] % (form.block_len * num_shards):
                lost = NeverPacked(form.name, leaf, CUT)
            elif form.has_order and not rule.is_stacked:
                lost = NeverPacked(form.name, leaf, LOOKED_UP)
        elif info.dtype in kept:
            lost = NeverPacked(info.dtype, leaf, MIXED_ROWS if name in rows else UNEVEN)
        if lost is not None:
            form = None
            never.add(lost)
        order = _order_of(file, name) if form is not None and form.has_order else b""
        found[layer if rule.is_stacked else None, leaf].append((rule.runs(layer, shapes[path])[0], form, order))
    layers: list[Forms] = [{} for _ in range(num_layers)]
    ends: Forms = {}
    for (layer, leaf), parts in found.items():
        joined = _joined(parts)
        if isinstance(joined, str):
            never |= {NeverPacked(form.name, leaf, joined) for _, form, _ in parts if form is not None}
        else:
            (ends if layer is None else layers[layer])[leaf] = joined
    return layers, ends, never


def _joined(parts: Sequence[Part]) -> "BlockForm | tuple[BlockForm, ...] | str":
    """The form of a leaf, or why it has none."""
    forms = [form for _, form, _ in sorted(parts, key=lambda part: part[0].target) if form is not None]
    if len(forms) < len(parts):
        return PART_WITHOUT
    if len(set(forms)) == 1 and len({order for *_, order in parts}) == 1:
        return forms[0]
    if len({run.target for run, *_ in parts}) == len(parts):
        return tuple(forms)
    return FORMS_DIFFER if len(set(forms)) > 1 else ORDERS_DIFFER


def _order_of(file: TensorFile, name: str) -> bytes:
    order = file.order_of(name) if isinstance(file, QuantizedFile) else None
    return b"" if order is None else order.tobytes()
