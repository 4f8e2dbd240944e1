"""Makes small quantized weights and what the libraries that define their formats decode them to.

Run in an environment with requirements/quantized.txt and, without their dependencies, autoawq and auto-gptq:
    pip install -r requirements/quantized.txt && pip install --no-deps autoawq==0.2.9 auto-gptq==0.7.1
    PYTHONPATH=. python scripts/goldens/quantized.py
Writes tests/goldens/quantized/<name>/: config.json, model.safetensors, decoded.npy. Codes are random bits.
`gptq_v2.py` adds GPTQ's second version.
"""

import importlib.metadata
import importlib.util
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from bitsandbytes import functional as bnb
from compressed_tensors.compressors.base import BaseCompressor
from compressed_tensors.quantization import QuantizationScheme
from safetensors.torch import save_file
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

OUT = Path(__file__).parents[2] / "tests" / "goldens" / "quantized"
NUM_OUT, NUM_IN, GROUP = 32, 128, 32
GPTQ_PARTS = ("qweight", "qzeros", "scales", "g_idx")
Tensors = dict[str, torch.Tensor]
Golden = tuple[str, dict[str, Any], Tensors, torch.Tensor]


def words(*shape: int) -> torch.Tensor:
    return torch.randint(-(2**31), 2**31, shape, dtype=torch.int64).to(torch.int32)


