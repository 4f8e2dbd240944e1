"""Wiring: in which forms an Orbax folder has the matrices of a model: rows of codes, or blocks."""

from collections.abc import Callable, Collection

import jax.numpy as jnp

from checkpoints.errors import CheckpointError
from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.formats.saved_form_keys import Form
from checkpoints.formats.saved_matrix import SavedMatrix
from checkpoints.mapping.never_packed import CUT, FORMS_DIFFER, LOOKED_UP, NeverPacked
from checkpoints.mapping.parts import OUTSIDE, Part, parts_of
from checkpoints.mapping.row_parts import has_parts
from checkpoints.mapping.saved_packing import form_of_fp8_rows
from checkpoints.mapping.stored_forms import Forms
from checkpoints.mapping.trees import matrices
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import Packing
from jaxserve.models.params import declare
from jaxserve.runner.load_weights import dims
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.qtensor import FP8, SCHEMES, QTensor, Scheme

ONE = abstract_mesh(1)


def saved_rows(file: OrbaxFile, model: ModelConfig) -> Packing | None:
    """The packing of a folder with rows of codes; None: it has none. Raises `CheckpointError` where these are mixed
    with other forms, or where the matrices of its layers have several."""
    layers, ends, names = set[Form](), set[Form](), set[str]()
    for part in _parts(model):
        found = _packed_of(file, part).values()
        (ends if part.name == OUTSIDE else layers).update(matrix.form for matrix in found)
        names |= {matrix.form_name for matrix in found}
    are_rows = {isinstance(form, Scheme) for form in layers | ends}
    if True not in are_rows:
        return None
    if False in are_rows or len(layers) != 1 or len(ends) > 1:
        raise CheckpointError(
            f"{file.root}: rows of codes are for all matrices of the layers, not mixed with others: {sorted(names)}"
        )
    return Packing(layers=layers.pop(), ends=ends.pop() if ends else None)


def saved_scheme(name: str, file: OrbaxFile, model: ModelConfig) -> Packing:
    """The packing of a folder whose matrices all have the scheme of this name, in layers with or without outliers.
    Raises `CheckpointError` as `saved_rows` does, and ConfigError for any other folder."""
    match saved_rows(file, model):
        case Packing(layers=Scheme(num_outliers=count) as layers, ends=ends) as rows if (
            layers == SCHEMES[name].with_outliers(count) and ends == SCHEMES[name]
        ):
            return rows
        case _:
            raise not_coded(file, name)


def saved_blocks(
    file: OrbaxFile,
    model: ModelConfig,
    num_shards: int,
    divided: Collection[str],
    on_device: Callable[[BlockForm, int], BlockForm],
) -> tuple[list[Forms], Forms, set[NeverPacked]]:
    """As `checkpoints.mapping.stored_forms.stored_forms` finds them in other files. Rows of FP8 codes are one block
    each."""
    layers, ends, never = list[Forms](), Forms(), set[NeverPacked]()
    for part in _parts(model):
        own = ends if part.name == OUTSIDE else Forms()
        for leaf, matrix in _packed_of(file, part).items():
            path, num_in = part.leaves[leaf], matrix.shape[-1]
            saved = form_of_fp8_rows(num_in) if isinstance(matrix.form, Scheme) else matrix.form
            share = num_in // (num_shards if path in divided else 1)
            forms = tuple(on_device(form, share) for form in (saved if isinstance(saved, tuple) else (saved,)))
            lost = {
                NeverPacked(form.name, leaf, CUT)
                for form in forms
                if path in divided and num_in % (form.block_len * num_shards)
            }
            if part.name == OUTSIDE:
                lost |= {NeverPacked(form.name, leaf, LOOKED_UP) for form in forms if form.has_order}
            if isinstance(saved, tuple) and not has_parts(path):
                lost |= {NeverPacked(form.name, leaf, FORMS_DIFFER) for form in forms}
            if not lost:
                own[leaf] = forms if isinstance(saved, tuple) else forms[0]
            never |= lost
        if part.name != OUTSIDE:
            layers.append(own)
    return layers, ends, never


def not_coded(file: OrbaxFile, name: str) -> ConfigError:
    """The refusal of a scheme's name."""
    forms = ", ".join(sorted({info.dtype for info in file.tensors.values()}))
    return ConfigError(
        f"quantization={name!r}: weights of an Orbax folder are not coded while loading, and {file.root} has {forms}: "
        "leave it out, or convert the folder to safetensors first",
        "quantization",
    )


def _packed_of(file: OrbaxFile, part: Part) -> dict[str, SavedMatrix]:
    """Its packed matrices by their leaves; any others are named when the folder is restored."""
    return {leaf: matrix for leaf, matrix in file.packed_of(part.name).items() if leaf in part.leaves}


def _parts(model: ModelConfig) -> tuple[Part, ...]:
    """The parts of a folder, with those leaves that may be packed."""
    leaves = matrices(declare(model, ONE, jnp.float32, packing=Packing(layers=FP8, ends=FP8)))
    paths = [path for path, leaf in leaves.items() if isinstance(leaf, QTensor)]
    return parts_of(paths, dims(model, ONE).layer_slots)
