"""An adapter's matrices lie in pages where the layout says, of each device and layer its own."""

from collections.abc import Mapping

import numpy as np
import pytest

from checkpoints.adapters.low_rank import AdapterWeights, LowRank
from jaxserve.core.hardware.mesh import abstract_mesh
from jaxserve.engine.build.adapter_reading import device_parts, matrix_shapes
from jaxserve.lora.pack_adapter import PackTarget, pack_adapter
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.layer_adapters import adapter_sites
from pallas_kernels.lora_matmul.adapter_layout import RANKS, AdapterLayout
from tests.support.adapters.random_adapters import config_of, tiny

PAGE, WIDTH = 8, 128


def target_of(model: ModelConfig, num_devices: int) -> PackTarget:
    num_heads = max(model.num_kv_heads, num_devices)
    rows = num_heads // num_devices * PAGE
    layout = AdapterLayout(adapter_sites(model, abstract_mesh(num_devices)), rows, WIDTH, max_rank=20, num_places=2)
    groups = [start for start, _ in model.group_ranges]
    return PackTarget(
        layout=layout,
        layers=tuple((groups[row.kind] + row.group, row.index_in_group) for row in model.layer_table),
        num_groups=model.group_ranges[-1][1],
        layers_per_group=model.layers_per_group,
        page_shape=(num_heads, PAGE, WIDTH),
        dtype=np.dtype(np.float32),
        parts=tuple(device_parts(model, num_devices)),
    )


def unpacked(packed, target, layer, name, num_devices) -> list[tuple[np.ndarray, np.ndarray]]:
    """a and b of each device, read from the pages one number at a time."""
    group, index = target.layers[layer]
    site = next(s for s in target.layout.sites.values() if name in {part.name for part in s.parts})
    part = next(part for part in site.parts if part.name == name)
    heads = target.page_shape[0] // num_devices
    found = []
    for device in range(num_devices):
        a, b = [], []
        for block in range(len(packed.where)):
            pages = packed.where[block, group, site.pages] - 1
            rows = packed.content[index, pages, device * heads : (device + 1) * heads].reshape(-1, WIDTH)
            for numbers, first, size in ((a, part.first_a, part.num_inputs), (b, part.first_b, part.num_outputs)):
                numbers += [
                    [rows[first + i // WIDTH * RANKS + rank, i % WIDTH] for i in range(size)] for rank in range(RANKS)
                ]
        found.append((np.array(a), np.array(b).T))
    return found


def weights_of(shapes: Mapping[str, tuple[int, int]], rank: int, names: str, num_layers: int) -> AdapterWeights:
    rng = np.random.default_rng(0)

    def random(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    parts = [(layer, name) for layer in range(num_layers) for name in names.split()]
    return AdapterWeights({at: LowRank(random(rank, shapes[at[1]][1]), random(shapes[at[1]][0], rank)) for at in parts})


@pytest.mark.parametrize(("family", "num_devices"), [("llama3", 1), ("llama3", 2), ("gemma3", 4)])
def test_each_device_has_its_rows_and_columns(family, num_devices):
    model = config_of(tiny(family))
    target = target_of(model, num_devices)
    weights = weights_of(matrix_shapes(model), 20, "q v o gate down", model.num_layers)
    packed = pack_adapter(weights, target)
    for (layer, name), pair in weights.matrices.items():
        for device, (a, b) in enumerate(unpacked(packed, target, layer, name, num_devices)):
            part = target.parts[device][name]
            np.testing.assert_array_equal(a[:20], pair.a[:, part.inputs])
            np.testing.assert_array_equal(b[:, :20], pair.b[part.outputs])
            assert not a[20:].any()
            assert not b[:, 20:].any()


def test_sites_without_matrices_take_no_pages():
    model = config_of(tiny("llama3"))
    target = target_of(model, 1)
    shapes = matrix_shapes(model)
    packed = pack_adapter(weights_of(shapes, 4, "o", 1), target)
    assert packed.num_pages == target.layout.sites["o"].num_pages
    assert packed.num_pages < pack_adapter(weights_of(shapes, 4, "o down", 1), target).num_pages
    assert sorted(packed.where[packed.where > 0]) == list(range(1, packed.num_pages + 1))


def test_numbers_that_are_not_finite_are_refused():
    model = config_of(tiny("llama3"))
    weights = weights_of(matrix_shapes(model), 4, "o", 1)
    weights.matrices[0, "o"].b[0, 0] = np.inf
    with pytest.raises(ValueError, match="not finite in float32"):
        pack_adapter(weights, target_of(model, 1))
