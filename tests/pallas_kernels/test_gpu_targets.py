"""GPU targets have descriptions next to the code, with the properties that the kernels rely on."""

import re

import pytest

from pallas_kernels.dispatch import HOPPER
from pallas_kernels.gpu_targets import gpu_target, gpu_target_names


def field(text: str, name: str) -> str:
    found = re.search(rf'\b{name}: ("?)([^"\n]+?)\1(?=$| )', text, re.MULTILINE)
    assert found, name
    return found[2]


@pytest.mark.parametrize("name", gpu_target_names())
def test_a_description_names_its_model_and_its_limits(name):
    text = gpu_target(name)
    model, major = field(text, "name"), field(text, "major")
    assert name.upper() in model
    assert field(text, "device_description_str") == model
    assert field(text, "platform_version").startswith(f"Compute Capability {major}.")
    of_a_block, of_a_core = (int(field(text, f"shared_memory_per_{x}")) for x in ("block_optin", "core"))
    assert 160 * 1024 < of_a_block < of_a_core < 256 * 1024
    assert 1e12 < int(field(text, "memory_bandwidth")) < 1e13, "bytes a second"
    is_hopper = any(hopper in model for hopper in HOPPER)
    assert is_hopper == (major == "9"), "dispatch distinguishes the generations by these names"


def test_an_unknown_name_lists_the_known_ones():
    for name in ("v100", "../tuned/h200", ""):
        with pytest.raises(ValueError, match=r"GPU target '.*' is unknown; use one of a100, b200, h100, h200$"):
            gpu_target(name)
