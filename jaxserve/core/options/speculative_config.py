"""Host: `SpeculativeConfig`: how an engine drafts tokens, and the checks of these options."""

from dataclasses import dataclass, fields, replace
from typing import Any, cast

from jaxserve.core.options.option_mappings import check_integer, option_error

PARAM = "speculative_config"
METHODS = ("ngram", "suffix", "draft_model", "layer_skip", "medusa", "eagle3", "auto")
DRAWN = ("draft_model", "layer_skip")
"""Methods whose drafts are drawn from a law."""
ACCEPTANCE = ("match", "rejection", "typical")
LEARNED = ("draft_model", "layer_skip", "medusa", "eagle3")
MAX_SPECULATIVE_TOKENS = 63  # with its own token a row computes at most 64 in a round: two words of a draft tree
MAX_EAGLE_TOPK = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculativeConfig:
    """Draft tokens that the model confirms several at a time; the text is the same as without.

    method: "ngram": drafts are what followed the last tokens where they occurred before in prompt or output; "suffix":
    a tree of what followed them there and in earlier outputs, the likeliest first; "draft_model": a smaller model with
    the same vocabulary drafts; "layer_skip": the model itself, with fewer layers; "medusa": heads that were trained on
    the model's hidden states; "eagle3": a layer that was trained on them; "auto": n-grams and another method, by which
    each sequence drafts by what was accepted before.
    learned: that other method; its options are those that it has alone.
    model: the draft model, as the engine's own is named, or the folder of heads or of the layer.
    skip_layers: those left out, from 0.
    num_speculative_tokens: the most drafts of a sequence in a forward pass. prompt_lookup_min, prompt_lookup_max: how
    many of the last tokens must have occurred before. prompt_lookup_branches: of several occurrences that went on in
    different ways the best so many are drafted, side by side: a draft tree, whose branches share the drafts evenly.
    suffix_decoding_cached_tokens: tokens of earlier outputs that are kept, the newest, 0: none; a sequence sees those
    of requests with the same tenant and `cache_salt`. suffix_decoding_max_spec_factor: the most drafts, one after the
    other, by the number of tokens that recur. suffix_decoding_min_token_prob: the share of the places where these recur
    at which a draft must have followed.
    eagle_topk: 1: each draft is the likeliest token after the one before it; more: after each of the so many likeliest
    tokens of a depth so many are tried, and of all of them the likeliest are drafted, a tree.
    acceptance: "match": a draft is accepted if it is the token that the model draws: the text is that without drafts;
    "rejection": with a probability that leaves the law of texts as it is, which accepts more drafts of a model at
    temperatures above 0; "typical": if the model gives it more than typical_threshold, or more than typical_alpha times
    exp(-entropy), which changes the law of texts. At temperature 0 all are the same.
    synthetic_acceptance: for benches: in passes that draft each row has all drafts, and each is accepted with this
    probability if those before it are, so the text is not the model's. None: drafts are accepted if the model confirms
    them.
    """

    method: str
    num_speculative_tokens: int
    learned: str | None = None
    model: str | None = None
    skip_layers: tuple[int, ...] | None = None
    prompt_lookup_min: int = 2
    prompt_lookup_max: int = 4
    prompt_lookup_branches: int = 1
    suffix_decoding_cached_tokens: int = 16384
    suffix_decoding_max_spec_factor: float = 1.0
    suffix_decoding_min_token_prob: float = 0.1
    eagle_topk: int = 1
    acceptance: str = "match"
    typical_threshold: float = 0.09
    typical_alpha: float = 0.3
    synthetic_acceptance: float | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise option_error(PARAM, f"method={self.method!r} must be one of {', '.join(METHODS)}")
        if self.learned not in (LEARNED if self.method == "auto" else (None,)):
            needs = f"needs learned, one of {', '.join(LEARNED)}" if self.method == "auto" else "has no use for learned"
            raise option_error(PARAM, f"method={self.method!r} {needs}, not {self.learned!r}")
        with_model = {
            "draft_model": 'model="…", the draft model',
            "medusa": 'model="…", the folder of the heads',
            "eagle3": 'model="…", the EAGLE-3 draft',
        }
        self._check_own("model", with_model)
        self._check_own("skip_layers", {"layer_skip": "skip_layers=[…], the layers that drafts skip"})
        model: Any = self.model
        if model is not None and not (isinstance(model, str) and model):
            raise option_error(PARAM, f"model={model!r} must be the name of a model")
        if self.skip_layers is not None:
            object.__setattr__(self, "skip_layers", _layers(self.skip_layers))
        check_integer(PARAM, "num_speculative_tokens", self.num_speculative_tokens, 1, MAX_SPECULATIVE_TOKENS)
        check_integer(PARAM, "prompt_lookup_max", self.prompt_lookup_max, 1, 64)
        check_integer(PARAM, "prompt_lookup_min", self.prompt_lookup_min, 1, self.prompt_lookup_max)
        most = self.num_speculative_tokens
        check_integer(PARAM, "prompt_lookup_branches", self.prompt_lookup_branches, 1, most)
        check_integer(PARAM, "eagle_topk", self.eagle_topk, 1, min(most, MAX_EAGLE_TOPK))
        check_integer(PARAM, "suffix_decoding_cached_tokens", self.suffix_decoding_cached_tokens, 0, 2**24)
        for name, most in (
            ("suffix_decoding_max_spec_factor", 64),
            ("suffix_decoding_min_token_prob", 1),
            ("typical_threshold", 1),
            ("typical_alpha", 1),
            ("synthetic_acceptance", 1),
        ):
            self._check_number(name, most)
        for method, prefix in (("ngram", "prompt_lookup"), ("suffix", "suffix_decoding"), ("eagle3", "eagle")):
            self._check_unused(prefix, method in self.methods, f"method={method!r}, not of {self.method!r}")
        self._check_acceptance()

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods by which sequences draft."""
        return (self.method,) if self.learned is None else ("ngram", self.learned)

    @property
    def parts(self) -> "tuple[SpeculativeConfig, ...]":
        """The options of each of `methods`."""
        if self.learned is None:
            return (self,)
        of_ngrams = {f.name: f.default for f in fields(self) if f.name.startswith("prompt_lookup")}
        others = dict.fromkeys(("learned", "model", "skip_layers")) | {"eagle_topk": 1}
        ngrams = replace(self, method="ngram", **others)
        return (ngrams, replace(self, method=self.learned, learned=None, **of_ngrams))

    @property
    def num_earlier_tokens(self) -> int:
        """Tokens of earlier outputs that are kept for drafts."""
        return self.suffix_decoding_cached_tokens if self.method == "suffix" else 0

    def _check_acceptance(self) -> None:
        if self.acceptance not in ACCEPTANCE:
            raise option_error(PARAM, f"acceptance={self.acceptance!r} must be one of {', '.join(ACCEPTANCE)}")
        if self.acceptance == "rejection" and self.learned in DRAWN:
            raise option_error(
                PARAM,
                f"acceptance='rejection' needs drafts that are drawn, and method='auto' has n-grams, too, which are "
                f"not: use method={self.learned!r}, or acceptance='match'",
            )
        if self.acceptance == "rejection" and not set(self.methods) <= set(DRAWN):
            raise option_error(
                PARAM,
                f"acceptance='rejection' needs drafts that are drawn, of method={' or '.join(map(repr, DRAWN))}: those "
                f"of {self.method!r} are accepted as often by acceptance='match', with the same law",
            )
        if self.acceptance != "match" and self.synthetic_acceptance is not None:
            raise option_error(PARAM, "synthetic_acceptance takes the place of acceptance: leave one of them out")
        is_typical = self.acceptance == "typical"
        self._check_unused("typical", is_typical, f"acceptance='typical', not of {self.acceptance!r}")

    def _check_unused(self, prefix: str, is_used: bool, owner: str) -> None:
        """Raise ConfigError if an option whose name begins so is given without what it is an option of."""
        own = [] if is_used else [f for f in fields(self) if f.name.startswith(prefix)]
        if changed := [f.name for f in own if getattr(self, f.name) != f.default]:
            raise option_error(PARAM, f"{changed[0]} is an option of {owner}")

    def _check_number(self, name: str, most: float) -> None:
        value: Any = getattr(self, name)
        is_absent = value is None and name == "synthetic_acceptance"
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
        if not (is_absent or is_number):
            raise option_error(PARAM, f"{name}={value!r} must be a number from 0 to {most}")

    def _check_own(self, name: str, needed: dict[str, str]) -> None:
        """Raise ConfigError unless an option is given with the methods that need it, and no others."""
        needs = next((needed[method] for method in self.methods if method in needed), None)
        if (needs is not None) == (getattr(self, name) is not None):
            return
        wrong = f"has no use for {name}: leave it out" if needs is None else f"needs {needs}"
        raise option_error(PARAM, f"method={self.method!r} {wrong}")


def _layers(value: Any) -> tuple[int, ...]:
    """Numbers of layers in order."""
    layers = list(cast(list[Any], value)) if isinstance(value, list | tuple) else []
    are_integers = all(type(layer) is int and layer >= 0 for layer in layers)
    if not layers or not are_integers or len(set(layers)) < len(layers):
        raise option_error(PARAM, f"skip_layers={value!r} must list different layers, such as [3, 4, 7]")
    return tuple(sorted(layers))
