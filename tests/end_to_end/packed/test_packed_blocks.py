"""Blocks of a GGUF file stay packed: the device has the file's bytes, and tokens are those of the decoded weights."""

from dataclasses import replace

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType

from checkpoints.mapping.never_packed import CUT
from jaxserve import LLM, SamplingParams
from jaxserve.analysis.inspect_model import inspect_model
from jaxserve.core.errors import ConfigError
from jaxserve.core.hardware.mesh import device_bytes
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_source import open_model
from jaxserve.engine.build.packing import choose_packing
from jaxserve.engine.build.packing.block_products import DeviceKind
from jaxserve.engine.build.packing.choose_packing import with_packing
from jaxserve.engine.build.packing.packing_report import packing_text
from jaxserve.models.packing import DENSE
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import without_half_bits
from pallas_kernels.block_tensor import BlockTensor, RowParts
from tests.checkpoints import gguf_builder as build
from tests.pallas_kernels.block_forms.test_ggml_forms import blocks_of
from tests.support.compiled.more_bits import have_more_bits
from tests.support.drafting import always, counted

D, F, HEADS, KV_HEADS, H, VOCAB = 256, 512, 4, 2, 64, 384
SHAPES = {
    "attn_q": (HEADS * H, D), "attn_k": (KV_HEADS * H, D), "attn_v": (KV_HEADS * H, D), "attn_output": (D, HEADS * H),
    "ffn_gate": (F, D), "ffn_up": (F, D), "ffn_down": (D, F),
}  # fmt: skip
LAYERS = (
    dict.fromkeys(SHAPES, "Q4_1"),
    dict.fromkeys(SHAPES, "Q5_0") | {"attn_v": "Q8_0", "ffn_down": "Q6_K"},
    dict.fromkeys(SHAPES, "Q4_K") | {"attn_v": "Q6_K", "ffn_down": "Q5_K"},
    dict.fromkeys(SHAPES, "Q4_1"),
)
"""The types of the tensors; a mixture in rows and by layer, such as Q4_K_M is."""
FOR_TWO = (*LAYERS[:2], LAYERS[2] | {"attn_output": "Q4_1"}, LAYERS[3])
"""Of which each of two devices has whole blocks."""
PROMPTS = [np.random.default_rng(i).integers(3, VOCAB, 5 + 3 * i).tolist() for i in range(4)]
GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
CPU, TPU = DeviceKind("cpu"), DeviceKind("tpu", "TPU v6 lite")
H200, A100 = DeviceKind("gpu", "NVIDIA H200"), DeviceKind("gpu", "NVIDIA A100-SXM4-80GB")
OPTIONS = {
    "dtype": "float32",
    "max_model_len": 64,
    "max_num_seqs": 4,
    "max_num_batched_tokens": 32,
    "buckets": "4 32x4",
    "skip_tokenizer_init": True,
}


def write_model(path, layers=LAYERS, embedding="Q8_0", seed=0):
    rng = np.random.default_rng(seed)

    def tensor(name, shape, kind, number):
        raw = blocks_of("Q4_0" if kind == "IQ4_NL" else kind, shape, seed + number, scale=0.002)
        return build.Tensor(name, shape, int(GGMLQuantizationType[kind]), raw.tobytes())

    tensors = [
        build.pack("output_norm.weight", np.ones(D)),
        tensor("token_embd.weight", (VOCAB, D), embedding, 1),
    ]
    for i, kinds in enumerate(layers):
        tensors += [build.pack(f"blk.{i}.{name}.weight", rng.normal(1, 0.1, D)) for name in ("attn_norm", "ffn_norm")]
        tensors += [
            tensor(f"blk.{i}.{name}.weight", shape, kinds[name], 10 * i + j)
            for j, (name, shape) in enumerate(SHAPES.items(), 2)
        ]
    metadata = {
        "general.architecture": "llama",
        "llama.embedding_length": D,
        "llama.block_count": len(layers),
        "llama.feed_forward_length": F,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.context_length": 64,
        "llama.vocab_size": VOCAB,
    }
    return build.write(path, tensors, metadata), sum(len(tensor.data) for tensor in tensors)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """(path, bytes of its tensors)."""
    return write_model(tmp_path_factory.mktemp("blocks") / "mixed.gguf", FOR_TWO, seed=2)


