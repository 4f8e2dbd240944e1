"""Host: the values of the option `quantization`, and what to do instead of others."""

from typing import Any

from checkpoints.quantized.forms.form_names import CODED_NAMES, FORM_NAMES, GGUF_NAMES

CODED_WHILE_LOADING = ("int8", "w8a8", *CODED_NAMES)
QUANTIZATIONS = ("auto", "packed", "dense", *CODED_WHILE_LOADING)
PACKING = ("packed", *CODED_WHILE_LOADING)
"""With which weights have fewer bits than those that they stand for."""
FILE_FORMATS = ("awq", "awq_marlin", "bitsandbytes", "compressed-tensors", "gguf", "gptq", "gptq_marlin")
"""vLLM's names of formats, which are found in the files here."""


def advice_on(value: Any) -> str:
    """What to do instead of a value that is refused; empty for a name that means nothing."""
    if value in FILE_FORMATS:
        return "; files of this format are read with 'auto', and with 'packed' also CPUs keep them as they are"
    if value in (*FORM_NAMES, *GGUF_NAMES):
        return "; `jaxserve quantize` writes this one: load what it has written"
    return ""
