"""Wiring: the weights of a running engine: replaced, as by a training loop, without compiling anew, and saved."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.orbax_folder import FOLDER
from checkpoints.mapping.trees import by_path, is_tuple, leaf_dtype, matrices, stacked_shape
from jaxserve.core.errors import RequestError
from jaxserve.engine.build.build import EngineParts
from jaxserve.engine.build.hf_files import CONFIG, export_text, exported_config
from jaxserve.runner.orbax_io import save_params
from pallas_kernels.block_tensor import BlockTensor, RowParts
from pallas_kernels.qtensor import QTensor

MAX_FAULTS = 8  # named in one message

_tree: Any = jax.tree  # whose structures have no types


def update_weights(parts: EngineParts, params: Any) -> None:
    """Serve all later requests with `params`: a tree like `parts.runner.params`, of device or numpy arrays.

    `jaxserve.models.params` names the leaves and their shapes; for a tuple of arrays, one per layer, these may also be
    stacked in one array. Nothing is cast or coded: a matrix of another form, or a leaf of another shape or dtype, is
    refused by name, as are missing and unknown ones, before anything changes. Leaves are placed in the engine's
    shardings one by one, each old one released before, so that one leaf's memory suffices in addition to the weights.
    Device arrays that already lie as needed are used without a copy: do not donate them afterwards.

    An interrupt, or a leaf that finds no memory, leaves the engine without weights: repeat the call.

    Raises RequestError, also while requests are under way: they would go on with KV of the old weights.
    """
    if parts.engine.has_work:
        raise RequestError("weights can be changed only while no request is under way: finish or abort them first")
    _check(params, parts.runner.targets)
    parts.engine.scheduler.reset_prefix_cache()
    parts.runner.swap_params(_arrays(params, parts.runner.targets))


def save_model(parts: EngineParts, folder: Path) -> None:
    """Writes `parts.runner.params` in the Orbax form, packed ones with their codes, with configuration and tokenizer;
    `LLM(folder)` loads it on any mesh. Raises CheckpointError unless the folder is empty or does not exist.
    """
    settings = parts.runner.settings.model
    make_new_folder(folder)
    write_json(folder / CONFIG, exported_config(parts.described, jnp.dtype(settings.dtype).name))
    if parts.tokenizer is not None:
        export_text(folder, parts.tokenizer, parts.text.chat_template)
    save_params(folder / FOLDER, parts.runner.params, parts.model, settings.mesh)


def make_new_folder(folder: Path) -> None:
    """Makes the folder. Raises CheckpointError if something is in it."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise CheckpointError(f"{folder} is not empty; name another folder")


def _check(new: Any, targets: Any) -> None:
    """Raises RequestError naming the matrices and leaves of `new` that do not fit the targets."""
    faults = _form_faults(new, targets) or _leaf_faults(new, targets)
    structure, expected = (_tree.structure(tree, is_leaf=is_tuple) for tree in (new, targets))
    if not faults and structure != expected:
        faults.append(f"its containers are {structure} instead of {expected}")
    if faults:
        more = f"; and {len(faults) - MAX_FAULTS} more" if len(faults) > MAX_FAULTS else ""
        raise RequestError(f"these weights do not fit: {'; '.join(faults[:MAX_FAULTS])}{more}", "params")


def _form_faults(new: Any, targets: Any) -> list[str]:
    """Of matrices that are packed in another way; those of another form have other leaves, too."""
    found, faults = matrices(new), list[str]()
    for path, wanted in matrices(targets).items():
        if path in found and (has := _form(found[path])) != (needs := _form(wanted)):
            own = _words(has) if _words(has) != _words(needs) else "of other blocks of this name"
            faults.append(f"{path} is {own} instead of {_words(needs)}")
    return faults


def _leaf_faults(new: Any, targets: Any) -> list[str]:
    found, wanted = by_path(new), by_path(targets)
    faults = [f"{path} is missing" for path in wanted if path not in found]
    faults += [f"{path} is not one of this model's" for path in found if path not in wanted]
    for path in wanted:
        faults += _faults(path, found[path], wanted[path]) if path in found else []
    return faults


def _arrays(params: Any, targets: Any) -> Iterator[Any]:
    """The arrays of `params`, in the order of those of `targets`, which they fit."""
    found = by_path(params)
    for path, target in by_path(targets).items():
        if is_tuple(target):
            yield from found[path]  # the layers of a tuple, or of a stack
        else:
            yield found[path]


def _faults(path: str, leaf: Any, wanted: Any) -> list[str]:
    """What is wrong with one leaf; wanted: its `jax.ShapeDtypeStruct`, or a tuple of such."""
    if is_tuple(wanted) and is_tuple(leaf):
        if len(leaf) != len(wanted):
            return [f"{path} has {len(leaf)} arrays instead of {len(wanted)}"]
        pairs = enumerate(zip(leaf, wanted, strict=True))
        return [fault for i, (array, struct) in pairs for fault in _faults(f"{path}/{i}", array, struct)]
    if not _is_array(leaf):
        return [f"{path} is {type(leaf).__name__}, not an array"]
    if isinstance(leaf, jax.Array) and leaf.is_deleted():
        return [f"{path} is deleted: it was donated to a computation"]
    shape, dtype = stacked_shape(wanted), leaf_dtype(wanted)
    if (leaf.shape, leaf.dtype) == (shape, dtype):
        return []
    return [f"{path} is {leaf.dtype}{list(leaf.shape)} instead of {dtype}{list(shape)}"]


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray)


def _form(leaf: Any) -> tuple[tuple[Any, str, bool], ...]:
    """Of each part of a matrix its form, the dtype of its values, and whether its inputs have an order of their own;
    () of a dense one."""
    if isinstance(leaf, QTensor):
        return ((leaf.scheme, leaf.dtype, False),)
    parts = leaf.parts if isinstance(leaf, RowParts) else (leaf,) if isinstance(leaf, BlockTensor) else ()
    return tuple((part.form, part.dtype, part.order is not None) for part in parts)


def _words(form: tuple[tuple[Any, str, bool], ...]) -> str:
    parts = [f"{own.name} ({dtype}{', in an order' if is_ordered else ''})" for own, dtype, is_ordered in form]
    return " + ".join(parts) or "dense"
