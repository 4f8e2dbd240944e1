"""The engine's step of a model of real shape, compiled for a mesh of accelerators; nothing of it is allocated."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from checkpoints.quantized.forms.nf4_form import Nf4Form
from jaxserve.core.buckets import Bucket, default_rounds
from jaxserve.core.hardware.aot_targets import no_persistent_cache
from jaxserve.core.hardware.mesh import device_bytes, num_shards, replicated
from jaxserve.core.options.engine_config import INVARIANT
from jaxserve.models import transformer
from jaxserve.models.config.eagle_config import EagleConfig
from jaxserve.models.config.medusa_heads import UNKNOWN, MedusaHeads
from jaxserve.models.config.model_config import ModelConfig
from jaxserve.models.context import Context
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.model_settings import Settings
from jaxserve.models.packing import Packing
from jaxserve.models.row_tiles import row_tiles
from jaxserve.runner.device_state import DeviceState
from jaxserve.runner.drafts.acceptance_rules import AcceptanceRule, RejectionSampling, TypicalAcceptance
from jaxserve.runner.drafts.draft_model import DraftModel
from jaxserve.runner.drafts.eagle import Eagle
from jaxserve.runner.drafts.eagle_tree import EagleTree
from jaxserve.runner.drafts.layer_skip import LayerSkip
from jaxserve.runner.drafts.lookup_or_learned import LookupOrLearned
from jaxserve.runner.drafts.medusa import Medusa
from jaxserve.runner.drafts.ngram_proposer import NgramProposer
from jaxserve.runner.drafts.proposer import Proposer
from jaxserve.runner.drafts.suffix_proposer import SuffixProposer
from jaxserve.runner.programs.compiler_options import compiler_options
from jaxserve.runner.programs.hlo import read_hlo
from jaxserve.runner.programs.pool_aliasing import local_type
from jaxserve.runner.programs.programs import Programs
from jaxserve.runner.programs.traffic import memory_traffic
from jaxserve.runner.programs.weight_copies import weight_copies
from jaxserve.runner.step.device_batch import first_inputs, unpack
from jaxserve.runner.step.step_settings import StepSettings
from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.block_forms.ggml_forms import GGML_FORMS
from pallas_kernels.block_forms.half_bits import with_half_bits
from pallas_kernels.qtensor import ALL_SCHEMES
from tests.support.compiled.aot import compile_on, on
from tests.support.compiled.mixed_blocks import Q4_K_M, with_mixed_blocks

PAGE, NUM_PAGES, NUM_SLOTS = 64, 1000, 64
DTYPE = jnp.dtype("bfloat16")
NUM_EARLIER = 16384
DRAFTS: dict[str, Callable[[Settings], Proposer]] = {
    "chains": lambda model: NgramProposer(2, 4),
    "trees": lambda model: NgramProposer(2, 4, 2),
    "suffixes": lambda model: SuffixProposer(1.0, 0.1),
    "EAGLE-3, chains": lambda model: Eagle.of(model, published_eagle(model.config)),
    "EAGLE-3, trees": lambda model: EagleTree.of_chain(Eagle.of(model, published_eagle(model.config)), 2),
    "n-grams or EAGLE-3": lambda model: LookupOrLearned(DRAFTS["chains"](model), DRAFTS["EAGLE-3, chains"](model)),
    "Medusa heads": lambda model: Medusa.of(model, MedusaHeads(4, model.config.d_model, UNKNOWN[:4])),
    "Medusa heads, typical acceptance": lambda model: DRAFTS["Medusa heads"](model),
    "layers skipped": lambda model: LayerSkip.of(model, SKIPPED),
    "layers skipped, rejection sampling": lambda model: LayerSkip.of(model, SKIPPED, keeps_laws=True),
}
SKIPPED = (12, 20)
RULES: dict[str, AcceptanceRule] = {
    "Medusa heads, typical acceptance": TypicalAcceptance(0.09, 0.3),
    "layers skipped, rejection sampling": RejectionSampling(),
}
"""Those of `DRAFTS` that are not accepted by being the token that is drawn."""


def published_eagle(target: ModelConfig) -> EagleConfig:
    """The draft that is published for Llama 3.1 8B: its sizes, but for a vocabulary of 32,000 tokens."""
    draft = replace(target, vocab_size=32_000, layer_stacks=(0,), is_tied=False)
    return EagleConfig(draft, None, target.vocab_size)


NF4 = Nf4Form().block_form()
OUTLIERS = ALL_SCHEMES["w8a8"].with_outliers(16)
FORMS = ALL_SCHEMES | GGML_FORMS | {form.name: form for form in (NF4, OUTLIERS)}


@dataclass(frozen=True)
class StepCase:
    """A named shape (`SHAPES`) on a mesh, in one bucket. drafts: what the engine drafts, a name in `DRAFTS`. draft: the
    shape of the draft model. None: there is none. scheme: by which weights are coded, a name in `FORMS`, or "Q4_K_M",
    whose layers differ."""

    mesh: Mesh
    name: str
    bucket: Bucket
    is_batch_invariant: bool = False
    drafts: str | None = None
    draft: str | None = None
    scheme: str | None = None

    @property
    def logit_share_bytes(self) -> int:
        """R·V·4 / TP: one device's share of the logits."""
        return 4 * self.bucket.num_heads * self._programs.vocab // num_shards(self.mesh, "vocab")

    @property
    def state(self) -> DeviceState:
        return self._programs.state

    def weight_copies(self, compiled: jax.stages.Compiled) -> list[str]:
        """What a compiled decode step of this case, or its layers, copy of the weights."""
        platform = self.mesh.devices.flat[0].platform
        return weight_copies(read_hlo(compiled.as_text()), self._programs.weights, self.bucket.num_tokens, platform)

    def traffic(self, compiled: jax.stages.Compiled, *parts: str) -> float:
        """Bytes that a compiled program of this case reads and writes, over those of the weights of these parts."""
        return self._num_bytes(compiled) / device_bytes({name: self._programs.params[name] for name in parts})

    def traffic_with_draft(self, compiled: jax.stages.Compiled, num_passes: int, num_draws: int) -> float:
        """Bytes that a step with a draft model reads and writes, over the weights of the target's layers and head and,
        as often as they are used, of the draft's layers and its head, which is its embedding."""
        target, draft = self._programs.params, self._programs.weights["draft"]
        weights = device_bytes([target["layers"], target["lm_head"]])
        weights += num_passes * device_bytes(draft["layers"]) + num_draws * device_bytes(draft["embed"])
        return self._num_bytes(compiled) / weights

    def _num_bytes(self, compiled: jax.stages.Compiled) -> int:
        pools = {local_type(pool) for pool in (self.state.kv.pool, *self.state.kv.extra.values())}
        return memory_traffic(read_hlo(compiled.as_text()), pools)

    def compile(self, **options: Any) -> jax.stages.Compiled:
        """The whole step, its state donated. options: of XLA, in addition to those of an engine."""
        with no_persistent_cache():
            return self._programs.step(self._bucket).lower().compile(compiler_options=options)

    def compile_draw(self) -> jax.stages.Compiled:
        """The draw of late rows, as many as the bucket has; the state is donated."""
        with no_persistent_cache():
            return self._programs.draw(self.bucket.num_rows).compile()

    def compile_draw_nodes(self) -> jax.stages.Compiled:
        """The draw of late rows with drafts, of a verify bucket; the state is donated."""
        with no_persistent_cache():
            return self._programs.draw_nodes(self._bucket).compile()

    def compile_backbone(self) -> jax.stages.Compiled:
        """Embedding and layers, the pool donated."""
        config, layout = self._model[0], self._programs.batch_layout(self._bucket)

        def backbone(params, pool, buffer, state):
            batch = unpack(layout, buffer, first_inputs(layout, buffer, state))
            ctx = Context(self.mesh, "auto")
            tokens, positions = batch.tokens, batch.positions
            hidden, pool, _ = transformer.forward(ctx, config, params, tokens, positions, batch.metas, pool)
            return hidden, pool

        params, state, buffer = self._programs.step(self._bucket).args
        pool, rest = state.kv.pool, replace(state, kv=None, slots=None)
        out = (replicated(self.mesh), pool.sharding)
        options = {"out_shardings": out, "compiler_options": compiler_options(self.mesh)}
        return compile_on(self.mesh, backbone, params, pool, buffer, rest, donate=(1,), **options)

    def compile_ends(self) -> jax.stages.Compiled:
        """Embedding and head, without the layers."""
        config, num_rows = self._model[0], self.bucket.num_rows

        def ends(params, tokens, hidden):
            ctx = Context(self.mesh, "auto")
            return transformer.embed(config, params, tokens), transformer.logits(ctx, config, params, hidden)

        inputs = on(self.mesh, (num_rows,), jnp.int32), on(self.mesh, (num_rows, config.d_model), DTYPE)
        return compile_on(self.mesh, ends, self._programs.params, *inputs, compiler_options=compiler_options(self.mesh))

    @cached_property
    def _bucket(self) -> Bucket:
        """With as many rounds as an engine on such devices has by default."""
        return replace(self.bucket, most_rounds=default_rounds(self.mesh.devices.flat[0].platform))

    @cached_property
    def _model(self) -> tuple[ModelConfig, Packing]:
        config, device = SHAPES[self.name], self.mesh.devices.flat[0]
        if self.scheme == Q4_K_M:
            return with_mixed_blocks(config, device)
        form = None if self.scheme is None else FORMS[self.scheme]
        if isinstance(form, BlockForm) and device.platform == "tpu":
            form = with_half_bits(form)
        return config, Packing(form, ALL_SCHEMES["w8a8"] if form == OUTLIERS else form)

    @cached_property
    def _programs(self) -> Programs:
        config, packing = self._model
        backend, tiles = "auto", None
        if self.is_batch_invariant:
            backend, tiles = INVARIANT, row_tiles(self.mesh.devices.flat[0].platform)
        model = Settings(config, self.mesh, DTYPE, PAGE, backend, packing=packing)
        proposer = None if self.drafts is None else DRAFTS[self.drafts](model)
        if self.draft is not None:
            proposer = DraftModel.of(model, SHAPES[self.draft])
        if proposer is not None:
            model = replace(model, extra=proposer.extra_arrays)
        rule = None if self.drafts is None else RULES.get(self.drafts)
        settings = StepSettings(model, max_logprobs=20, tiles=tiles, proposer=proposer, acceptance=rule)
        history_len = PAGE * self.bucket.num_columns if proposer is not None else 0
        num_earlier = NUM_EARLIER if self.drafts == "suffixes" else 0
        # An extra array of 1,000 pages would fit into the VMEM of a chip, to which libtpu then moves it and back.
        num_pages = NUM_PAGES if not model.extra else 4 * NUM_PAGES
        return Programs(
            settings,
            num_pages,
            NUM_SLOTS,
            history_len=history_len,
            num_earlier_tokens=num_earlier,
            num_draft_masks=self.bucket.num_tokens - self.bucket.num_rows if settings.has_late_drafts else 0,
        )
