"""Host: shapes of well-known models by name, for random weights (`load_format="dummy"`) and for planning."""

from dataclasses import replace
from typing import Any

from jaxserve.models.config.common_sizes import Sizes
from jaxserve.models.config.layer_types import uniform
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.config.rope import Rope
from jaxserve.models.config.rope_scaling import llama3_factors
from jaxserve.models.families import gemma2, gemma3
from jaxserve.models.families.gemma_common import Form


def _dense(
    num_layers: int, d_model: int, d_mlp: int, heads: tuple[int, int, int], vocab_size: int, *, is_tied: bool = False
) -> Sizes:
    return Sizes(vocab_size, num_layers, d_model, d_mlp, *heads, 0, 1e-5, is_tied, "bfloat16")


def _llama(
    rope: Rope, max_position: int, sizes: Sizes, family: str = "llama", window: int | None = None, **attention: Any
) -> ModelConfig:
    sizes = replace(sizes, max_position=max_position)
    return sizes.model(family, uniform(sizes.whole_kind(rope, **attention), window, sizes))


def _qwen2(sizes: Sizes) -> ModelConfig:
    return _llama(Rope(1e6), 32_768, replace(sizes, norm_eps=1e-6), "qwen2", has_bias=True)


def _qwen3(sizes: Sizes) -> ModelConfig:
    return _llama(Rope(1e6), 40_960, replace(sizes, norm_eps=1e-6), "qwen3", has_qk_norm=True)


def _gemma2(sizes: Sizes, query_scalar: float = 256.0) -> ModelConfig:
    sizes = replace(sizes, max_position=8192, norm_eps=1e-6, is_tied=True)
    form = Form(sizes, query_scalar, attention_softcap=50.0, final_softcap=30.0)
    types = gemma2.alternating(sizes.num_layers)
    return form.model("gemma2", types, Rope(1e4), Rope(1e4), 4096, has_qk_norm=False)


def _gemma3(sizes: Sizes) -> ModelConfig:
    sizes = replace(sizes, max_position=32_768, norm_eps=1e-6, is_tied=True)
    types = gemma3.layer_types_of(sizes.num_layers, gemma3.PATTERN)
    return Form(sizes, 256.0).model("gemma3", types, Rope(1e4), Rope(1e6), 512, has_qk_norm=True)


_LLAMA31 = Rope(5e5, llama3_factors(5e5, 128, 8.0, 1.0, 4.0, 8192))
_LLAMA32 = Rope(5e5, llama3_factors(5e5, 64, 32.0, 1.0, 4.0, 8192))


SHAPES: dict[str, ModelConfig] = {
    "smollm2-135m": _llama(Rope(1e5), 8192, _dense(30, 576, 1536, (9, 3, 64), 49_152, is_tied=True)),
    "llama-2-7b": _llama(Rope(1e4), 4096, _dense(32, 4096, 11_008, (32, 32, 128), 32_000)),
    "llama-3-8b": _llama(Rope(5e5), 8192, _dense(32, 4096, 14_336, (32, 8, 128), 128_256)),
    "llama-3-70b": _llama(Rope(5e5), 8192, _dense(80, 8192, 28_672, (64, 8, 128), 128_256)),
    "llama-3.1-8b": _llama(_LLAMA31, 131_072, _dense(32, 4096, 14_336, (32, 8, 128), 128_256)),
    "llama-3.1-70b": _llama(_LLAMA31, 131_072, _dense(80, 8192, 28_672, (64, 8, 128), 128_256)),
    "llama-3.2-1b": _llama(_LLAMA32, 131_072, _dense(16, 2048, 8192, (32, 8, 64), 128_256, is_tied=True)),
    "mistral-7b": _llama(Rope(1e4), 32_768, _dense(32, 4096, 14_336, (32, 8, 128), 32_000), "mistral", window=4096),
    "mistral-7b-v0.3": _llama(Rope(1e6), 32_768, _dense(32, 4096, 14_336, (32, 8, 128), 32_768), "mistral"),
    "mistral-nemo-12b": _llama(Rope(1e6), 131_072, _dense(40, 5120, 14_336, (32, 8, 128), 131_072), "mistral"),
    "qwen2.5-0.5b": _qwen2(_dense(24, 896, 4864, (14, 2, 64), 151_936, is_tied=True)),
    "qwen2.5-1.5b": _qwen2(_dense(28, 1536, 8960, (12, 2, 128), 151_936, is_tied=True)),
    "qwen2.5-7b": _qwen2(_dense(28, 3584, 18_944, (28, 4, 128), 152_064)),
    "qwen2.5-32b": _qwen2(_dense(64, 5120, 27_648, (40, 8, 128), 152_064)),
    "qwen2.5-72b": _qwen2(_dense(80, 8192, 29_568, (64, 8, 128), 152_064)),
    "qwen3-0.6b": _qwen3(_dense(28, 1024, 3072, (16, 8, 128), 151_936, is_tied=True)),
    "qwen3-4b": _qwen3(_dense(36, 2560, 9728, (32, 8, 128), 151_936, is_tied=True)),
    "qwen3-8b": _qwen3(_dense(36, 4096, 12_288, (32, 8, 128), 151_936)),
    "qwen3-32b": _qwen3(_dense(64, 5120, 25_600, (64, 8, 128), 151_936)),
    "phi-3-mini-4k": _llama(Rope(1e4), 4096, _dense(32, 3072, 8192, (32, 32, 96), 32_064), "phi3", window=2047),
    "phi-3-medium-4k": _llama(Rope(1e4), 4096, _dense(40, 5120, 17_920, (40, 10, 128), 32_064), "phi3", window=2047),
    "phi-4": _llama(Rope(2.5e5), 16_384, _dense(40, 5120, 17_920, (40, 10, 128), 100_352), "phi3"),
    "gemma-2-2b": _gemma2(_dense(26, 2304, 9216, (8, 4, 256), 256_000)),
    "gemma-2-9b": _gemma2(_dense(42, 3584, 14_336, (16, 8, 256), 256_000)),
    "gemma-2-27b": _gemma2(_dense(46, 4608, 36_864, (32, 16, 128), 256_000), 144.0),
    "gemma-3-270m": _gemma3(_dense(18, 640, 2048, (4, 1, 256), 262_144)),
    "gemma-3-1b": _gemma3(_dense(26, 1152, 6912, (4, 1, 256), 262_144)),
}
