"""Wiring: memory accounting: what an engine's weights, slots and steps take of the devices, before any is allocated."""

from typing import Any

from jax.sharding import Mesh

from jaxserve.core.buckets import MAX_HEADS
from jaxserve.core.hardware.host_memory import host_memory_bytes
from jaxserve.core.hardware.mesh import AnyMesh, num_shards
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.engine_sizes import max_rows_and_tokens
from jaxserve.engine.build.kv_pool_size import MemoryBudget
from jaxserve.engine.build.model_source import choose_dtype
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.params import Params, num_bytes, vocab_width
from jaxserve.runner.device_state import SlotSizes, slot_bytes
from jaxserve.runner.programs.slot_programs import FORK_PAGES

# Float32 arrays of rows x vocabulary alive at once: logits, and what penalties, candidates and log-probabilities make.
LOGIT_COPIES = 6


def memory_budget(
    config: EngineConfig, model: ModelConfig, mesh: Mesh, specs: Params, *, page_bytes: int, limit_bytes: int | None
) -> MemoryBudget:
    """The budget of an engine; what is not divided over the mesh counts once for each device.

    specs: the declared parameters. limit_bytes: memory of one device, None where it is not known.
    """
    platform = mesh.devices.flat[0].platform
    state_bytes, step_bytes = scratch_bytes(config, platform, model, mesh)
    return MemoryBudget(
        platform=platform,
        limit_bytes=None if limit_bytes is None else limit_bytes * mesh.size,
        weight_bytes=num_bytes(specs),
        state_bytes=state_bytes * mesh.size,
        # All copies of pages are read before any is written, and a fork's may weigh more than a step's logits. XLA on
        # CPU holds them twice.
        step_bytes=max(step_bytes * mesh.size, (1 + (platform == "cpu")) * FORK_PAGES * page_bytes),
    )


def scratch_bytes(config: EngineConfig, platform: str, model: ModelConfig, mesh: AnyMesh) -> tuple[int, int]:
    """Bytes on each device other than weights and pool: of the slots, and of the temporaries of the largest step."""
    rows, tokens = max_rows_and_tokens(config, platform)
    width = vocab_width(model, mesh)
    history_len = 0 if config.speculation is None else config.max_model_len or model.max_position
    dtype = choose_dtype(config.dtype, model.dtype)
    num_earlier = 0 if config.speculation is None else config.speculation.num_earlier_tokens
    num_masks = 0 if config.speculation is None else MAX_HEADS  # at most
    sizes = SlotSizes(
        rows, width, model.d_model, dtype, history_len, num_earlier_tokens=num_earlier, num_draft_masks=num_masks
    )
    own_slot_bytes = slot_bytes(sizes)
    logprobs = 4 * tokens * (2 + 2 * config.most_logprobs(model.vocab_size))
    if config.speculation is not None:
        rows = max(rows, min(rows * (1 + config.speculation.num_speculative_tokens), MAX_HEADS))
    own_rows = -(-rows // num_shards(mesh, "rows"))  # a device draws for its share of the rows
    return own_slot_bytes, LOGIT_COPIES * 4 * own_rows * width + 2 * logprobs


def limit_on(mesh: Mesh) -> int | None:
    """Bytes that JAX may use on each device of a mesh, an equal share of the host's on CPU; None where not reported."""
    limit_bytes = device_limit(mesh.devices.flat[0])
    is_shared = mesh.devices.flat[0].platform == "cpu"
    return limit_bytes // mesh.size if limit_bytes is not None and is_shared else limit_bytes


def device_limit(device: Any) -> int | None:
    """Bytes that JAX may use on a device, None where it does not report them; on CPU all of the host's memory."""
    if device.platform == "cpu":
        return host_memory_bytes()
    stats: dict[str, int] = device.memory_stats() or {}
    return stats.get("bytes_limit")
