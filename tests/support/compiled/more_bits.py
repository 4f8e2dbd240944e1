"""Which layers of a GGUF file of Q4_K_M have more bits."""


def have_more_bits(num_layers: int) -> list[bool]:
    """By layer (`use_more_bits` in llama.cpp's llama-quant.cpp)."""
    eighth, last = num_layers // 8, 7 * num_layers // 8
    return [i < eighth or i >= last or (i - eighth) % 3 == 2 for i in range(num_layers)]
