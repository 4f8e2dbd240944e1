"""Products on the GPU benchmark: a faster kernel becomes an entry, a slower one loses it, a wrong one is not timed."""

import json

import jax.numpy as jnp
import pytest

from pallas_kernels import tuned_blocks
from pallas_kernels.matmul.workloads import Workload
from scripts.benchmarks.gpu import gpu_tables
from scripts.benchmarks.gpu.products import product_times
from scripts.benchmarks.gpu.task_list import Results
from scripts.benchmarks.kernels.measure_kernel import Sampling

DEVICE = "NVIDIA H200"
PRODUCT = Workload("product", 3, 64, 128, activation="silu")
SAMPLING = Sampling(seconds=0, count=1)


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """Measures with given times: of XLA, and of the kernel by the number of inputs that it multiplies at once."""
    file = tmp_path / "nvidia_h200" / "matmul.json"

    def times(xla_s: float, kernel_s: dict[int, float]) -> dict:
        def seconds_of(w, arguments, backend, block, sampling):
            return xla_s if backend == "xla" else kernel_s[block.inputs]

        monkeypatch.setattr(product_times, "seconds_of", seconds_of)
        record = product_times.measure(PRODUCT, SAMPLING, file, DEVICE)
        json.dumps(record)
        return record

    times.file = file
    return times


def test_the_fastest_sizes_are_kept_where_they_beat_xla(measure):
    record = measure(2e-5, {64: 1.5e-5, 128: 1e-5})
    assert record["is_faster"]
    assert [one["time_us"] for one in record["tried"]] == [15.0, 15.0, 10.0], "two splits of 64 inputs, one of 128"
    key = product_times.tuned_key(2, 64, 128, (jnp.bfloat16, jnp.bfloat16), product_times.spec_of(PRODUCT))
    assert tuned_blocks.tuned("matmul", DEVICE, key, measure.file.parents[1])["inputs"] == 128
    assert not measure(5e-6, {64: 1.5e-5, 128: 1e-5})["is_faster"]
    assert not measure.file.exists(), "an entry that is no longer true is dropped"


def test_a_wrong_kernel_is_never_timed(measure, monkeypatch):
    multiply = product_times.multiply

    def twice(arguments, *, backend, **changes):
        return multiply(arguments, backend="reference") * (2 if backend == "mosaic_gpu" else 1)

    monkeypatch.setattr(product_times, "multiply", twice)
    with pytest.raises(NotImplementedError, match=r"wrong by 1\.0e\+00"):
        measure(2e-5, {64: 1e-5, 128: 1e-5})
    assert not measure.file.exists()


def test_the_table_has_shares_of_the_copys_rate():
    block = {"columns": 64, "inputs": 128, "splits": 2}
    tried = [{"block": block, "time_us": 10.0, "problem": None, "is_fastest": True}]
    record = {
        "workload": "product",
        "weight_bytes": 4 * 10**7,
        "xla_us": 20.0,
        "is_faster": True,
        "is_used": True,
        "tried": tried,
    }
    results = Results()
    results.records = {"products": [record], "ceilings": [{"bytes_per_s": 4e12, "ops_per_s": 8e14}]}
    assert gpu_tables.products(results)[1] == ["product", "20.0", "50%", "10.0", "100%", "64", "128", "2", "mosaic_gpu"]
