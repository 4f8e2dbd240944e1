"""Random adapters are what PEFT writes, change something, and are drawn as often as their skew says."""

import numpy as np
import pytest

from checkpoints.adapters.read_adapter import read_adapter
from jaxserve.bench.lengths import LengthRange
from jaxserve.bench.offline.random_adapters import TARGETS, AdaptedWorkloads, RandomAdapters
from jaxserve.bench.offline.workload import RandomWorkload

SHAPES = {"q": (24, 16), "k": (8, 16), "v": (8, 16), "o": (16, 24), "gate": (32, 16), "up": (32, 16), "down": (16, 32)}
LAYERS = 2


def written(folder, number=3, rank=4, seed=0):
    folder.mkdir()
    requests = RandomAdapters(number, rank, 0.0, seed).write(folder, SHAPES, LAYERS)
    return requests, [read_adapter(request.lora_path, SHAPES, LAYERS, rank) for request in requests]


def test_they_are_read_as_adapters_and_differ(tmp_path):
    requests, adapters = written(tmp_path / "a")
    assert len({request.lora_name for request in requests}) == 3
    for adapter in adapters:
        assert adapter.rank == 4
        assert set(adapter.matrices) == {(layer, name) for layer in range(LAYERS) for name in TARGETS}
        for (_, name), matrix in adapter.matrices.items():
            num_out, num_in = SHAPES[name]
            assert (matrix.a.shape, matrix.b.shape) == ((4, num_in), (num_out, 4))
            assert np.all(np.abs(matrix.b @ matrix.a).max(axis=1) > 0)
    first, second, _ = adapters
    assert not np.array_equal(first.matrices[0, "q"].a, second.matrices[0, "q"].a)


def test_a_seed_fixes_them(tmp_path):
    _, (first, *_) = written(tmp_path / "a")
    _, (again, *_) = written(tmp_path / "b")
    _, (other, *_) = written(tmp_path / "c", seed=1)
    assert np.array_equal(first.matrices[1, "o"].b, again.matrices[1, "o"].b)
    assert not np.array_equal(first.matrices[1, "o"].b, other.matrices[1, "o"].b)


@pytest.mark.parametrize("skew", [0.0, 1.0, 2.0])
def test_the_kth_is_drawn_in_proportion_to_its_rank_s_power(skew):
    adapters, count = RandomAdapters(20, 8, skew, 0), 50_000
    shares = np.bincount(adapters.chosen(1, count), minlength=20) / count
    weights = np.arange(1, 21) ** -skew
    expected = weights / weights.sum()
    assert np.all(np.abs(shares - expected) < 5 * np.sqrt(expected / count))
    assert not np.array_equal(adapters.chosen(1, 99), adapters.chosen(2, 99))
    assert np.array_equal(adapters.chosen(1, 99), adapters.chosen(1, 99))


def test_each_request_of_a_workload_has_one(tmp_path):
    requests, _ = written(tmp_path / "a")
    plain = RandomWorkload(50, LengthRange(1, 4), LengthRange(1, 4), vocab_size=9, seed=0)
    adapters = RandomAdapters(3, 4, 0.0, 0)
    workload = AdaptedWorkloads(plain, adapters, requests).of_pass(1)
    assert workload.prompts == plain.of_pass(1).prompts
    assert workload.lora_requests == [requests[k] for k in adapters.chosen(1, 50)]
    assert set(workload.lora_requests) == set(requests)
