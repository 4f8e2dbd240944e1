"""Host: `ConfigKeys`, strict reading of a configuration: every key is used, known to be inert, or rejected by name."""

import math
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, cast

from jaxserve.core.errors import ConfigError

# Written by transformers into every config.json; none of them changes a decoder's results. (quantization_config is read
# where checkpoints are opened.)
INERT = frozenset(
    """_attn_implementation_autoset _name_or_path add_cross_attention architectures attention_dropout bad_words_ids
    begin_suppress_tokens bos_token_id chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id
    diversity_penalty do_sample dtype early_stopping encoder_no_repeat_ngram_size eos_token_id
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id id2label
    initializer_range is_decoder is_encoder_decoder label2id length_penalty max_length max_sequence_length
    min_length model_type no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions
    output_hidden_states output_scores pad_token_id prefix pretraining_tp problem_type pruned_heads
    quantization_config remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id
    suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class top_k top_p
    torch_dtype torchscript transformers_version transformers.js_config typical_p unsloth_fixed unsloth_version
    use_bfloat16 use_cache""".split()
)


class ConfigKeys:
    """A configuration being read: `take` each key, then `finish` rejects the rest.

    source: the configuration's name in error messages. defaults: the vendor's defaults of absent keys.
    """

    def __init__(self, values: Mapping[str, Any], source: str, defaults: Mapping[str, Any] | None = None):
        self._values = dict(values)
        self._source = source
        self._defaults = defaults or {}

    def take(self, name: str, default: Any = ...) -> Any:
        """The value of `name`, or the default; a JSON null counts as absent. Raises ConfigError if there is neither."""
        value = self._values.pop(name, None)
        if value is None:
            value = self._defaults.get(name)
        if value is None:
            if default is ...:
                raise ConfigError(f"{self._source} has no '{name}'", param=name)
            return default
        return value

    def take_int(self, name: str, default: Any = ..., minimum: int = 1) -> int:
        """A size: an integer of at least `minimum`."""
        value = self.take(name, default)
        if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < minimum:
            raise ConfigError(f"{self._source}: {name}={value!r} must be an integer of at least {minimum}", param=name)
        return int(value)

    def take_float(self, name: str, default: Any = ..., zero: float | None = None) -> Any:
        """A positive number, or `default`, of any type, if the key is absent. zero: what 0 stands for; None: it is
        refused."""
        value = self.take(name, default)
        if value is default:
            return value
        if zero is not None and isinstance(value, Real) and value is not False and value == 0:
            return zero
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < math.inf:
            raise ConfigError(f"{self._source}: {name}={value!r} must be a positive number", param=name)
        return float(value)

    def take_floats(self, name: str) -> tuple[float, ...]:
        """A list of numbers."""
        values = self.take(name)
        items = cast(Sequence[Any], values)
        if not isinstance(values, list | tuple) or not all(isinstance(v, int | float) for v in items):
            raise ConfigError(f"{self._source}: {name} must be a list of numbers", param=name)
        return tuple(float(v) for v in items)

    def take_mapping(self, name: str) -> Mapping[str, Any]:
        """A JSON object, empty if the key is absent."""
        value = self.take(name, {})
        if not isinstance(value, Mapping):
            raise ConfigError(f"{self._source}: {name}={value!r} must be an object", param=name)
        return cast(Mapping[str, Any], value)

    def require(self, name: str, allowed: Iterable[Any], default: Any) -> Any:
        """The value of `name`; raises ConfigError unless it is one of `allowed`."""
        value = self.take(name, default)
        allowed = tuple(allowed)
        if value not in allowed:
            choices = " or ".join(repr(a) for a in allowed)
            raise ConfigError(f"{self._source}: {name}={value!r} is not supported (only {choices})", param=name)
        return value

    def finish(self, inert: Iterable[str] = ()) -> None:
        """Raise ConfigError if keys are left that are neither in `INERT` nor in `inert`."""
        unknown = sorted(name for name in self._values if name not in INERT and name not in set(inert))
        if unknown:
            raise ConfigError(
                f"{self._source} has keys that jaxserve does not support: {', '.join(unknown)}",
                param=unknown[0],
            )


def token_ids(value: Any) -> tuple[int, ...]:
    """An end-of-sequence entry (absent, one id, or a list) as a tuple; raises ConfigError for anything else."""
    if value is None:
        return ()
    items: list[Any] = list(cast(Iterable[Any], value)) if isinstance(value, list | tuple) else [value]
    if not all(isinstance(item, Integral) and item is not True and item is not False for item in items):
        raise ConfigError(f"eos_token_id={value!r} must be a token id, or a list of them", param="eos_token_id")
    return tuple(map(int, items))
