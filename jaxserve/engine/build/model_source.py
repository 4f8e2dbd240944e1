"""Wiring: `ModelSource`, a model found by name: its configuration, its open files, its weights and their dtype."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import jax.numpy as jnp
from jax.sharding import Mesh

from checkpoints.formats.orbax_folder import OrbaxFile
from checkpoints.open_checkpoint import Checkpoint, open_checkpoint
from checkpoints.sources import SHORT_NAMES, ResolvedSource, resolve
from jaxserve.core.errors import ConfigError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.eagle_folder import EagleSource, open_eagle, random_eagle
from jaxserve.engine.build.medusa_folder import MedusaSource, open_medusa
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.families import registry
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.packing import DENSE, Packing
from jaxserve.models.params import Params, init_random
from jaxserve.runner.load_weights import load_params, read_config
from jaxserve.runner.orbax_io import restore_params
from jaxserve.text.folder_json import read_json


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model before its weights are read. folder: with the tokenizer's files. packing: `choose_packing` sets it."""

    model: ModelConfig
    checkpoint: Checkpoint | None  # None: random weights
    folder: Path | None
    packing: Packing = DENSE

    def params(
        self, mesh: Mesh, specs: Params, seed: int, progress: Callable[[int, int], None] | None = None
    ) -> Params:
        """The weights on a mesh, read or drawn from the seed.

        specs: as declared for the mesh. progress(done, total): called with bytes of the file.
        """
        if self.checkpoint is None:
            return init_random(specs, mesh, (seed ^ seed >> 32) & 0xFFFFFFFF)
        if isinstance(self.checkpoint.file, OrbaxFile):
            return restore_params(self.checkpoint.file, self.model, mesh, specs, progress)
        return load_params(self.checkpoint, self.model, mesh, specs, progress)


DraftSource = ModelSource | MedusaSource | EagleSource
OpenModel = Callable[[EngineConfig], AbstractContextManager[ModelSource]]


@contextmanager
def open_model(config: EngineConfig) -> Generator[ModelSource]:
    """Finds the model of `config`, fetches it if it is remote, and opens it; closed at the end of the block."""
    if config.load_format == "dummy":
        yield _dummy(config)
        return
    if is_only_shape(config.model):
        raise ConfigError(
            f"{config.model} names a shape without weights: give a path or a Hugging Face id, or load_format='dummy' "
            "for random weights",
            param="model",
        )
    source = _resolved(config)
    if config.load_format not in ("auto", source.format):
        message = f"load_format={config.load_format!r} but the weights are {source.format} ({source.weights.name})"
        raise ConfigError(message, "load_format")
    with open_checkpoint(source) as checkpoint:
        yield ModelSource(read_config(checkpoint), checkpoint, checkpoint.folder)


@contextmanager
def open_draft(config: EngineConfig, open_other: OpenModel = open_model) -> Generator[DraftSource | None]:
    """Opens the weights of the engine's proposer, if it has such. open_other: opens a draft model."""
    of_draft, speculation = draft_config(config), config.speculation
    method = None if speculation is None else speculation.parts[-1].method
    if of_draft is None:
        yield None
    elif method == "medusa":
        with open_medusa(of_draft.model) as heads:
            yield heads
    elif method == "eagle3" and config.load_format == "dummy":
        yield random_eagle(Path(of_draft.model).expanduser())
    elif method == "eagle3":
        with open_eagle(_resolved(of_draft)) as layer:
            yield layer
    else:
        with open_other(of_draft) as draft:
            yield draft


def draft_config(config: EngineConfig) -> EngineConfig | None:
    """The options that open the engine's draft model, if it has one: those of the model, with its name."""
    speculation = config.speculation
    if speculation is None or speculation.model is None:
        return None
    return replace(config, model=speculation.model, revision=None, speculative_config=None)


def _resolved(config: EngineConfig) -> ResolvedSource:
    cache_dir = Path(config.cache_dir) if config.cache_dir else None
    return resolve(config.model, cache_dir=cache_dir, revision=config.revision, token=config.hf_token)


def is_only_shape(name: str) -> bool:
    """Whether a name is that of a shape, without weights that could be fetched."""
    return name in SHAPES and name not in SHORT_NAMES


def choose_dtype(asked: str, declared: str | None) -> jnp.dtype:
    """`auto` is float32 where a config.json says so, otherwise bfloat16, also for float16 and GGUF.

    (On CPU too: a SmolLM2 step of 8 rows takes 38 ms in bfloat16, 97 in float32.)
    """
    if asked == "auto":
        asked = "float32" if declared == "float32" else "bfloat16"
    return jnp.dtype(asked)


def _dummy(config: EngineConfig) -> ModelSource:
    """The source of random weights: a named shape, or a folder's config.json; nothing is fetched."""
    for name in ("revision", "hf_token", "cache_dir"):
        if getattr(config, name) is not None:
            raise ConfigError(f"{name} has no effect with load_format='dummy', which downloads nothing", param=name)
    if config.model in SHAPES:
        return ModelSource(SHAPES[config.model], None, None)
    folder = Path(config.model).expanduser()
    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{config.model!r} is neither a folder with a config.json nor a shape; shapes: {', '.join(SHAPES)}",
            param="model",
        )
    return ModelSource(registry.from_hf(read_json(folder / "config.json")), None, folder)
