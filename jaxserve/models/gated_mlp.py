"""Device: the MLP with a gate (GLU variants, arXiv 2002.05202): its parameters and its arithmetic."""

import jax
from jaxtyping import Array, Float

from jaxserve.core.hardware.mesh import AnyMesh, num_shards
from jaxserve.models.config.layer_kind import GatedMlp
from jaxserve.models.layer_adapters import NOTHING, Added
from jaxserve.models.linear import Linear, Weights
from jaxserve.models.param_spec import LayerSpecs


def declare(mlp: GatedMlp, d_model: int, of_layers: LayerSpecs) -> dict[str, object]:
    """gate_up [2, F, D]   down [D, F]"""
    return {
        "gate_up": of_layers.matrix("gate_up", 2, mlp.width, d_model, axes=(None, "mlp", None)),
        "down": of_layers.matrix("down", d_model, mlp.width, axes=(None, "mlp")),
    }


@jax.named_scope("mlp")
def apply(
    mlp: GatedMlp, mesh: AnyMesh, w: Weights, x: Float[Array, "T D"], added: Added = NOTHING
) -> Float[Array, "T D"]:
    """down(act(gate x) * up x)"""
    is_divided = num_shards(mesh, "mlp") > 1
    gate_up, down = added.get("gate_up"), added.get("down")
    hidden = Linear(w["gate_up"], None, mlp.activation, gate_up, divided_axis=1 if is_divided else None)(x)
    return Linear(w["down"], adapter=down, divided_axis=-1 if is_divided else None)(hidden)