def texts(path, quantization, **options):
    llm = LLM(str(path), quantization=quantization, **OPTIONS, **options)
    return answers(llm), llm


def answers(llm):
    return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY, use_tqdm=False)]


@pytest.fixture(scope="module")
def plain(model):
    """(texts of the decoded weights, their engine)."""
    tokens, llm = texts(model[0], "dense")
    assert llm.parts.runner.settings.model.packing.name == ""
    assert len({tuple(text) for text in tokens}) > 1, "texts depend on the prompt"
    return tokens, llm


def test_the_device_has_the_bytes_of_the_file(model):
    path, stored = model
    llm = LLM(str(path), quantization="packed", **OPTIONS)
    assert device_bytes(llm.parts.runner.params) == stored == llm.parts.spec.memory.weight_bytes
    stacks = llm.parts.runner.params["layers"]
    assert len(stacks) == 3, "the first and the last layer are alike"
    kinds = {(type(stack["qkv"]), type(stack["down"])) for stack in stacks.values()}
    assert kinds == {(BlockTensor, BlockTensor), (RowParts, BlockTensor)}


def test_tokens_are_those_of_the_decoded_weights(model, plain):
    options = {"tensor_parallel_size": 2, "num_pages": 9, "page_size": 8, "batch_invariant": True}
    found, llm = texts(model[0], "packed", **options)
    assert found == plain[0]
    assert llm.parts.runner.settings.model.packing.name == "Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0"


@pytest.mark.thorough
def test_drafts_change_no_token(model, plain):
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 1}
    options = OPTIONS | {"max_chunk_tokens": 7, "speculative_config": drafts}
    llm = always(LLM(str(model[0]), quantization="packed", **options))
    with counted(llm) as seen:
        assert answers(llm) == plain[0]
    assert np.sum(seen, axis=0)[1] > 0, "drafts are accepted"


def test_what_the_blocks_do_not_fit_is_dense(tmp_path):
    """Gate and up of two forms, and on two devices rows of an output projection that are divided within a block."""
    kinds = dict.fromkeys(SHAPES, "Q4_1") | {"ffn_gate": "Q4_0", "attn_output": "Q4_K", "ffn_down": "Q4_K"}
    path, _ = write_model(tmp_path / "gates.gguf", [kinds])
    _, packing = packing_of(path, CPU, "packed")
    assert {name.rpartition("/")[2] for name, _ in packing.own} == {"embed", "qkv", "o", "down"}
    assert packing.decoded == "Q4_0, Q4_1"
    assert packing.reasons == (("gate_up", "its parts have different forms"),)
    with pytest.raises(ConfigError, match=rf"over 2 devices \(o: {CUT}\): use fewer devices"):
        packing_of(path, CPU, "packed", tensor_parallel_size=2)
    assert not packing_of(path, CPU, tensor_parallel_size=2)[1].own


def kept(source, config, device, **changes):
    """The names of the forms that stay packed."""
    own = dict(with_packing(replace(config, **changes), source, device).packing.own)
    forms = [form for found in own.values() for form in (found if isinstance(found, tuple) else (found,))]
    return {without_half_bits(form).name for form in forms}


def test_blocks_stay_packed_where_they_are_multiplied_and_on_cpus_where_asked_for(model):
    config = EngineConfig.create(str(model[0]), quantization="packed")
    with open_model(config) as source:
        assert kept(source, config, CPU) == {"Q4_1", "Q4_K", "Q5_0", "Q5_K", "Q6_K", "Q8_0"}
        for device in (TPU, H200):
            assert kept(source, config, device, quantization="auto") == kept(source, config, device) != set()
        for device, changes, reason in (
            (CPU, {}, ""),
            (A100, {}, "for CPUs, TPUs and Hopper GPUs, not for NVIDIA A100"),
            (H200, {"dtype": "float32"}, "multiplied in bfloat16, not in float32"),
        ):
            by_default = with_packing(replace(config, quantization="auto", **changes), source, device).packing
            assert by_default == DENSE
            assert by_default.decoded == "Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0"
            assert reason in str(by_default.reasons)
            if device != CPU:
                with pytest.raises(ConfigError, match=reason):
                    kept(source, config, device, **changes)


