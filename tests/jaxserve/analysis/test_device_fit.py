"""The fit of a model is arithmetic: from bytes to positions and sequences."""

import pytest

from jaxserve.analysis.device_fit import ContextRange, DeviceShare, fit
from jaxserve.core.hardware.device_specs import DEVICES, NAMES_BY_DEVICE_KIND, DeviceType, device_type
from jaxserve.core.kv_groups import KVGroups

SHARE = DeviceShare(num_devices=2, weight_bytes=400, read_bytes=300, page_bytes=10, scratch_bytes=40)
PLAIN = KVGroups((None,), 16)
ANY = ContextRange(shortest=1, longest=10_000, chunk=16)


def test_memory_goes_to_weights_scratch_and_pages_and_the_rest_is_left():
    found = fit(DeviceType("a", 1000, 100), SHARE, PLAIN, (32, 160), ANY, memory_utilization=0.9)
    assert found.kv_bytes == 900 - 400 - 40
    assert found.sequences == {32: 45 // 2, 160: 45 // 10}  # 46 pages, one of them scratch
    assert (found.num_pages, found.kv_tokens, found.max_model_len) == (45, 45 * 16, 45 * 16)
    assert found.step_floor_s == 3.0


def test_a_window_frees_pages():
    windowed = KVGroups((16, None), 16)
    found = fit(DeviceType("a", 1000, None), SHARE, windowed, (160,), ANY, memory_utilization=0.9)
    assert found.sequences == {160: 45 // (1 + 10)}
    assert found.step_floor_s is None


def test_the_context_is_the_longest_that_the_pages_hold():
    """A context of 200 tokens shrinks to the pages that fit; one that was asked for must fit."""
    device, options = DeviceType("a", 560, 100), {"memory_utilization": 1.0}  # 12 pages, one of them scratch
    for contexts, context in (((1, 200, 16), 176), ((1, 100, 16), 100), ((176, 176, 16), 176), ((177, 177, 16), 0)):
        found = fit(device, SHARE, PLAIN, (64,), ContextRange(*contexts), **options)
        assert (found.num_pages, found.max_model_len, found.does_fit) == (11, context, context > 0)


@pytest.mark.parametrize("memory_bytes", [100, 450, 470])
def test_where_weights_leave_no_room_nothing_fits(memory_bytes):
    found = fit(
        DeviceType("a", memory_bytes, 100), SHARE, PLAIN, (64,), ContextRange(64, 64, 16), memory_utilization=1.0
    )
    assert found.kv_bytes == memory_bytes - 440
    assert not found.does_fit
    assert found.sequences == {64: 0}


def test_a_pool_may_be_bounded():
    found = fit(DeviceType("a", 1000, 100), SHARE, PLAIN, (16,), ANY, memory_utilization=1.0, max_kv_bytes=110)
    assert (found.kv_bytes, found.num_pages, found.kv_tokens) == (110, 10, 160)


def test_of_a_gpu_jax_takes_three_quarters_and_of_a_tpu_all():
    for device in DEVICES:
        share = 1 if device.name.startswith("TPU") else 0.75
        assert device.usable_bytes == device.memory_bytes * share, device.name


def test_only_the_memory_that_jax_takes_is_used():
    device = DeviceType("a", 1000, 100, memory_share=0.75)
    found = fit(device, SHARE, PLAIN, (16,), ANY, memory_utilization=0.8)
    assert (found.memory_bytes, found.kv_bytes) == (750, 600 - 440)


def test_the_table_of_devices_is_whole():
    names = [device.name for device in DEVICES]
    assert len(set(names)) == len(names)
    assert set(NAMES_BY_DEVICE_KIND.values()) <= set(names)
    for device in DEVICES:
        assert device.bandwidth_bytes_s is not None
        assert 5 < device.memory_bytes / device.bandwidth_bytes_s * 1e3 < 100, f"{device.name}: ms to read its memory"
    h200 = device_type("NVIDIA H200")
    assert h200 is not None
    assert h200.bandwidth_bytes_s == 4_800 * 10**9
    assert device_type("cpu") is None
