"""Host: `Sizes`, what all families read and write under the same keys, in config.json and in GGUF headers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.config_keys import ConfigKeys, token_ids
from jaxserve.models.config.layer_kind import GatedMlp, GroupedAttention, LayerKind
from jaxserve.models.config.model_config import ModelConfig, Stack
from jaxserve.models.config.rope import Rope


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a model whose layers have the same shapes."""

    vocab_size: int
    num_layers: int
    d_model: int
    d_mlp: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position: int
    norm_eps: float
    is_tied: bool
    dtype: str | None = None
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def whole_kind(
        self, rope: Rope, *, activation: str = "silu", has_post_norms: bool = False, **attention: Any
    ) -> LayerKind:
        """Layers that see the whole context; attention: further fields of `GroupedAttention`."""
        heads = GroupedAttention(self.num_heads, self.num_kv_heads, self.head_dim, rope, **attention)
        return LayerKind("global", heads, GatedMlp(self.d_mlp, activation), has_post_norms)

    def model(self, family: str, layers: Sequence[LayerKind], **more: Any) -> ModelConfig:
        """The model with these kinds of its layers; more: further fields of `ModelConfig`."""
        if len(layers) != self.num_layers:
            raise ConfigError(f"{self.num_layers} layers but the kinds of {len(layers)}")
        kinds = list(dict.fromkeys(layers))
        return ModelConfig(
            family,
            self.vocab_size,
            self.d_model,
            self.max_position,
            stacks=tuple(Stack(kind.name, kind) for kind in kinds),
            layer_stacks=tuple(kinds.index(kind) for kind in layers),
            norm_eps=self.norm_eps,
            is_tied=self.is_tied,
            dtype=self.dtype,
            bos_id=self.bos_id,
            eos_ids=self.eos_ids,
            **more,
        )


def hf_sizes(keys: ConfigKeys) -> Sizes:
    """From config.json."""
    d_model, num_heads = keys.take_int("hidden_size"), keys.take_int("num_attention_heads")
    legacy_dtype = keys.take("torch_dtype", None)
    return Sizes(
        vocab_size=keys.take_int("vocab_size"),
        num_layers=keys.take_int("num_hidden_layers"),
        d_model=d_model,
        d_mlp=keys.take_int("intermediate_size"),
        num_heads=num_heads,
        num_kv_heads=keys.take_int("num_key_value_heads", num_heads),
        head_dim=keys.take_int("head_dim", d_model // num_heads),
        max_position=keys.take_int("max_position_embeddings"),
        norm_eps=keys.take_float("rms_norm_eps", 1e-6),
        is_tied=keys.require("tie_word_embeddings", (True, False), False),
        dtype=keys.take("dtype", legacy_dtype),
        bos_id=keys.take("bos_token_id", None),
        eos_ids=token_ids(keys.take("eos_token_id", None)),
    )


def hf_config(config: ModelConfig, architecture: str, model_type: str) -> dict[str, Any]:
    """The keys of config.json that `hf_sizes` reads, with the architecture's names."""
    eos = config.eos_ids[0] if len(config.eos_ids) == 1 else list(config.eos_ids) or None
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": config.vocab_size,
        "num_hidden_layers": config.num_layers,
        "hidden_size": config.d_model,
        "intermediate_size": config.common(lambda kind: kind.mlp.width),
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "max_position_embeddings": config.max_position,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.is_tied,
        "torch_dtype": config.dtype,
        "bos_token_id": config.bos_id,
        "eos_token_id": eos,
        "pad_token_id": None,
    }


def gguf_keys(metadata: Mapping[str, Any], architecture: str) -> ConfigKeys:
    """The keys of one architecture, without the architecture's prefix."""
    prefix = f"{architecture}."
    own = {name.removeprefix(prefix): value for name, value in metadata.items() if name.startswith(prefix)}
    return ConfigKeys(own, f"the GGUF header ({prefix}*)")


def _num_tokens(metadata: Mapping[str, Any]) -> int:
    tokens: Any = metadata.get("tokenizer.ggml.tokens", [])
    if not isinstance(tokens, list):
        raise ConfigError("the GGUF header: tokenizer.ggml.tokens must be a list of texts")
    return len(cast(list[Any], tokens))


def gguf_sizes(keys: ConfigKeys, metadata: Mapping[str, Any], is_tied: bool) -> Sizes:
    """From a GGUF header."""
    d_model, num_heads = keys.take_int("embedding_length"), keys.take_int("attention.head_count")
    head_dim = keys.take_int("attention.key_length", d_model // num_heads)
    keys.require("attention.value_length", (head_dim,), head_dim)
    keys.require("expert_count", (0,), 0)
    return Sizes(
        vocab_size=keys.take_int("vocab_size", _num_tokens(metadata)),
        num_layers=keys.take_int("block_count"),
        d_model=d_model,
        d_mlp=keys.take_int("feed_forward_length"),
        num_heads=num_heads,
        num_kv_heads=keys.take_int("attention.head_count_kv", num_heads),
        head_dim=head_dim,
        max_position=keys.take_int("context_length"),
        norm_eps=keys.take_float("attention.layer_norm_rms_epsilon"),
        is_tied=is_tied,
        bos_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_ids=token_ids(metadata.get("tokenizer.ggml.eos_token_id")),
    )
