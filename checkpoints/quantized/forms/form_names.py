"""Host: the names of `FORMS`, for help texts: those of the forms import NumPy."""

FORM_NAMES = (
    *("int8", "w8a8", "fp8", "int4-g32", "int4-g64", "int4-g128", "nf4"),
    *("awq-g32", "awq-g64", "awq-g128"),
    *("gptq-g32", "gptq-g64", "gptq-g128"),
)
CODED_NAMES = ("int4-g32", "int4-g64", "int4-g128", "nf4", "fp8")
"""Those that weights can have while they are loaded (`Coding`); int8 and w8a8 are `qtensor.SCHEMES`."""
GGUF_NAMES = ("q8_0", "q4_0")
"""Those of `write_blocks.BLOCK_TYPES`."""
