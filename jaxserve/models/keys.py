"""Host: reading configuration keys so that none goes unnoticed: each is used, known to be inert, or refused by name."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from jaxserve.core.errors import ConfigError

# Written by transformers into every config.json; none of them changes what a decoder computes.
INERT = frozenset(
    """_attn_implementation_autoset _name_or_path add_cross_attention architectures attention_dropout bad_words_ids
    begin_suppress_tokens bos_token_id chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id
    diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id id2label
    initializer_range is_decoder is_encoder_decoder label2id length_penalty max_length max_sequence_length
    min_length model_type no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions
    output_hidden_states output_scores pad_token_id prefix pretraining_tp problem_type pruned_heads
    remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id suppress_tokens
    task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p torch_dtype
    torchscript transformers_version transformers.js_config typical_p unsloth_fixed unsloth_version use_bfloat16
    use_cache""".split()
)


class Keys:
    """A configuration being read: `take` each key, then `finish` refuses the rest."""

    def __init__(self, values: Mapping[str, Any], source: str):
        self._values = dict(values)
        self._source = source

    def take(self, name: str, default: Any = ...) -> Any:
        """The value of `name`; a JSON null counts as absent."""
        value = self._values.pop(name, None)
        if value is None:
            if default is ...:
                raise ConfigError(f"{self._source} has no '{name}'", param=name)
            return default
        return value

    def take_int(self, name: str, default: Any = ...) -> int:
        """A size: an integer of at least 1."""
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ConfigError(f"{self._source}: {name}={value!r} must be an integer of at least 1", param=name)
        return int(value)

    def take_mapping(self, name: str) -> Mapping[str, Any]:
        """A JSON object, empty where there is none."""
        value = self.take(name, {})
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self._source}: {name}={value!r} must be an object", param=name)
        return value

    def require(self, name: str, allowed: Iterable[Any], default: Any) -> Any:
        """The value of `name`, refused unless it is one of `allowed`."""
        value = self.take(name, default)
        allowed = tuple(allowed)
        if value not in allowed:
            choices = " or ".join(repr(a) for a in allowed)
            raise ConfigError(f"{self._source}: {name}={value!r} is not supported (only {choices})", param=name)
        return value

    def finish(self, inert: Iterable[str] = ()) -> None:
        unknown = sorted(name for name in self._values if name not in INERT and name not in set(inert))
        if unknown:
            raise ConfigError(
                f"{self._source} has keys that jaxserve does not know and so cannot honour: {', '.join(unknown)}",
                param=unknown[0],
            )


def token_ids(value: Any) -> tuple[int, ...]:
    """An end-of-sequence entry (absent, one id, or a list) as a tuple."""
    if value is None:
        return ()
    return tuple(int(v) for v in value) if isinstance(value, list | tuple) else (int(value),)