def packing_of(path, device, quantization="auto", **options):
    """(the model that engines run, its packing)."""
    config = EngineConfig.create(str(path), quantization=quantization, dtype="bfloat16", **options)
    with open_model(config) as source:
        found = with_packing(config, source, device)
    return found.model, found.packing


@pytest.mark.thorough
def test_types_without_a_packed_form_are_named_and_decoded(tmp_path, caplog):
    """Of IQ4_NL, whose bytes are those of Q4_0 with a table of values, and of a file that has nothing else."""
    kinds = dict.fromkeys(SHAPES, "Q4_1")
    path, _ = write_model(tmp_path / "iq.gguf", [kinds | {"ffn_down": "IQ4_NL"}])
    _, packing = packing_of(path, CPU, "packed")
    assert {path.rpartition("/")[2] for path, _ in packing.own} == {"embed", "qkv", "o", "gate_up"}
    assert packing.decoded == "IQ4_NL"
    assert dict(packing.reasons) == {"IQ4_NL": "it has no packed form"}
    text = "with Q4_1, Q8_0 weights and others decoded from IQ4_NL (IQ4_NL: it has no packed form)"
    found, llm = texts(path, "packed")
    assert f"{path} is loaded {text}" in [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert f"float32 {text}, context 64" in llm._description()
    assert found == texts(path, "dense")[0]
    _, packing = packing_of(path, CPU)
    assert packing_text(packing) == (
        "with weights decoded from IQ4_NL, Q4_1, Q8_0 (all: faster than packed on CPUs; IQ4_NL: it has no packed form)"
    )
    path, _ = write_model(tmp_path / "only.gguf", [dict.fromkeys(SHAPES, "IQ4_NL")], embedding="IQ4_NL")
    assert packing_of(path, TPU)[1].decoded == "IQ4_NL"
    with pytest.raises(ConfigError, match=r"none that can stay so \(IQ4_NL: it has no packed form\): leave it out"):
        packing_of(path, TPU, "packed")


@pytest.mark.thorough
def test_mxfp4_stays_packed_where_it_is_multiplied(tmp_path):
    path, stored = write_model(tmp_path / "mx.gguf", [dict.fromkeys(SHAPES, "MXFP4")] * 2, embedding="MXFP4")
    found, llm = texts(path, "packed")
    assert found == texts(path, "dense")[0]
    assert len({tuple(text) for text in found}) > 1, "texts depend on the prompt"
    assert device_bytes(llm.parts.runner.params) == stored
    for device in (CPU, TPU, H200):
        own = dict(packing_of(path, device, "packed")[1].own)
        assert {path.rpartition("/")[2] for path in own} == {"embed", "qkv", "o", "gate_up", "down"}
        assert set(own.values()) == {GGML_FORMS["MXFP4"]}


def test_a_head_that_is_looked_up_stays_packed_on_tpus(tmp_path):
    path, _ = write_model(tmp_path / "m.gguf", [dict.fromkeys(SHAPES, "Q8_0")] * 2)
    with open_model(config := EngineConfig.create(str(path), quantization="packed")) as source:
        for count in (1, 2):
            packing = with_packing(replace(config, tensor_parallel_size=count), source, TPU).packing
            assert "embed" in dict(packing.own)
            assert "embed" not in dict(packing.reasons)


def test_a_gpu_chooses_among_no_layers(tmp_path):
    """Its steps run layers in an order that they know, such as that of Q4_K_M: what differs in no such order is
    decoded."""
    kinds = dict.fromkeys(SHAPES, "Q4_K")
    more = kinds | {"attn_v": "Q6_K", "ffn_down": "Q6_K"}
    layers = [more if has_more else kinds for has_more in have_more_bits(8)]
    path, _ = write_model(tmp_path / "mixed.gguf", layers)
    for device in (H200, TPU):
        model, packing = packing_of(path, device)
        assert {path.rpartition("/")[2] for path, _ in packing.own} == {"embed", "qkv", "o", "gate_up", "down"}
        assert (model.layer_stacks, packing.decoded) == ((0, 1, 1, 0, 1, 1, 0, 0), "")
    order = np.random.default_rng(0).integers(0, 4, 32)
    forms = ("Q4_K", "Q5_K", "Q6_K", "Q8_0")
    path, _ = write_model(tmp_path / "no_order.gguf", [kinds | {"ffn_down": forms[i]} for i in order])
    model, packing = packing_of(path, H200)
    assert {path.rpartition("/")[2] for path, _ in packing.own} == {"embed", "qkv", "o", "gate_up"}
    assert (len(model.stacks), packing.decoded) == (1, "Q4_K, Q5_K, Q6_K, Q8_0")
    assert "in no repeating order" in dict(packing.reasons)["down"]
    assert len(packing_of(path, TPU)[0].stacks) == 4
    path, _ = write_model(tmp_path / "all.gguf", [dict.fromkeys(SHAPES, forms[i]) for i in order])
    model, packing = packing_of(path, H200)
    assert (len(model.stacks), packing.own) == (1, ())
    with pytest.raises(ConfigError, match="all forms of the layers differ from layer to layer"):
        packing_of(path, H200, "packed")


@pytest.fixture
def as_in_files(monkeypatch):
    """Devices are to have blocks as files have them."""
    monkeypatch.setattr(choose_packing, "form_on", lambda *_: lambda form, *_: form)


@pytest.mark.usefixtures("as_in_files")
def test_layers_that_differ_in_what_is_decoded_share_a_stack(tmp_path):
    kinds = dict.fromkeys(SHAPES, "Q4_1")
    path, _ = write_model(tmp_path / "m.gguf", [kinds | {"ffn_down": "Q5_0"}, kinds | {"ffn_down": "Q5_1"}])
    model, packing = packing_of(path, H200)
    assert len(model.stacks) == 1
    assert "down" not in {path.rpartition("/")[2] for path, _ in packing.own}
    assert packing.decoded == "Q5_0, Q5_1"
    assert len(packing_of(path, CPU, "packed")[0].stacks) == 2


def test_inspection_shows_what_each_device_keeps(tmp_path):
    path, _ = write_model(tmp_path / "m.gguf", [dict.fromkeys(SHAPES, "Q4_1")] * 2)
    fits = inspect_model(EngineConfig.create(str(path)), None, num_devices=1).fits
    weights = {fit.device: fit.weight_bytes for fit in fits}
    assert weights["H200"] == weights["H100 80GB"] < 0.5 * weights["A100 80GB"]
    assert weights["TPU v6e"] < 0.7 * weights["A100 80GB"]
    fits = inspect_model(EngineConfig.create(str(path), quantization="packed"), None, num_devices=1).fits
    assert "A100 80GB" not in {fit.device for fit in fits}, "whose engines refuse it"


def test_a_gpu_keeps_the_blocks_that_its_kernel_serves(tmp_path):
    """Rows of which one of two GPUs has 128 inputs are decoded."""
    path, _ = write_model(tmp_path / "mixed.gguf")
    config = EngineConfig.create(str(path))
    with open_model(config) as source:
        for count in (1, 2):
            packing = with_packing(replace(config, tensor_parallel_size=count), source, H200).packing
            names = {path.rpartition("/")[2] for path, _ in packing.own}
            assert names == {"embed", "qkv", "gate_up", "down", *(["o"] if count == 1 else [])}
        assert kept(source, config, H200) == {"Q4_1", "Q4_K", "Q5_0", "Q5_K", "Q6_K", "Q8_0"}


@pytest.mark.usefixtures("as_in_files")
def test_blocks_that_a_gpu_does_not_serve_are_named(tmp_path):
    path, _ = write_model(tmp_path / "unserved.gguf", [dict.fromkeys(SHAPES, "Q5_0")], embedding="Q5_0")
    config = EngineConfig.create(str(path), quantization="packed")
    with open_model(config) as source, pytest.raises(ConfigError, match="Q5_0 has shorter groups or runs"):
        kept(source, config, H200)


def test_dense_weights_cannot_stay_packed(plain, tmp_path):
    plain[1].save(tmp_path / "dense")
    with pytest.raises(ConfigError, match="quantization='packed' keeps weights as the file has them"):
        LLM(str(tmp_path / "dense"), quantization="packed", **OPTIONS)
