"""Wiring: new weights for a running engine, as from a training loop: same tree, same shapes, nothing compiled anew."""

from typing import Any

import jax
import numpy as np

from checkpoints.mapping.trees import by_path
from jaxserve.core.errors import RequestError
from jaxserve.engine.build.build import EngineParts

MAX_FAULTS = 8  # named in one message


def update_weights(parts: EngineParts, params: Any) -> None:
    """Serve all later requests with `params`: a tree like `parts.runner.params`, of device or numpy arrays.

    `jaxserve.models.params` names the leaves and their shapes. Nothing is cast: a leaf of another shape or dtype is
    refused by name, as are missing and unknown ones, before anything changes. Leaves are placed in the engine's
    shardings one by one and the old ones let go, so that one leaf's memory suffices beside the weights. Device arrays
    that already lie as needed are taken over without a copy: do not donate them afterwards.

    An interrupt, or a leaf that finds no memory, leaves the engine without weights: repeat the call.

    Raises RequestError, also while requests are under way: they would go on with KV of the old weights.
    """
    if parts.engine.has_work:
        raise RequestError("weights can be changed only while no request is under way: finish or abort them first")
    _check(params, parts.runner.targets)
    parts.engine.scheduler.reset_prefix_cache()
    parts.runner.swap_params(params)


def _check(new: Any, targets: Any) -> None:
    found, wanted = by_path(new), by_path(targets)
    faults = [f"{path} is missing" for path in wanted if path not in found]
    faults += [f"{path} is not one of this model's" for path in found if path not in wanted]
    for path in wanted:
        faults += _faults(path, found[path], wanted[path]) if path in found else []
    if not faults and jax.tree.structure(new) != jax.tree.structure(targets):
        faults.append(f"its containers are {jax.tree.structure(new)} instead of {jax.tree.structure(targets)}")
    if faults:
        more = f"; and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
        raise RequestError(f"these weights do not fit: {'; '.join(faults[:MAX_FAULTS])}{more}", "params")


def _faults(path: str, leaf: Any, wanted: jax.ShapeDtypeStruct) -> list[str]:
    if not isinstance(leaf, jax.Array | np.ndarray):
        return [f"{path} is {type(leaf).__name__}, not an array"]
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        return [f"{path} is deleted: it was donated to a computation"]
    if (leaf.shape, leaf.dtype) == (wanted.shape, wanted.dtype):
        return []
    return [f"{path} is {leaf.dtype}{list(leaf.shape)} instead of {wanted.dtype}{list(wanted.shape)}"]
