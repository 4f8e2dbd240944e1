"""`jaxserve plan` states the bytes of packed weights: those that the engine holds, and nearly those of the file."""

import json
from functools import partial

import pytest
from safetensors.numpy import load_file

from jaxserve import LLM
from jaxserve.cli import plan as verb
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.programs.slot_programs import set_masks
from tests.checkpoints.quantized_builder import awq, compressed_ints, gptq
from tests.end_to_end.packed import test_packed_blocks as blocks
from tests.end_to_end.packed import test_packed_groups as groups
from tests.support.tiny_engines import flags_of

GROUP_LEN = 128  # a zero point has a byte instead of 3 or 4 bits: 1.2 % of 3 bits, 5 % with groups of 16
MOST = 0.02
"""By which the planned bytes may be off those of the file's tensors."""


def ints(shape):
    return compressed_ints(4, is_packed=True, is_symmetric=True, num_groups=shape[1] // GROUP_LEN, shape=shape)


MAKERS = {
    "gptq": partial(gptq, 3, "gptq_v2", group_len=GROUP_LEN),
    "awq": partial(awq, group_len=GROUP_LEN),
    "compressed-tensors": ints,
}


@pytest.fixture(params=["gguf", *MAKERS])
def model(request, tmp_path):
    """(path, bytes of its tensors, options of engines)."""
    if request.param == "gguf":
        return *blocks.write_model(tmp_path / "mixed.gguf"), blocks.OPTIONS
    groups.write_model(tmp_path / "model", MAKERS[request.param])
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    stored = sum(tensor.nbytes for name, tensor in tensors.items() if not name.endswith(groups.CONSTANT))
    return tmp_path / "model", stored, groups.OPTIONS


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """The bytes of weights that the command states. One program stands for all, whose compilation takes seconds."""
    monkeypatch.setattr(Programs, "all", lambda programs, buckets: [set_masks(programs, 4)])

    def run(path, options):
        flags = flags_of({name: value for name, value in options.items() if name != "skip_tokenizer_init"})
        assert verb.run([str(path), "--quiet", "--json", str(tmp_path / "plan.json"), *flags]) == 0
        return json.loads((tmp_path / "plan.json").read_text())["memory"]["weight_bytes"]

    return run


def test_a_plan_states_the_bytes_of_the_file_and_of_the_engine(model, planned):
    path, stored, options = model
    found = planned(path, options | {"quantization": "packed"})
    assert found == device_bytes(LLM(str(path), quantization="packed", **options).parts.runner.params)
    assert abs(found / stored - 1) <= MOST
    assert planned(path, options | {"quantization": "dense"}) > 2 * stored, "decoded weights are far off"


def test_of_two_devices_each_has_half_of_the_codes(planned, tmp_path):
    groups.write_model(tmp_path / "model", groups.int4)
    options = groups.OPTIONS | {"quantization": "packed", "tensor_parallel_size": 2}
    found, llm = planned(tmp_path / "model", options), LLM(str(tmp_path / "model"), **options)
    assert found == device_bytes(llm.parts.runner.params)
    codes = device_bytes(groups.packed_leaves(llm))
    whole = device_bytes(groups.packed_leaves(LLM(str(tmp_path / "model"), quantization="packed", **groups.OPTIONS)))
    assert codes == whole / 2


def test_what_cannot_stay_packed_is_refused_by_name(planned, tmp_path):
    path, _ = blocks.write_model(tmp_path / "iq.gguf", [dict.fromkeys(blocks.SHAPES, "IQ4_NL")], embedding="IQ4_NL")
    with pytest.raises(ConfigError, match=r"quantization='packed' .*IQ4_NL: it has no packed form"):
        planned(path, blocks.OPTIONS | {"quantization": "packed"})
