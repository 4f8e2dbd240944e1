"""Wiring: what an engine's parts take of the devices' memory, before any of them is made."""

import os
from typing import Any

from jax.sharding import Mesh

from jaxserve.core.config import EngineConfig
from jaxserve.core.sharding import TENSOR, AnyMesh
from jaxserve.engine.limits import Memory, step_limits
from jaxserve.models.config import ModelConfig
from jaxserve.models.params import Params, num_bytes, vocab_width
from jaxserve.runner.state import slot_bytes

# Float32 arrays of rows x vocabulary alive at once: logits, and what penalties, candidates and log-probabilities make.
LOGIT_COPIES = 6


def memory_of(config: EngineConfig, model: ModelConfig, mesh: Mesh, specs: Params) -> Memory:
    """Bytes over the whole mesh; what is not divided counts once a device."""
    device = mesh.devices.flat[0]
    limit_bytes, num_memories = device_limit(device), 1 if device.platform == "cpu" else mesh.size
    state_bytes, step_bytes = scratch_bytes(config, device.platform, model, mesh)
    return Memory(
        platform=device.platform,
        limit_bytes=None if limit_bytes is None else limit_bytes * num_memories,
        weight_bytes=num_bytes(specs),
        state_bytes=state_bytes * mesh.size,
        step_bytes=step_bytes * mesh.size,
    )


def scratch_bytes(config: EngineConfig, platform: str, model: ModelConfig, mesh: AnyMesh) -> tuple[int, int]:
    """Bytes on each device beside weights and pool: of the slots, and of the temporaries of the largest step."""
    rows, tokens = step_limits(config, platform)
    width = vocab_width(model, mesh)
    logprobs = 4 * tokens * (2 + 2 * min(config.max_logprobs, model.vocab_size))
    own_rows = -(-rows // mesh.shape[TENSOR])  # a device draws for its share of the rows
    return slot_bytes(rows, width), LOGIT_COPIES * 4 * own_rows * width + 2 * logprobs


def device_limit(device: Any) -> int | None:
    """Bytes that JAX may use on a device, None where it does not tell; on CPU the host's, however many share them."""
    if device.platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return (device.memory_stats() or {}).get("bytes_limit")
