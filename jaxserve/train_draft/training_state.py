"""Device: `TrainingState`: what a training run needs to go on where it was interrupted, saved by Orbax."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from checkpoints.errors import CheckpointError
from checkpoints.formats.atomic_files import write_json
from checkpoints.formats.bounded_json import read_object
from checkpoints.formats.orbax_folder import load_part, remove_part, save_part
from jaxserve.core.errors import ConfigError

PART, KEY = "state", "state.json"
MAX_KEY_BYTES = 100_000


class TrainingState(NamedTuple):
    """weights: the trained ones. optimizer: its state. losses: float32[steps, depth], NaN of steps to come. num_done:
    int32[], steps so far."""

    weights: Any
    optimizer: Any
    losses: np.ndarray
    num_done: np.ndarray

    def save(self, folder: Path, key: Mapping[str, Any]) -> None:
        """key: what the run depends on."""
        save_part(folder, PART, _by_name(self))
        write_json(folder / KEY, key)

    def restored(self, folder: Path, key: Mapping[str, Any]) -> "TrainingState":
        """The state that is saved in a folder, or this one where none is. Raises ConfigError for one of another run."""
        if not (folder / KEY).exists():
            return self
        try:
            if (known := read_object(folder / KEY, MAX_KEY_BYTES)) != key:
                raise ConfigError(
                    f"{folder} has a training that was interrupted, with {known} instead of {dict(key)}: go on with "
                    f"its options, or delete {KEY} to begin again"
                )
            found = load_part(folder, PART, _by_name(self))
        except CheckpointError as error:
            raise ConfigError(f"{error}; delete {folder / KEY} to begin the training again") from error
        return jax.tree.unflatten(jax.tree.structure(self), [found[name] for name in _by_name(self)])


def forget_state(folder: Path) -> None:
    """Delete what is saved in a folder."""
    (folder / KEY).unlink(missing_ok=True)
    remove_part(folder, PART)


def _by_name(state: TrainingState) -> dict[str, Any]:
    leaves: list[Any] = jax.tree.leaves(state)
    return {f"leaf_{i}": leaf for i, leaf in enumerate(leaves)}
