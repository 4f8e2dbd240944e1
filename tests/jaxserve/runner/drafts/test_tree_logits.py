"""Logits at each node of a draft tree equal those of its path as plain text, in layers with a window too."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxserve.models.attention_metadata import kind_meta
from jaxserve.models.context import Context
from jaxserve.models.kv_heads import kv_layout
from jaxserve.models.transformer import forward, logits
from jaxserve.runner.drafts.draft_tree import Drafts, ancestors, tree_bits
from pallas_kernels.paged_attention.batch_meta import sequence_positions
from tests.support.golden_data import checkpoint, goldens
from tests.support.naive_loop import PAGE, NaiveModel

COLUMNS = 8
RANDOM = np.random.default_rng(0)


@partial(jax.jit, static_argnums=(0, 1, 2))
def node_logits(config, mesh, backend, params, prefix, nodes, bits):
    """[W, V]: a prefix, then all nodes of a tree in one pass of one row."""
    layout, groups = kv_layout(config, mesh, PAGE, jnp.float32), config.kv_groups(PAGE)
    pages = 1 + jnp.arange(groups.num_groups * COLUMNS, dtype=jnp.int32).reshape(-1, 1, COLUMNS)
    pool, ctx = jnp.full(layout.shape(1 + pages.size), jnp.nan, jnp.float32), Context(mesh, backend)
    hidden = kv_len = 0
    for tokens, tree in ((prefix, None), (nodes, bits)):
        kv_len += len(tokens)
        batch = {
            "cu_q_lens": jnp.array([0, len(tokens)], jnp.int32),
            "kv_lens": jnp.array([kv_len], jnp.int32),
            "num_seqs": jnp.int32(1),
            "num_decodes": jnp.int32(0),
            "num_tokens": len(tokens),
            "page_size": PAGE,
        }
        starts = [kind_meta(pages[a:b], jnp.zeros((b - a, 1), jnp.int32), **batch) for a, b in config.group_ranges]
        metas = tuple(replace(meta, tree=tree) for meta in starts)
        hidden, pool, _ = forward(ctx, config, params, tokens, sequence_positions(metas[0]), metas, pool)
    return logits(ctx, config, params, hidden)[:, : config.vocab_size]


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("family", "num_drafts", "backend"), [("llama3", 6, "invariant"), ("llama3", 47, "xla"), ("gemma3", 35, "xla")]
)
def test_each_node_has_the_logits_of_its_path(family, num_drafts, backend):
    naive, prefix = NaiveModel.load(checkpoint(family)), goldens(family)[0].prompt
    nodes = RANDOM.integers(0, naive.config.vocab_size, 1 + num_drafts)
    parents = [int(RANDOM.integers(max(0, node - 6), node)) for node in range(1, 1 + num_drafts)]
    drafts = Drafts(*(jnp.asarray(a, jnp.int32)[None] for a in (nodes[1:], num_drafts, parents)))
    bits = tree_bits(ancestors(drafts))[0]
    arguments = (naive.config, naive.mesh, backend, naive.params, jnp.int32(prefix), jnp.int32(nodes))
    found = node_logits(*arguments, bits)
    paths = [[0]]
    for node, parent in enumerate(parents, 1):
        paths.append([*paths[parent], node])
    for leaf in set(range(1 + num_drafts)) - set(parents):
        expected = naive.logits([*prefix, *nodes[paths[leaf]]])[len(prefix) :]
        np.testing.assert_allclose(found[np.array(paths[leaf])], expected, atol=1e-4)
    as_chain = node_logits(*arguments, jnp.full_like(bits, -1))
    assert np.abs(as_chain - found).max() > 0.01, "control: without the tree's bits"
