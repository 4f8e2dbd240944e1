"""An EAGLE-3 draft written out in NumPy, one token at a time and without a cache, and what its drafts come to."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np

from jaxserve import LLM, pure
from jaxserve.models.config.eagle_config import EagleConfig


@dataclass(frozen=True)
class NaiveEagle:
    """draft: weights as `declare_eagle` names them, of one device. vocabulary: the target's tokens."""

    llm: LLM
    config: EagleConfig
    draft: dict
    vocabulary: np.ndarray

    def features(self, text: list[int]) -> np.ndarray:
        """The feature before each token of a text: of the token before it."""
        settings, params = self.llm.parts.runner.settings.model, self.llm.parts.runner.params
        _, taps = pure.forward(settings, params, jnp.int32([text]), layers=self.config.tap_layers)
        fused = np.concatenate(np.asarray(taps, np.float64)[:, 0], axis=1) @ self._weight("fuse").T
        return np.concatenate([np.zeros((1, fused.shape[1])), fused[:-1]])

    def output(self, tokens: list[int], features: np.ndarray) -> np.ndarray:
        """The layer's output after the last token."""
        config, attention = self.config.model, self.config.model.kinds[0].attention
        embedded = np.asarray(self.llm.parts.runner.params["embed"], np.float64)[tokens]
        sides = [self._norm("attn_norm", embedded), self._norm("hidden_norm", features)]
        x = np.concatenate(sides, axis=1)
        rows = np.einsum("ti,kri->tkr", x, self._weight("qkv"))
        h, group = attention.head_dim, attention.num_heads // attention.num_kv_heads
        q = self._rotated(rows[..., : group * h].reshape(len(tokens), -1, h))[-1].reshape(-1, group, h)
        k, v = self._rotated(rows[..., group * h : (group + 1) * h]), rows[..., (group + 1) * h :]
        scores = np.einsum("kgh,tkh->kgt", q, k) * attention.scale
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        o = np.einsum("kgt,tkh->kgh", weights / weights.sum(axis=2, keepdims=True), v).reshape(-1)
        x = features[-1] + self._weight("o") @ o
        gate, up = self._weight("gate_up") @ self._norm("mlp_norm", x)
        assert config.kinds[0].mlp.activation == "silu"
        return x + self._weight("down") @ (gate / (1 + np.exp(-gate)) * up)

    def log_probabilities(self, output: np.ndarray) -> np.ndarray:
        """Of the draft's vocabulary."""
        logits = (self._weight("lm_head") @ self._norm("final_norm", output))[: len(self.vocabulary)]
        return logits - np.log(np.sum(np.exp(logits - logits.max()))) - logits.max()

    def drafts(self, text: list[int], features: np.ndarray, room: int, num_drafts: int, topk: int) -> list[list[int]]:
        """The paths that are proposed after a text. features: before each of its tokens."""
        k = min(topk, num_drafts)
        found = list[tuple[float, list[int]]]()
        frontier = [(0.0, list[int](), features)]
        for depth in range(num_drafts if k == 1 else 1 + num_drafts // k):
            grown = list[tuple[float, list[int], np.ndarray]]()
            for i, (score, path, before) in enumerate(frontier):
                if depth and 1 + k * (depth - 1) + i > room:
                    continue  # its KV would have no place
                output = self.output([*text, *path], before)
                logprobs = self.log_probabilities(output)
                best = np.argsort(-logprobs)[:k]
                after = np.concatenate([before, output[None]])
                grown += [(score + logprobs[i], [*path, int(self.vocabulary[i])], after) for i in best]
            frontier = sorted(grown, key=lambda node: -node[0])[:k]
            found += [(score, path) for score, path, _ in grown]
        return [path for _, path in sorted(found, key=lambda node: -node[0])[:room]]

    def num_accepted(self, prompt: list[int], answer: list[int], num_drafts: int, topk: int) -> int:
        """Drafts that are accepted while a greedy answer is decoded: of each round the longest right path."""
        place, total, features = 1, 0, self.features([*prompt, *answer])
        while place < len(answer):
            run = self.num_accepted_at(prompt, answer, features, place, num_drafts, topk)
            total, place = total + run, place + run + 1
        return total

    def num_accepted_at(
        self, prompt: list[int], answer: list[int], features: np.ndarray, place: int, num_drafts: int, topk: int
    ) -> int:
        """Of drafts after the first `place` tokens of an answer, in one round."""
        room, end = min(num_drafts, len(answer) - place - 1), len(prompt) + place
        text, following = [*prompt, *answer][:end], answer[place:]
        proposed = self.drafts(text, features[:end], room, num_drafts, topk) if room > 0 else []
        return max((len(path) for path in proposed if path == following[: len(path)]), default=0)

    def _weight(self, name: str) -> np.ndarray:
        of_layer = self.draft["layers"][self.config.model.stacks[0].name]
        leaf = of_layer[name][0] if name in of_layer else self.draft[name]
        return np.asarray(leaf, np.float64)

    def _norm(self, name: str, x: np.ndarray) -> np.ndarray:
        size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + self.config.model.norm_eps)
        return x / size * self._weight(name)

    def _rotated(self, heads: np.ndarray) -> np.ndarray:
        attention = self.config.model.kinds[0].attention
        angles = np.arange(len(heads))[:, None] * np.asarray(attention.rope.frequencies(attention.head_dim))
        cos, sin = (function(angles)[:, None] * attention.rope.attention_factor for function in (np.cos, np.sin))
        a, b = np.split(heads, 2, axis=2)
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=2)
