"""Device: trees of an EAGLE-3 draft that grow where they are likeliest (EAGLE-2: Li et al., arXiv 2406.16858).

                   k = 2        each round of the draft reads the k likeliest tokens of the round before, and proposes
    last token ─┬─ a ─┬─ c *    k after each; a token's score is the log-probability of the path to it
                │     └─ d
                └─ b ─┬─ e *    * read next            proposed: of all of them the likeliest, which form one tree
                      └─ f

A round reads the whole tree so far again: the draft has one layer, and attention sees a tree only within a pass.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int32

from jaxserve.models.params import DRAFT, Params
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.draft_kv import draft_meta
from jaxserve.runner.drafts.draft_tree import Drafts, tree_bits
from jaxserve.runner.drafts.eagle import DraftTokens, Eagle
from jaxserve.runner.drafts.proposer import DraftRows
from jaxserve.sampling.argmax_top_k import top_k
from jaxserve.sampling.logit_processors import mask_padding
from jaxserve.sampling.row_sharding import shard_rows

OF_A_DEPTH = 1e-4
"""Taken off a score for each depth, so that a certain token still scores less than the one before it."""


class Nodes(NamedTuple):
    """The tokens that the draft reads of each row, M = 1 + k · (rounds - 1), the row's last token first."""

    tokens: Int32[Array, "S M"]
    features: Float[Array, "S M D"]
    is_ancestor: Bool[Array, "S M M"]


class Candidates(NamedTuple):
    """The tokens that may be proposed, in the order of the rounds. parents: candidates; -1: the row's last token."""

    tokens: Int32[Array, "S C"]
    scores: Float[Array, "S C"]
    parents: Int32[Array, "S C"]


class Growth(NamedTuple):
    """The tree between two rounds. frontier: the candidates that are read next, the last nodes that are filled."""

    state: DeviceState
    nodes: Nodes
    candidates: Candidates
    frontier: Int32[Array, "S k"]


@dataclass(frozen=True)
class EagleTree(Eagle):
    """topk: k of each row, where it may have so many drafts."""

    topk: int

    @classmethod
    def of_chain(cls, chain: Eagle, topk: int) -> "EagleTree":
        return cls(chain.target, chain.model, chain.config, chain.kind, topk)

    @property
    def makes_trees(self) -> bool:
        """See `Proposer`."""
        return True

    def depth(self, num_drafts: int) -> int:
        """See `Proposer`. All tokens that are read must have KV of their own, as the drafts have."""
        k = min(self.topk, num_drafts)
        return num_drafts if k < 2 else 1 + num_drafts // k

    @jax.named_scope("draft")
    def propose(
        self, params: Params, state: DeviceState, rows: DraftRows, num_drafts: int
    ) -> tuple[DeviceState, Drafts]:
        """See `Proposer`."""
        k, num_rounds = min(self.topk, num_drafts), self.depth(num_drafts)
        if k < 2:
            return super().propose(params, state, rows, num_drafts)
        room = jnp.minimum(rows.room, num_drafts)
        first = self.first(state, rows)
        state, output = self.read_one(params, rows, state, first)
        tokens, scores = self._likeliest(params, output, k)
        num_rows, num_nodes = len(room), 1 + k * (num_rounds - 1)
        num_candidates = k + k * k * (num_rounds - 1)
        nodes = Nodes(
            jnp.zeros((num_rows, num_nodes), jnp.int32).at[:, 0].set(first.tokens),
            jnp.zeros((num_rows, num_nodes, output.shape[1]), output.dtype).at[:, 0].set(first.features),
            jnp.broadcast_to(jnp.eye(num_nodes, dtype=jnp.bool_), (num_rows, num_nodes, num_nodes)),
        )
        candidates = Candidates(
            jnp.zeros((num_rows, num_candidates), jnp.int32).at[:, :k].set(tokens),
            jnp.full((num_rows, num_candidates), -jnp.inf).at[:, :k].set(scores),
            jnp.full((num_rows, num_candidates), -1, jnp.int32),
        )
        frontier = jnp.broadcast_to(jnp.arange(k, dtype=jnp.int32), (num_rows, k))
        of_root = jnp.zeros((num_rows, k), jnp.int32)
        nodes = _with_nodes(nodes, jnp.int32(1), tokens, jnp.repeat(output[:, None], k, axis=1), of_root)

        def grow(growth: Growth, depth: jax.Array) -> tuple[Growth, None]:
            return self._grow(params, rows, growth, depth, room, k), None

        depths = jnp.arange(1, num_rounds, dtype=jnp.int32)
        growth, _ = lax.scan(grow, Growth(state, nodes, candidates, frontier), depths)
        return growth.state, likeliest_tree(growth.candidates, room, num_drafts)

    def _grow(
        self, params: Params, rows: DraftRows, growth: Growth, depth: jax.Array, room: Int32[Array, "S"], k: int
    ) -> Growth:
        """Read the nodes of a depth, and add the likeliest tokens after each."""
        state, nodes, candidates, frontier = growth
        state, outputs = self._read_nodes(params, rows, state, nodes, room, k)
        first = 1 + k * (depth - 1)
        num_rows, width = len(room), outputs.shape[2]
        of_frontier = lax.dynamic_slice_in_dim(outputs, first, k, axis=1)
        tokens, scores = self._likeliest(params, of_frontier.reshape(-1, width), k)
        is_read = first + jnp.arange(k, dtype=jnp.int32)[None] <= room[:, None]
        before = jnp.where(is_read, jnp.take_along_axis(candidates.scores, frontier, axis=1), -jnp.inf)
        scores = (before[:, :, None] + scores.reshape(num_rows, k, k)).reshape(num_rows, -1)
        tokens = tokens.reshape(num_rows, -1)
        place = k + k * k * (depth - 1)
        new = Candidates(tokens, scores, jnp.repeat(frontier, k, axis=1))

        def written(table: jax.Array, columns: jax.Array) -> jax.Array:
            return lax.dynamic_update_slice_in_dim(table, columns, place, axis=1)

        candidates = Candidates(*map(written, candidates, new))
        _, best = top_k(scores, k)
        parent = best // k
        features = jnp.take_along_axis(of_frontier, parent[:, :, None], axis=1)
        nodes = _with_nodes(nodes, first + k, jnp.take_along_axis(tokens, best, axis=1), features, first + parent)
        return Growth(state, nodes, candidates, place + best)

    def _read_nodes(
        self, params: Params, rows: DraftRows, state: DeviceState, nodes: Nodes, room: Int32[Array, "S"], k: int
    ) -> tuple[DeviceState, Float[Array, "S M D"]]:
        num_rows, num_nodes = nodes.tokens.shape
        is_row = jnp.arange(num_rows, dtype=jnp.int32) < rows.num_seqs
        lens = jnp.where(is_row, jnp.minimum(num_nodes, 1 + room), 0)
        meta = draft_meta(self.kind, self.model.page_size, rows, rows.starts, lens, num_tokens=num_rows * num_nodes)
        node = jnp.arange(num_rows * num_nodes, dtype=jnp.int32) - meta.cu_q_lens[meta.rows]
        node = jnp.clip(node, 0, num_nodes - 1)  # of padding
        meta = replace(meta, tree=tree_bits(nodes.is_ancestor)[meta.rows, node])
        positions = rows.starts[meta.rows] + (node + k - 1) // k
        read = DraftTokens(nodes.tokens[meta.rows, node], positions, nodes.features[meta.rows, node])
        state, outputs = self.run(params, state, read, meta, max_query_len=num_nodes)
        index = meta.cu_q_lens[:-1, None] + jnp.arange(num_nodes, dtype=jnp.int32)[None]
        return state, outputs[jnp.minimum(index, len(outputs) - 1)]

    def _likeliest(
        self, params: Params, outputs: Float[Array, "R D"], k: int
    ) -> tuple[Int32[Array, "R k"], Float[Array, "R k"]]:
        """The k likeliest tokens after each output, and their log-probabilities."""

        def of_rows(raw: jax.Array) -> tuple[jax.Array, jax.Array]:
            raw = mask_padding(raw, self.config.model.vocab_size)
            values, ids = top_k(raw, k)
            return ids, values - jax.nn.logsumexp(raw, axis=1, keepdims=True) - jnp.float32(OF_A_DEPTH)

        ids, scores = shard_rows(self.model.mesh, of_rows, self.draft_logits(params, outputs))
        return params[DRAFT]["tokens"][ids], scores


