"""Host: `stored_forms`: in which packed form a file has each matrix of each layer."""

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from checkpoints.formats.tensor_file import INTEGER_DTYPES, TensorFile
from checkpoints.mapping.rules import Rule, Run, Shapes
from checkpoints.quantized.packed_file import PackedFile
from checkpoints.quantized.quantized_file import QuantizedFile

if TYPE_CHECKING:
    from pallas_kernels.block_forms.block_form import BlockForm

DENSE = frozenset({"F64", "F32", "F16", "BF16"})
"""Types of numbers that are read as they are."""
Forms = dict[str, "BlockForm | tuple[BlockForm, ...]"]
"""By the name of the leaf ("qkv", "embed"); several: of the parts of its rows, in order."""
Cut = tuple[str, str]
"""A leaf, and the name of a form whose blocks devices would have in parts."""


def stored_forms(
    file: TensorFile,
    rules: Sequence[Rule],
    shapes: Shapes,
    num_layers: int,
    num_shards: int,
    divided: Collection[str],
    *,
    on_device: Callable[["BlockForm", int], "BlockForm"],
) -> tuple[list[Forms], Forms, set[Cut]]:
    """(of each layer, of the matrices outside the layers, what is cut); other matrices cannot stay packed.

    These are dense in the file, or a gate and its other half in different forms or orders. Cut are those of the leaves
    `divided`, whose inputs are divided over `num_shards` devices, if a device's share ends within a block. shapes: of
    the leaves. on_device: the form in which devices have blocks of a file's form, by it and by a row's inputs.
    """
    cut = set[Cut]()
    found: dict[tuple[int | None, str], list[tuple[Run, BlockForm | None, bytes]]] = defaultdict(list)
    for name, info in file.tensors.items():
        matches = [(rule, layer) for rule in rules if (layer := rule.match(name)) is not None]
        if not matches or matches[0][0].path is None or len(info.shape) != 2 or 0 in info.shape:
            continue
        rule, layer = matches[0]
        path = rule.leaf(layer)
        leaf = path.rpartition("/")[2]
        stored, order = file.form_of(name) if isinstance(file, PackedFile) else None, b""
        form = None if stored is None else on_device(stored, info.shape[1])
        if form is not None and path in divided and info.shape[1] % (form.block_len * num_shards):
            cut.add((leaf, form.name))
            form = None
        if form is not None and form.has_order:
            # Embeddings are looked up by rows, of inputs in order.
            form, order = form if rule.is_stacked else None, _order_of(file, name)
        if path in shapes:
            first = rule.runs(layer, shapes[path])[0]
            found[layer if rule.is_stacked else None, leaf].append((first, form, order))
    layers: list[Forms] = [{} for _ in range(num_layers)]
    ends: Forms = {}
    for (layer, leaf), tensors in found.items():
        forms = [form for _, form, _ in sorted(tensors, key=lambda tensor: tensor[0].target) if form is not None]
        if len(forms) == len(tensors):
            own = ends if layer is None else layers[layer]
            if len(set(forms)) == 1 and len({order for *_, order in tensors}) == 1:
                own[leaf] = forms[0]
            elif len({run.target for run, *_ in tensors}) == len(tensors):
                own[leaf] = tuple(forms)
    return layers, ends, cut


def types_without_a_form(file: TensorFile) -> list[str]:
    """Names of the types in which the file has coded matrices, none of which a device keeps as it is: IQ4_XS, Q2_K,
    NVFP4, …"""
    if not isinstance(file, PackedFile):
        return []
    coded = {name: info.dtype for name, info in file.tensors.items() if len(info.shape) == 2 and 0 not in info.shape}
    coded = {name: kind for name, kind in coded.items() if kind not in INTEGER_DTYPES and kind not in DENSE}
    rows = {name for name in coded if isinstance(file, QuantizedFile) and file.row_scheme_of(name) is not None}
    kept = {kind for name, kind in coded.items() if name in rows or file.form_of(name) is not None}
    return sorted(set(coded.values()) - kept)


def _order_of(file: TensorFile, name: str) -> bytes:
    order = file.order_of(name) if isinstance(file, QuantizedFile) else None
    return b"" if order is None else order.tobytes()
