"""Wiring: what a step of a model costs one device, in bytes and operations, for `core.hardware.roofline`."""

from jaxserve.analysis.sharded_sizes import read_bytes, weight_shares
from jaxserve.core.hardware.mesh import num_shards
from jaxserve.core.hardware.roofline import LayerCosts, ModelCosts
from jaxserve.models.packing import DENSE
from jaxserve.models.params import vocab_width
from jaxserve.runner.programs.programs import Programs

MATRICES = ("qkv", "o", "gate_up", "down")


def model_costs(programs: Programs) -> ModelCosts:
    """The costs of an engine's model: every matrix of a layer multiplies each token once, the head the sampled rows
    alone; norms and rotary embeddings are left out."""
    settings, layout = programs.settings.model, programs.layout
    model, mesh = settings.config, settings.mesh
    size = num_shards(mesh, "heads")
    weights = weight_shares(model, mesh, settings.dtype, settings.packing)
    dense = weight_shares(model, mesh, settings.dtype, DENSE)
    matrix_bytes = sum(num_bytes for path, num_bytes in dense.items() if path.rpartition("/")[2] in MATRICES)
    # Devices that multiply codes of 8 bits at all do so at twice the rate of bfloat16, which counts here.
    operations = 1 if settings.packing.has_coded_inputs else 2
    of_head = 1 if settings.packing.head_has_coded_inputs else 2
    position_bytes = layout.page_bytes // (layout.layers_per_group * layout.page_size * size)
    layers = tuple(
        LayerCosts(
            window=kind.attention.window,
            position_bytes=position_bytes * model.layer_kinds.count(i),
            pair_operations=4 * kind.attention.num_heads // size * kind.attention.head_dim * model.layer_kinds.count(i),
        )
        for i, kind in enumerate(model.kinds)
    )
    return ModelCosts(
        weight_bytes=read_bytes(model, weights),
        token_operations=operations * matrix_bytes // settings.dtype.itemsize,
        row_operations=of_head * vocab_width(model, mesh) // size * model.d_model,
        layers=layers,
    )