def likeliest_tree(candidates: Candidates, room: Int32[Array, "S"], num_drafts: int) -> Drafts:
    """Of each row the `room` likeliest candidates, N = num_drafts at most, in their order.

    None scores more than its parent, so they are a tree.
    """
    num_candidates = candidates.tokens.shape[1]
    scores, best = top_k(candidates.scores, num_drafts)
    num = jnp.minimum(room, jnp.sum(jnp.isfinite(scores), axis=1, dtype=jnp.int32))
    is_chosen = jnp.arange(num_drafts, dtype=jnp.int32)[None] < num[:, None]
    chosen = jnp.sort(jnp.where(is_chosen, best, num_candidates), axis=1)
    index = jnp.minimum(chosen, num_candidates - 1)
    tokens, parents = (jnp.take_along_axis(table, index, axis=1) for table in (candidates.tokens, candidates.parents))
    num_before = jnp.sum(chosen[:, None] < parents[:, :, None], axis=2, dtype=jnp.int32)
    return Drafts(tokens, num, jnp.where(parents < 0, 0, 1 + num_before))


def _with_nodes(
    nodes: Nodes,
    first: jax.Array,
    tokens: Int32[Array, "S k"],
    features: Float[Array, "S k D"],
    parents: Int32[Array, "S k"],
) -> Nodes:
    """The tree with more nodes, from the number `first` on; parents: nodes."""
    k, num_nodes = tokens.shape[1], nodes.tokens.shape[1]

    def written(table: jax.Array, columns: jax.Array) -> jax.Array:
        # The nodes after the last round, which no round reads, have no place.
        padded = jnp.concatenate([table, jnp.zeros_like(table[:, :k])], axis=1)
        return lax.dynamic_update_slice_in_dim(padded, columns, first, axis=1)[:, :num_nodes]

    path = jnp.take_along_axis(nodes.is_ancestor, parents[:, :, None], axis=1)
    own = jnp.arange(num_nodes, dtype=jnp.int32)[None] == first + jnp.arange(k, dtype=jnp.int32)[:, None]
    return Nodes(*map(written, nodes, (tokens, features, path | own[None])))
