"""Host: `RandomAdapters`: adapters of random numbers as files, and which of them each request of a benchmark names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from checkpoints.adapters.low_rank import AdapterWeights, LowRank
from checkpoints.adapters.write_adapter import write_adapter
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
            rng = np.random.default_rng([self.seed, 2, k])
            keys = [(layer, name) for layer in range(num_layers) for name in TARGETS]
            weights = AdapterWeights({key: _drawn(rng, self.rank, *shapes[key[1]]) for key in keys})
            write_adapter(Path(request.lora_path), weights, dtype="F16")
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


def _drawn(rng: np.random.Generator, rank: int, num_outputs: int, num_inputs: int) -> LowRank:
    """Neither matrix is 0: an adapter with b = 0, as training begins, would change nothing."""

    def matrix(num_rows: int, num_columns: int, scale: float) -> np.ndarray:
        numbers = rng.standard_normal((num_rows, num_columns), np.float32)
        return numbers * np.float32(scale * num_columns**-0.5)

    return LowRank(matrix(rank, num_inputs, 1.0), matrix(num_outputs, rank, SCALE))
