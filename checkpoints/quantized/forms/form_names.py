"""Host: the names of `FORMS`, for help texts: those of the forms import NumPy."""

FORM_NAMES = (
    *("int8", "w8a8", "fp8", "int4-g32", "int4-g64", "int4-g128", "nf4"),
    *("awq-g32", "awq-g64", "awq-g128"),
    *("gptq-g32", "gptq-g64", "gptq-g128"),
)
GGUF_NAMES = ("q8_0", "q4_0")
"""Those of `write_blocks.BLOCK_TYPES`."""
