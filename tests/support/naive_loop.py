"""The naive loop, the engine's reference: one prompt at a time, a full forward pass of the context for each token."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from checkpoints.open_checkpoint import open_checkpoint
from checkpoints.sources import resolve
from jaxserve.core.hardware.mesh import make_mesh
from jaxserve.models.attention_metadata import kind_meta
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.context import Context
from jaxserve.models.kv_heads import kv_layout
from jaxserve.models.params import Params, declare
from jaxserve.models.transformer import forward, logits
from jaxserve.runner.load_weights import load_params, read_config

PAGE = 16
ROUNDED_TO = 96  # tokens: one program for all prompts of the goldens with their outputs


@dataclass
class NaiveModel:
    """A model with weights; backend: of attention (by default the reference)."""

    config: ModelConfig
    params: Params
    mesh: jax.sharding.Mesh
    backend: str = "reference"

    @classmethod
    def load(cls, path: Path | str, *, tensor_parallel_size: int = 1, backend: str = "reference") -> "NaiveModel":
        mesh = make_mesh(tensor_parallel_size)
        with open_checkpoint(resolve(str(path))) as checkpoint:
            config = read_config(checkpoint)
            config = config.for_context(config.max_position)
            return cls(config, load_params(checkpoint, config, mesh, declare(config, mesh, "float32")), mesh, backend)

    def logits(self, ids: np.ndarray | list[int]) -> np.ndarray:
        """Logits [len(ids), V] after each token; the page table is a random permutation, unused pages hold NaN."""
        return self._whole(ids)[1][:, : self.config.vocab_size]

    def hidden(self, ids: np.ndarray | list[int]) -> np.ndarray:
        """Hidden states [len(ids), D] of each token after the final norm."""
        return self._whole(ids)[0]

    def _whole(self, ids: np.ndarray | list[int]) -> tuple[np.ndarray, np.ndarray]:
        num_tokens = len(ids)
        padded = -(-num_tokens // ROUNDED_TO) * ROUNDED_TO
        tokens = np.zeros(padded, np.int32)
        tokens[:num_tokens] = ids
        hidden, logits = self._run(self.params, jnp.asarray(tokens), jnp.int32(num_tokens))
        return np.asarray(hidden)[:num_tokens], np.asarray(logits)[:num_tokens]

    def greedy(self, prompt: list[int], num_tokens: int) -> list[int]:
        """The greedy continuation, with one full forward pass per token."""
        ids = list(prompt)
        for _ in range(num_tokens):
            ids.append(int(self.logits(ids)[-1].argmax()))
        return ids[len(prompt) :]

    def _run(self, *args):
        return _whole_context(self.config, self.mesh, self.backend, *args)


@partial(jax.jit, static_argnums=(0, 1, 2))  # one cache: models of one configuration share their programs
def _whole_context(config, mesh, backend, params, tokens, num_tokens):
    size = len(tokens)
    layout = kv_layout(config, mesh, PAGE, jnp.float32)
    groups = config.kv_groups(PAGE)
    columns = size // PAGE
    num_pages = 1 + groups.num_groups * columns + 3
    pages = 1 + np.random.default_rng(5).permutation(num_pages - 1)[: groups.num_groups * columns]
    pages = jnp.asarray(pages.reshape(groups.num_groups, 1, columns), jnp.int32)
    pool = jnp.full(layout.shape(num_pages), jnp.nan, jnp.float32)
    lens = num_tokens.reshape(1)
    cu = jnp.concatenate([jnp.zeros(1, jnp.int32), lens])
    batch = {"cu_q_lens": cu, "kv_lens": lens, "num_seqs": jnp.int32(1), "num_decodes": jnp.int32(0)}
    metas = tuple(
        kind_meta(pages[start:end], jnp.zeros((end - start, 1), jnp.int32), num_tokens=size, page_size=PAGE, **batch)
        for start, end in config.group_ranges
    )
    ctx = Context(mesh, backend)
    hidden, _, _ = forward(ctx, config, params, tokens, metas[0].kv_positions, metas, pool)
    return hidden, logits(ctx, config, params, hidden)
