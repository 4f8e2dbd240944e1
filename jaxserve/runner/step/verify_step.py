"""Device: the step of a verify bucket: drafts from the rows' histories, confirmed by the model."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int32

from jaxserve.core.row_layout import ROW_INDEX
from jaxserve.models.params import Params
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.acceptance import Accepted
from jaxserve.runner.drafts.draft_tree import Drafts, ancestors, with_chains
from jaxserve.runner.drafts.proposer import DraftRows
from jaxserve.runner.drafts.synthetic_acceptance import impose_acceptance
from jaxserve.runner.step.advance_rows import AdvancedRows, advance_rows
from jaxserve.runner.step.batch_layout import BatchLayout
from jaxserve.runner.step.device_batch import DeviceBatch, StepInputs
from jaxserve.runner.step.forward_pass import run_pass, whole_batch
from jaxserve.runner.step.step_output import ExtraOutputs, LateNodes
from jaxserve.runner.step.step_settings import StepSettings
from jaxserve.runner.step.step_sharding import keep_sharding, replicate
from jaxserve.runner.step.tapped_tokens import read_tapped
from jaxserve.runner.step.verify_loop import DrawnNodes, run_verify_rounds
from jaxserve.runner.step.verify_output import pack_verified
from jaxserve.sampling.sampling_batch import read_rows


def verify_step(
    settings: StepSettings, layout: BatchLayout, params: Params, state: DeviceState, buffer: Int32[Array, "B"]
) -> tuple[DeviceState, Int32[Array, "O"], ExtraOutputs]:
    """See `step`."""
    parts = layout.split(buffer)
    rows, num_seqs = parts["rows"], parts["header"][0]
    slots, sampling = rows[:, ROW_INDEX["slot"]], read_rows(rows)
    width, proposer = 1 + layout.bucket.max_drafts, settings.proposer
    assert proposer is not None

    def propose(
        state: DeviceState, starts: jax.Array, last_tokens: jax.Array, max_drafts: jax.Array
    ) -> tuple[DeviceState, Drafts]:
        state = keep_sharding(settings, state)
        assert state.history is not None
        state = replace(state, history=state.history.at[slots, starts].set(last_tokens))
        tables, first_pages = (
            tuple(parts[f"{name}{k}"] for k in range(len(layout.kinds))) for name in ("tables", "first_pages")
        )
        owners, proposers = (rows[:, ROW_INDEX[name]] for name in ("owner", "proposer"))
        known = DraftRows(slots, starts, max_drafts, num_seqs, owners, tables, first_pages, sampling, proposers)
        state, drafts = proposer.propose(params, state, replicate(settings, known), width - 1)
        if settings.has_late_drafts:
            drafts = with_chains(drafts, rows[:, ROW_INDEX["samples"]] == 0)
        if settings.synthetic_acceptance is not None:
            drafts = drafts._replace(num=jnp.full_like(drafts.num, width - 1))
        return keep_sharding(settings, state), drafts._replace(num=jnp.minimum(drafts.num, max_drafts))

    def verify(
        state: DeviceState, inputs: StepInputs, drafts: Drafts, is_active: jax.Array
    ) -> tuple[DeviceState, DrawnNodes]:
        inputs, is_active = replicate(settings, (inputs, is_active))
        batch = _with_drafts(whole_batch(settings, layout, buffer, inputs), ancestors(drafts))
        is_first = batch.positions == inputs.starts[batch.token_rows]
        state, drawn, states = run_pass(
            settings,
            params,
            state,
            batch,
            is_active,
            max_query_len=width,
            is_recorded=is_first,
            previous=_previous(batch, drafts),
            drafts=drafts,
        )
        state, features = read_tapped(settings, params, state, states.tapped)
        nodes = (len(is_active), width)

        def of_nodes(tokens: jax.Array) -> jax.Array:
            return replicate(settings, tokens[batch.heads.tokens]).reshape(*nodes, -1)

        drawn = replicate(settings, drawn)
        tokens = drawn.tokens.reshape(nodes)
        if settings.synthetic_acceptance is not None:
            tokens = impose_acceptance(
                tokens,
                drafts,
                batch.heads.sampling,
                batch.heads.positions,
                rate=settings.synthetic_acceptance,
                vocab_size=settings.model.config.vocab_size,
            )
        found = DrawnNodes(
            tokens,
            drawn.is_bad.reshape(nodes),
            drawn.logprobs.reshape(*nodes, -1),
            jnp.concatenate([meta.write_slots for meta in batch.metas])[:, batch.heads.tokens].reshape(-1, *nodes),
            of_nodes(states.hidden),
            None if features is None else of_nodes(features),
        )
        return state, found

    def advance(
        state: DeviceState,
        starts: jax.Array,
        tokens: jax.Array,
        is_active: jax.Array,
        accepted: Accepted,
        drawn: DrawnNodes,
    ) -> DeviceState:
        return advance_rows(settings, state, AdvancedRows(slots, sampling, starts, tokens, is_active), accepted, drawn)

    nodes = None
    if settings.has_late_drafts:
        drafts, num = (jnp.zeros(shape, jnp.int32) for shape in ((len(slots), width - 1), len(slots)))
        model = settings.model
        nodes = LateNodes(jnp.zeros((len(slots), width, model.config.d_model), model.dtype), drafts, num)
    state, found, nodes = run_verify_rounds(
        propose, verify, advance, layout, buffer, state, settings.max_logprobs, nodes
    )
    return state, pack_verified(found), ExtraOutputs(found.logprobs.reshape(-1), None, None, nodes)


def _previous(batch: DeviceBatch, drafts: Drafts) -> Int32[Array, "T"]:
    """`TappedTokens.previous` of the rows' drafts."""
    first = batch.metas[0].cu_q_lens[batch.token_rows]
    node = jnp.arange(len(batch.tokens), dtype=jnp.int32) - first
    followed = jnp.pad(drafts.followed, ((0, 0), (1, 0)))[batch.token_rows, jnp.minimum(node, drafts.tokens.shape[1])]
    return jnp.where(node == 0, -1, first + followed)


def _with_drafts(batch: DeviceBatch, is_ancestor: Bool[Array, "S W W"]) -> DeviceBatch:
    """The batch whose sampled positions know the drafts before them, which no penalty count has yet."""
    heads, width = batch.heads, is_ancestor.shape[1]
    tokens = batch.tokens[heads.tokens].reshape(-1, 1, width)
    drafts = jnp.where(is_ancestor, tokens, jnp.iinfo(jnp.int32).max)[:, :, 1:].reshape(-1, width - 1)
    return batch._replace(heads=heads._replace(sampling=replace(heads.sampling, drafts=drafts)))
