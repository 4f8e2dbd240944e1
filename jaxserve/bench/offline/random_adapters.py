"""Host: `RandomAdapters`: adapters of random numbers as files, and which of them each request of a benchmark names."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from checkpoints.formats.safetensors_write import write_shard
from checkpoints.formats.tensor_file import TensorInfo
from jaxserve.bench.offline.workload import Workload
from jaxserve.core.options.lora_request import LoRARequest

if TYPE_CHECKING:
    from jaxserve.bench.offline.measure import Workloads

TARGETS = ("q", "k", "v", "o")  # the matrices of S-LoRA's benchmarks
SCALE = 0.01  # of the products, next to the model's: outputs stay finite


@dataclass(frozen=True, slots=True)
class RandomAdapters:
    """skew: the k-th adapter is drawn with a probability in proportion to 1 / k^skew (Zipf); 0: all equally often."""

    number: int
    rank: int
    skew: float
    seed: int

    def write(self, folder: Path, shapes: Mapping[str, tuple[int, int]], num_layers: int) -> list[LoRARequest]:
        """A folder for each, as PEFT writes it, in float16. shapes: (outputs, inputs) of a layer's matrices."""
        requests = [LoRARequest(f"adapter-{k}", str(folder / f"adapter-{k}")) for k in range(self.number)]
        for k, request in enumerate(requests):
            path = Path(request.lora_path)
            path.mkdir()
            names = [f"{name}_proj" for name in TARGETS]
            config = {"peft_type": "LORA", "r": self.rank, "lora_alpha": self.rank, "target_modules": names}
            (path / "adapter_config.json").write_text(json.dumps(config))
            rng = np.random.default_rng([self.seed, 2, k])
            tensors = _tensors(self.rank, shapes, num_layers)
            write_shard(path / "adapter_model.safetensors", tensors, partial(_drawn, rng))
        return requests

    def chosen(self, number: int, num_requests: int) -> np.ndarray:
        """int[num_requests]: the adapter of each request of a pass."""
        weights = np.arange(1, self.number + 1, dtype=np.float64) ** -self.skew
        rng = np.random.default_rng([self.seed, 3, number])
        return rng.choice(self.number, num_requests, p=weights / weights.sum())


@dataclass(frozen=True, slots=True)
class AdaptedWorkloads:
    """Workloads whose requests name adapters: `requests` by the numbers that `adapters` draws."""

    workloads: "Workloads"
    adapters: RandomAdapters
    requests: list[LoRARequest]

    def of_pass(self, number: int) -> Workload:
        workload = self.workloads.of_pass(number)
        chosen = self.adapters.chosen(number, len(workload.prompts)).tolist()
        return replace(workload, lora_requests=[self.requests[k] for k in chosen])


def _tensors(rank: int, shapes: Mapping[str, tuple[int, int]], num_layers: int) -> list[TensorInfo]:
    tensors: list[TensorInfo] = []
    for layer in range(num_layers):
        for name in TARGETS:
            num_out, num_in = shapes[name]
            module = f"base_model.model.model.layers.{layer}.self_attn.{name}_proj"
            tensors.append(TensorInfo(f"{module}.lora_A.weight", (rank, num_in), "F16", 2 * rank * num_in))
            tensors.append(TensorInfo(f"{module}.lora_B.weight", (num_out, rank), "F16", 2 * num_out * rank))
    return tensors


def _drawn(rng: np.random.Generator, info: TensorInfo) -> np.ndarray:
    """Neither matrix is 0: an adapter with b = 0, as training begins, would change nothing."""
    scale = SCALE if ".lora_B." in info.name else 1.0
    return (rng.standard_normal(info.shape, np.float32) * scale * info.shape[-1] ** -0.5).astype(np.float16)
