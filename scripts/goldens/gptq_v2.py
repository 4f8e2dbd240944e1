"""Makes small weights in the second version of GPTQ's files, whose zero points are stored as they are, and what
GPTQModel decodes them to.

Run in the environment of `quantized.py` and, without their dependencies, GPTQModel with what it imports:
    pip install --no-deps gptqmodel==7.7.0 pypcre device-smi tokenicer logbar defuser pillow
    PYTHONPATH=. python scripts/goldens/gptq_v2.py
Writes tests/goldens/quantized/gptq-v2-*.
"""

from collections.abc import Iterator

import torch
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.quantization import FORMAT

from scripts.goldens import quantized as goldens
from scripts.goldens.quantized import GROUP, NUM_IN, NUM_OUT, scales, words


def gptq_v2() -> Iterator[goldens.Golden]:
    for bits, is_ordered in ((2, False), (3, True), (4, False), (4, True), (8, True)):
        found = TorchLinear(
            bits, GROUP, sym=False, desc_act=is_ordered, in_features=NUM_IN, out_features=NUM_OUT, format=FORMAT.GPTQ_V2
        )
        found.qweight, found.qzeros = words(*found.qweight.shape), words(*found.qzeros.shape)
        found.scales = scales(*found.scales.shape).float()
        if is_ordered:
            found.g_idx = goldens.groups_in_any_order()
        found.post_init()
        tensors = {name: getattr(found, name) for name in goldens.GPTQ_PARTS}
        config = {"quant_method": "gptq", "checkpoint_format": "gptq_v2", "bits": bits, "group_size": GROUP}
        name = f"gptq-v2-{bits}{'-act-order' if is_ordered else ''}"
        yield name, config | {"desc_act": is_ordered}, tensors, found.dequantize_weight().T


if __name__ == "__main__":
    torch.manual_seed(0)
    goldens.write(gptq_v2())
