"""Wiring: `StoredBlocks`: the matrices of a model that have packed forms, layer by layer, and the model that runs them:
layers with other forms have stacks of their own."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp

from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.mapping.never_packed import NeverPacked
from checkpoints.mapping.stored_forms import Forms, stored_forms
from checkpoints.mapping.trees import matrices
from checkpoints.open_checkpoint import Checkpoint
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.engine.build.packing.orbax_forms import saved_blocks
from jaxserve.models.config.model_config import ModelConfig, Stack
from jaxserve.models.layer_loops import repeating_loops
from jaxserve.models.packing import Packing
from jaxserve.models.param_spec import decoded_spec
from jaxserve.models.params import declare
from jaxserve.runner.load_weights import TENSOR_NAMES, dims
from pallas_kernels.block_forms.block_form import BlockForm

ONE = abstract_mesh(1)


class StoredBlocks(NamedTuple):
    """layers: of each layer its forms, by the name of the leaf. ends: those of embedding and head. never: codes
    that no device keeps."""

    layers: list[Forms]
    ends: Forms
    never: set[NeverPacked]

    def apart(self, model: ModelConfig) -> tuple[ModelConfig, Packing]:
        """The model with a stack for each kind of layers and forms of their matrices, and the forms by path."""
        variants: dict[int, list[Forms]] = defaultdict(list)
        for stack, forms in zip(model.layer_stacks, self.layers, strict=True):
            if forms not in variants[stack]:
                variants[stack].append(forms)
        stacks, own, index = list[Stack](), Forms(), dict[tuple[int, int], int]()
        for number, stack in enumerate(model.stacks):
            for i, forms in enumerate(variants[number]):
                index[number, i] = len(stacks)
                stacks.append(stack if len(variants[number]) == 1 else replace(stack, name=f"{stack.name}_{i}"))
                own |= {f"layers/{stacks[-1].name}/{leaf}": form for leaf, form in forms.items()}
        layer_stacks = tuple(
            index[stack, variants[stack].index(forms)]
            for stack, forms in zip(model.layer_stacks, self.layers, strict=True)
        )
        divided = replace(model, stacks=tuple(stacks), layer_stacks=layer_stacks)
        return divided, Packing(own=tuple((own | self.ends).items()))

    def kept(self, apart: ModelConfig, packing: Packing) -> "StoredBlocks":
        """The forms that a packing of the divided model still has."""
        own = dict(packing.own)

        def kept(path: str, forms: Forms) -> Forms:
            found = {leaf: own.get(f"{path}{leaf}") for leaf in forms}
            return {leaf: form for leaf, form in found.items() if isinstance(form, BlockForm | tuple)}

        layers = zip(apart.layer_stacks, self.layers, strict=True)
        own_layers = [kept(f"layers/{apart.stacks[stack].name}/", forms) for stack, forms in layers]
        return self._replace(layers=own_layers, ends=kept("", self.ends))

    def repeating(self, model: ModelConfig, platform: str) -> "StoredBlocks":
        """On a GPU whose steps would choose among the layers' forms, without those that are not alike in all layers of
        a kind (`layer_loops.repeating_loops`)."""
        if platform != "gpu" or repeating_loops(self.apart(model)[0].layer_stacks):
            return self
        alike = [
            {leaf: form for leaf, form in forms.items() if self._are_alike(model, stack, leaf)}
            for stack, forms in zip(model.layer_stacks, self.layers, strict=True)
        ]
        return self._replace(layers=alike)

    def names_without(self, kept: "StoredBlocks") -> str:
        """Of the forms of matrices that are not among those that are kept."""
        pairs = zip([*self.layers, self.ends], [*kept.layers, kept.ends], strict=True)
        return Packing(own=tuple(item for forms, own in pairs for item in forms.items() if item[0] not in own)).name

    def _are_alike(self, model: ModelConfig, stack: int, leaf: str) -> bool:
        layers = zip(model.layer_stacks, self.layers, strict=True)
        return len({forms.get(leaf) for number, forms in layers if number == stack}) == 1


def stored_blocks(
    checkpoint: Checkpoint, model: ModelConfig, num_devices: int, on_device: Callable[[BlockForm, int], BlockForm]
) -> StoredBlocks:
    """Those of the file, in the form that devices have of each."""
    specs = {path: decoded_spec(leaf) for path, leaf in matrices(declare(model, ONE, jnp.float32)).items()}
    shapes = {path: spec.shape for path, spec in specs.items()}
    divided = {path for path, spec in specs.items() if spec.axes[-1] is not None}
    if isinstance(checkpoint.file, OrbaxFile):
        return StoredBlocks(*saved_blocks(checkpoint.file, model, num_devices, divided, on_device))
    rules = TENSOR_NAMES[model.family].rules(checkpoint.spelling, dims(model, ONE))
    arguments = rules, shapes, model.num_layers, num_devices, divided
    return StoredBlocks(*stored_forms(checkpoint.file, *arguments, on_device=on_device))
