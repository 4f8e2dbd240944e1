"""Wiring: `layer_matrices`: the tensors of a checkpoint that are matrices of the model's layers."""

from checkpoints.open_checkpoint import Checkpoint
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.runner.load_weights import TENSOR_NAMES, dims


def layer_matrices(checkpoint: Checkpoint, model: ModelConfig) -> frozenset[str]:
    """Their names; those of parts that the model leaves out, such as a vision tower, are not among them."""
    rules = TENSOR_NAMES[model.family].rules(checkpoint.spelling, dims(model, abstract_mesh(1)))
    stacked = [rule for rule in rules if rule.is_stacked]
    return frozenset(
        name
        for name, info in checkpoint.tensors.items()
        if len(info.shape) == 2 and any(rule.match(name) is not None for rule in stacked)
    )