def scales(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    return (0.01 + 0.01 * torch.rand(shape)).to(dtype)


def module_of(package: str, path: str) -> ModuleType:
    """One file of an installed package, whose other modules want libraries of their own."""
    (file,) = (f for f in importlib.metadata.files(package) or () if str(f).endswith(path))
    spec = importlib.util.spec_from_file_location(Path(path).stem, file.locate())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def zero_points(rows: int, columns: int, bits: int) -> torch.Tensor:
    """Words of zero points, of which none is the highest code: AutoGPTQ reads that one as 2^bits, others as 0."""
    found = np.zeros((rows, columns), np.uint32)
    for row in found:
        codes = torch.randint(0, 2**bits - 1, (columns * 32 // bits,)).tolist()
        number = sum(code << (bits * i) for i, code in enumerate(codes))
        row[:] = [number >> (32 * i) & (2**32 - 1) for i in range(columns)]
    return torch.from_numpy(found.view(np.int32))


def gptq() -> Iterator[Golden]:
    linear = module_of("auto-gptq", "qlinear/qlinear_cuda_old.py").QuantLinear
    for bits in (2, 3, 4, 8):
        found = linear(bits, GROUP, NUM_IN, NUM_OUT, bias=False, weight_dtype=torch.float32)
        found.qweight, found.scales = words(*found.qweight.shape), scales(*found.scales.shape).float()
        found.qzeros = zero_points(*found.qzeros.shape, bits)
        decoded = found.forward(torch.eye(NUM_IN)).T
        tensors = {name: getattr(found, name) for name in ("qweight", "qzeros", "scales")}
        yield f"gptq-{bits}", {"quant_method": "gptq", "bits": bits, "group_size": GROUP}, tensors, decoded


def gptq_any_order() -> Iterator[Golden]:
    """Inputs of a group are apart (act-order), as `g_idx` says."""
    found = module_of("auto-gptq", "qlinear/qlinear_cuda.py").QuantLinear(4, GROUP, NUM_IN, NUM_OUT, bias=False)
    found.qweight, found.scales = words(*found.qweight.shape), scales(*found.scales.shape).float()
    found.qzeros, found.g_idx = zero_points(*found.qzeros.shape, 4), groups_in_any_order()
    decoded = found.forward(torch.eye(NUM_IN)).T
    config = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True}
    yield "gptq-act-order", config, {name: getattr(found, name) for name in GPTQ_PARTS}, decoded


def groups_in_any_order() -> torch.Tensor:
    return (torch.randperm(NUM_IN) // GROUP).to(torch.int32)


def awq() -> Iterator[Golden]:
    decode = module_of("autoawq", "utils/packing_utils.py").dequantize_gemm
    tensors = {
        "qweight": words(NUM_IN, NUM_OUT // 8),
        "qzeros": words(NUM_IN // GROUP, NUM_OUT // 8),
        "scales": scales(NUM_IN // GROUP, NUM_OUT).float(),
    }
    decoded = decode(tensors["qweight"], tensors["qzeros"], tensors["scales"], 4, GROUP).T
    yield "awq", {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm"}, tensors, decoded


def compressed() -> Iterator[Golden]:
    group, channel = {"strategy": "group", "group_size": GROUP}, {"strategy": "channel"}
    nvfp4 = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    yield from compressed_cases({
        "int4-groups": ("pack-quantized", {"num_bits": 4, "type": "int", "symmetric": True} | group),
        "int4-zeros": ("pack-quantized", {"num_bits": 4, "type": "int", "symmetric": False} | group),
        "int8-packed": ("pack-quantized", {"num_bits": 8, "type": "int", "symmetric": True} | channel),
        "int8": ("int-quantized", {"num_bits": 8, "type": "int", "symmetric": True} | channel),
        "fp8": ("float-quantized", {"num_bits": 8, "type": "float", "symmetric": True} | channel),
        "nvfp4": ("nvfp4-pack-quantized", nvfp4),
        "mxfp4": ("mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32}),
    })  # fmt: skip


def compressed_cases(cases: dict[str, tuple[str, dict[str, Any]]]) -> Iterator[Golden]:
    """Of a format and a scheme each."""
    for name, (stored_as, weights) in cases.items():
        scheme = QuantizationScheme(targets=["Linear"], weights=weights)
        tensors = compressed_tensors_of(stored_as, weights)
        compressor = BaseCompressor.get_value_from_registry(stored_as)
        decoded = compressor.decompress(dict(tensors), scheme)["weight"]
        config = {"quant_method": "compressed-tensors", "format": stored_as}
        yield name, config | {"config_groups": {"group_0": {"weights": weights}}}, tensors, decoded


def compressed_tensors_of(stored_as: str, weights: dict[str, Any]) -> Tensors:
    by_group = NUM_OUT, NUM_IN // weights["group_size"] if "group_size" in weights else 1
    fp8 = torch.float8_e4m3fn
    if stored_as == "nvfp4-pack-quantized":
        packed = words(NUM_OUT, NUM_IN // 8).view(torch.uint8)
        overall = torch.tensor([4.0])  # with which the library's bfloat16 is exact
        return {
            "weight_packed": packed,
            "weight_scale": (1 + torch.rand(by_group)).to(fp8),
            "weight_global_scale": overall,
        }
    if stored_as == "mxfp4-pack-quantized":
        exponents = torch.randint(115, 130, by_group, dtype=torch.uint8)
        return {"weight_packed": words(NUM_OUT, NUM_IN // 8).view(torch.uint8), "weight_scale": exponents}
    size = (1,) if weights["strategy"] == "tensor" else by_group
    tensors = {"weight_scale": scales(*size, dtype=torch.float32)}
    if stored_as == "float-quantized":
        return tensors | {"weight": torch.randn(NUM_OUT, NUM_IN).to(fp8)}
    if stored_as == "int-quantized":
        return tensors | {"weight": torch.randint(-128, 128, (NUM_OUT, NUM_IN), dtype=torch.int8)}
    bits = weights["num_bits"]
    tensors |= {"weight_packed": words(NUM_OUT, NUM_IN * bits // 32), "weight_shape": torch.tensor([NUM_OUT, NUM_IN])}
    if not weights["symmetric"]:
        tensors["weight_zero_point"] = words(NUM_OUT * bits // 32, by_group[1])
    return tensors


def bitsandbytes() -> Iterator[Golden]:
    weight = torch.randn(NUM_OUT, NUM_IN)
    for kind in ("nf4", "fp4"):
        for is_nested in (False, True):
            codes, state = bnb.quantize_4bit(weight, blocksize=64, quant_type=kind, compress_statistics=is_nested)
            tensors = {"weight": codes} | {f"weight.{name}": x for name, x in state.as_dict(packed=True).items()}
            decoded = bnb.dequantize_4bit(codes, state)
            config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": kind}
            yield f"{kind}-nested" if is_nested else kind, config, tensors, decoded
    codes, factors, _ = bnb.int8_vectorwise_quant(weight)
    tensors = {"weight": codes, "SCB": factors, "weight_format": torch.tensor(0, dtype=torch.uint8)}
    decoded = bnb.int8_vectorwise_dequant(codes, factors)
    yield "bnb-int8", {"quant_method": "bitsandbytes", "load_in_8bit": True}, tensors, decoded


def fp8() -> Iterator[Golden]:
    """One scale for all; and the formats of transformers: scales of rows, of blocks and of all."""
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "tensor"}
    yield from compressed_cases({"fp8-tensor": ("float-quantized", weights)})
    codes = torch.randn(NUM_OUT, NUM_IN).to(torch.float8_e4m3fn)
    by_row = scales(NUM_OUT, 1, dtype=torch.float32)
    ones = torch.ones(NUM_IN, 1)
    # The product that transformers' layers call; activations are an exact identity.
    eye = torch.eye(NUM_IN).to(codes.dtype)
    decoded = torch._scaled_mm(eye, codes.T, scale_a=ones, scale_b=by_row.T.contiguous(), out_dtype=torch.float32).T
    yield "fp8-fbgemm", {"quant_method": "fbgemm_fp8"}, {"weight": codes, "weight_scale": by_row}, decoded
    for name, block in (("fp8-blocks", [16, 32]), ("fp8-one-scale", None)):
        shape = (NUM_OUT // block[0], NUM_IN // block[1]) if block else ()
        tensors = {"weight": codes, "weight_scale_inv": scales(*shape, dtype=torch.float32)}
        decoded = Fp8Dequantize(None)._dequantize_one(*tensors.values())
        yield name, {"quant_method": "fp8", "weight_block_size": block}, tensors, decoded


def main() -> None:
    torch.manual_seed(0)
    write(golden for make in (gptq, awq, compressed, bitsandbytes, gptq_any_order, fp8) for golden in make())


def write(goldens: Iterable[Golden]) -> None:
    """A folder for each."""
    for name, config, tensors, decoded in goldens:
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"quantization_config": config}, indent=1) + "\n")
        save_file({f"a.{part}": tensor.contiguous() for part, tensor in tensors.items()}, folder / "model.safetensors")
        np.save(folder / "decoded.npy", decoded.float().numpy())
        print(name, tuple(decoded.shape))


if __name__ == "__main__":
    main()
