"""Wiring: what an engine's parts take of the devices' memory, before any of them is made."""

import os

from jax.sharding import Mesh

from jaxserve.core.config import EngineConfig
from jaxserve.engine.limits import Memory, step_limits
from jaxserve.models.config import ModelConfig
from jaxserve.models.params import Params, num_bytes, vocab_width
from jaxserve.runner.state import slot_bytes

# Float32 arrays of rows x vocabulary alive at once: logits, and what penalties, candidates and log-probabilities make.
LOGIT_COPIES = 6


def memory_of(config: EngineConfig, model: ModelConfig, mesh: Mesh, specs: Params) -> Memory:
    """Bytes over the whole mesh; what is not divided counts once a device."""
    platform = mesh.devices.flat[0].platform
    rows, tokens = step_limits(config, platform)
    width = vocab_width(model, mesh)
    logprobs = 4 * tokens * (2 + 2 * min(config.max_logprobs, model.vocab_size))
    return Memory(
        platform=platform,
        limit_bytes=_limit(mesh),
        weight_bytes=num_bytes(specs),
        state_bytes=slot_bytes(rows, width) * mesh.size,
        step_bytes=(LOGIT_COPIES * 4 * rows * width + 2 * logprobs) * mesh.size,
    )


def _limit(mesh: Mesh) -> int | None:
    """Bytes of all devices, None where they do not tell; on CPU the host's, however many devices share it."""
    device = mesh.devices.flat[0]
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = (device.memory_stats() or {}).get("bytes_limit")
    return None if limit is None else limit * mesh.size
