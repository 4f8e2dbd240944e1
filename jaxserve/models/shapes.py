"""Host: named shapes of well-known models, for random weights (`load_format="dummy"`) and for planning."""

from jaxserve.models.config import LayerKind, ModelConfig, Rope, llama3_factors


def _dense(num_layers: int, d_model: int, d_mlp: int, heads: tuple[int, int, int], vocab_size: int, **more) -> dict:
    num_heads, num_kv_heads, head_dim = heads
    return {
        "num_layers": num_layers,
        "d_model": d_model,
        "d_mlp": d_mlp,
        "num_heads": num_heads,
        "num_kv_heads": num_kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocab_size,
        "dtype": "bfloat16",
        **more,
    }


def _llama(rope: Rope, max_position: int, **sizes) -> ModelConfig:
    kinds = (LayerKind("global", rope),)
    layer_kinds = (0,) * sizes["num_layers"]
    return ModelConfig(
        family="llama", kinds=kinds, layer_kinds=layer_kinds, norm_eps=1e-5, max_position=max_position, **sizes
    )


def _qwen3(**sizes) -> ModelConfig:
    return _llama(Rope(1e6), 40_960, has_qk_norm=True, **sizes)


def _gemma3(num_layers: int, window: int, **sizes) -> ModelConfig:
    kinds = (LayerKind("local", Rope(1e4), window), LayerKind("global", Rope(1e6)))
    return ModelConfig(
        family="gemma3",
        kinds=kinds,
        layer_kinds=tuple(int((i + 1) % 6 == 0) for i in range(num_layers)),
        num_layers=num_layers,
        max_position=32_768,
        is_tied=True,
        activation="gelu_tanh",
        embed_scale=sizes["d_model"] ** 0.5,
        has_qk_norm=True,
        has_post_norms=True,
        **sizes,
    )


_LLAMA31 = Rope(5e5, llama3_factors(5e5, 128, 8.0, 1.0, 4.0, 8192))
_LLAMA32 = Rope(5e5, llama3_factors(5e5, 64, 32.0, 1.0, 4.0, 8192))


SHAPES: dict[str, ModelConfig] = {
    "smollm2-135m": _llama(Rope(1e5), 8192, **_dense(30, 576, 1536, (9, 3, 64), 49_152, is_tied=True)),
    "llama-2-7b": _llama(Rope(1e4), 4096, **_dense(32, 4096, 11_008, (32, 32, 128), 32_000)),
    "llama-3-8b": _llama(Rope(5e5), 8192, **_dense(32, 4096, 14_336, (32, 8, 128), 128_256)),
    "llama-3-70b": _llama(Rope(5e5), 8192, **_dense(80, 8192, 28_672, (64, 8, 128), 128_256)),
    "llama-3.1-8b": _llama(_LLAMA31, 131_072, **_dense(32, 4096, 14_336, (32, 8, 128), 128_256)),
    "llama-3.1-70b": _llama(_LLAMA31, 131_072, **_dense(80, 8192, 28_672, (64, 8, 128), 128_256)),
    "llama-3.2-1b": _llama(_LLAMA32, 131_072, **_dense(16, 2048, 8192, (32, 8, 64), 128_256, is_tied=True)),
    "qwen3-0.6b": _qwen3(**_dense(28, 1024, 3072, (16, 8, 128), 151_936, is_tied=True)),
    "qwen3-8b": _qwen3(**_dense(36, 4096, 12_288, (32, 8, 128), 151_936)),
    "qwen3-32b": _qwen3(**_dense(64, 5120, 25_600, (64, 8, 128), 151_936)),
    "gemma-3-270m": _gemma3(window=512, **_dense(18, 640, 2048, (4, 1, 256), 262_144)),
    "gemma-3-1b": _gemma3(window=512, **_dense(26, 1152, 6912, (4, 1, 256), 262_144)),
}
