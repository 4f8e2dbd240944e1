"""Wiring: in which forms an Orbax folder has the matrices of a model: rows of codes, or blocks."""

from collections.abc import Callable, Collection

import jax.numpy as jnp

from checkpoints.errors import CheckpointError
from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.formats.saved_matrix import Form
from checkpoints.mapping.parts import OUTSIDE, Part, parts_of
from checkpoints.mapping.saved_packing import form_of_fp8_rows
from checkpoints.mapping.stored_forms import Cut, Forms
from checkpoints.mapping.trees import matrices
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.packing import Packing
from jaxserve.models.params import declare
from jaxserve.runner.load_weights import dims
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.qtensor import Scheme

ONE = abstract_mesh(1)


def saved_rows(file: OrbaxFile, model: ModelConfig) -> Packing | None:
    """The packing of a folder with rows of codes; None: it has none. Raises `CheckpointError` where the matrices of its
    layers have several forms, one of which is such."""
    layers, ends, parts = set[Form](), set[Form](), _parts(model)
    for part in parts:
        found = ends if part.name == OUTSIDE else layers
        found |= {matrix.form for matrix in file.packed_of(part.name).values()}
    if not any(isinstance(form, Scheme) for form in layers | ends):
        return None
    if len(layers) != 1 or len(ends) > 1:
        names = {matrix.form_name for part in parts for matrix in file.packed_of(part.name).values()}
        raise CheckpointError(
            f"{file.root}: rows of codes are for all matrices of the layers, not beside others: {sorted(names)}"
        )
    return Packing(layers=layers.pop(), ends=ends.pop() if ends else None)


def saved_blocks(
    file: OrbaxFile,
    model: ModelConfig,
    num_shards: int,
    divided: Collection[str],
    on_device: Callable[[BlockForm, int], BlockForm],
) -> tuple[list[Forms], Forms, set[Cut]]:
    """As `checkpoints.mapping.stored_forms.stored_forms` finds them in other files. Rows of FP8 codes are one block
    each."""
    layers, ends, cut = list[Forms](), Forms(), set[Cut]()
    for part in _parts(model):
        own = ends if part.name == OUTSIDE else Forms()
        for leaf, matrix in file.packed_of(part.name).items():
            num_in = matrix.shape[-1]
            saved = form_of_fp8_rows(num_in) if isinstance(matrix.form, Scheme) else matrix.form
            forms = tuple(on_device(form, num_in) for form in (saved if isinstance(saved, tuple) else (saved,)))
            is_divided = part.leaves.get(leaf) in divided
            lost = {(leaf, form.name) for form in forms if is_divided and num_in % (form.block_len * num_shards)}
            cut |= lost
            if not lost:
                own[leaf] = forms if isinstance(saved, tuple) else forms[0]
        if part.name != OUTSIDE:
            layers.append(own)
    return layers, ends, cut


def _parts(model: ModelConfig) -> tuple[Part, ...]:
    paths = matrices(declare(model, ONE, jnp.float32))
    return parts_of(paths, dims(model, ONE).layer_slots)
