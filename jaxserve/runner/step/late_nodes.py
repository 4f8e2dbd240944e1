"""Device: late rows with drafts: their step leaves the hidden state after each draft, from which `draw_nodes` draws.

    device   | forward t+1: root, drafts |            | draw of all nodes, acceptance | forward t+2
    host       commit t ───────── reads drafts ── masks along them ──┘   plan t+2 ───────┘

What a grammar allows after a draft depends on that draft, which the device has looked up: the host reads drafts when
the forward pass is done. Without drafts masks are computed while it runs (`late_draw.py`).
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int32

from jaxserve.core.row_layout import ROW_FIELDS, ROW_INDEX
from jaxserve.core.step_outcome import DraftCounts, StepOutcome
from jaxserve.core.step_plan import LateDraw
from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.acceptance import sample_and_match
from jaxserve.runner.drafts.draft_tree import Drafts
from jaxserve.runner.step.advance_rows import AdvancedRows, advance_rows
from jaxserve.runner.step.device_batch import Heads
from jaxserve.runner.step.draw import draw
from jaxserve.runner.step.late_draw import late_table, with_entries
from jaxserve.runner.step.row_ends import is_stop
from jaxserve.runner.step.step_output import LateNodes, pack_logprobs, read_logprobs
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.step_sharding import replicate
from jaxserve.runner.step.verify_loop import DrawnNodes
from jaxserve.sampling.sampling_batch import read_rows


def draw_nodes(
    settings: StepSettings, params: Params, state: DeviceState, nodes: LateNodes, table: Int32[Array, "S C"]
) -> tuple[DeviceState, Int32[Array, "O"], Int32[Array, "P"]]:
    """Draw a token after each node of the late rows of a verify bucket, and advance the rows by the drafts that are
    what was drawn. table: a result of `node_table`; its rows are those of the step.

    The results are for each row how many tokens it advanced by, whether the last of these is bad, and W tokens, O =
    S·(2 + W); and packed log-probabilities, P = S·W·(2 + 2k).
    """
    num_rows, width, _ = nodes.hidden.shape
    rows, mask_rows = table[:, : len(ROW_FIELDS)], table[:, len(ROW_FIELDS) :]
    slots, num = rows[:, ROW_INDEX["slot"]], rows[:, ROW_INDEX["max_drafts"]]
    draws, sampling = rows[:, ROW_INDEX["samples"]] > 0, read_rows(rows)
    starts = state.lengths[slots] - 1  # the step has read the row's own token
    node = jnp.arange(width, dtype=jnp.int32)[None]
    positions, drafts = starts[:, None] + 1 + node, Drafts(nodes.drafts, num)

    def by_node(column: jax.Array) -> jax.Array:
        return jnp.repeat(column, width, axis=0)

    heads = Heads(
        tokens=jnp.arange(num_rows * width, dtype=jnp.int32),
        positions=positions.reshape(-1),
        samples=(draws[:, None] & (node <= num[:, None])).reshape(-1),
        sampling=replace(jax.tree.map(by_node, sampling), mask_row=mask_rows.reshape(-1)),
    )
    hidden = nodes.hidden.reshape(num_rows * width, -1)
    tokens, is_bad, logprobs = draw(settings, params, heads, hidden, state.slots, drafts)
    tokens, is_bad = replicate(settings, (tokens, is_bad & heads.samples))
    tokens, is_bad = tokens.reshape(num_rows, width), is_bad.reshape(num_rows, width)
    packed = pack_logprobs(logprobs)
    accepted = sample_and_match(tokens, is_bad, is_stop(rows, tokens, positions), drafts)
    drawn = DrawnNodes(tokens, is_bad, packed.reshape(num_rows, width, -1), None, nodes.hidden, None)
    state = advance_rows(settings, state, AdvancedRows(slots, sampling, starts, tokens, draws), accepted, drawn)
    columns = [accepted.num_tokens[:, None], accepted.is_bad[:, None].astype(jnp.int32), tokens]
    return state, jnp.concatenate(columns, axis=1).reshape(-1), packed


def node_table(late: LateDraw, num_rows: int, width: int, scratch_slot: int) -> np.ndarray:
    """int32[num_rows, len(ROW_FIELDS) + W]: the argument of `draw_nodes`: a row of the step each, then the mask row of
    each node. Those that draw nothing are padding."""
    assert late.drafts is not None
    table = np.zeros((num_rows, len(ROW_FIELDS) + width), np.int32)
    table[:, ROW_INDEX["slot"]] = scratch_slot
    rows = late_table(late, len(late.rows), scratch_slot)
    rows[:, ROW_INDEX["max_drafts"]] = late.drafts.num
    table[late.rows, : len(ROW_FIELDS)] = rows
    masks = late.drafts.mask_rows
    table[late.rows, len(ROW_FIELDS) : len(ROW_FIELDS) + masks.shape[1]] = masks
    return table


@dataclass(frozen=True, slots=True)
class LateNodeRows:
    """The late rows of a verify step in flight: int64[L], their numbers in the step, and the results of `draw_nodes`
    with W nodes a row."""

    rows: np.ndarray
    width: int
    output: jax.Array
    logprobs: jax.Array | None

    def complete(self, outcome: StepOutcome, k: int) -> StepOutcome:
        """As `LateRows.complete`."""
        counts = outcome.drafts
        assert counts is not None
        found = np.asarray(self.output).reshape(-1, 2 + self.width)[self.rows]
        num_tokens, is_bad, tokens = found[:, 0], found[:, 1], found[:, 2:]
        outcome = outcome.widened(int(num_tokens.max()))
        num_columns = outcome.tokens.shape[1]
        outcome.num_tokens[self.rows] = num_tokens
        outcome.tokens[self.rows, : self.width] = tokens[:, :num_columns]
        outcome.is_bad[self.rows, num_tokens - 1] = is_bad
        num_accepted = counts.num_accepted.copy()
        num_accepted[self.rows, 0] = num_tokens - 1
        outcome = replace(outcome, drafts=DraftCounts(counts.num_proposed, num_accepted))
        if outcome.logprobs is None or self.logprobs is None:
            return outcome
        fields = np.asarray(self.logprobs).reshape(-1, self.width, 2 + 2 * k)[self.rows]
        node = np.arange(self.width) < num_tokens[:, None]  # only these have places
        rows, nodes = np.nonzero(node)
        entries = self.rows[rows] * num_columns + nodes
        logprobs = read_logprobs(fields[rows, nodes], len(rows), k)
        return replace(outcome, logprobs=with_entries(outcome.logprobs, entries, logprobs))
