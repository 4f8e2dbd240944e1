"""The engine's step of a model of real shape, compiled for a mesh of TPUs: nothing of it is ever allocated."""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxserve.core.buckets import Bucket
from jaxserve.core.sharding import TENSOR, replicated
from jaxserve.models import transformer
from jaxserve.models.kv import kv_layout
from jaxserve.models.layers import Context
from jaxserve.models.params import declare, targets, vocab_width
from jaxserve.models.shapes import SHAPES
from jaxserve.runner.batch import unpack
from jaxserve.runner.pack import BatchLayout
from jaxserve.runner.state import MAX_EDITS, DeviceState
from jaxserve.runner.steps import StepSettings, step
from jaxserve.sampling.batch import init_slot_state
from tests.support.aot import compile_on, on

PAGE, NUM_PAGES, NUM_SLOTS = 64, 1000, 64
DTYPE = jnp.dtype("bfloat16")


@dataclass(frozen=True)
class StepCase:
    """A named shape (`SHAPES`) on a mesh, in one bucket."""

    mesh: Mesh
    name: str
    bucket: Bucket

    @property
    def logit_share_bytes(self) -> int:
        """S·V·4 / TP: one device's share of the logits."""
        width = vocab_width(self._config, self.mesh)
        return 4 * self.bucket.num_rows * width // self.mesh.shape[TENSOR]

    @cached_property
    def state(self) -> DeviceState:
        layout = kv_layout(self._config, self.mesh, PAGE, DTYPE)
        pool = jax.ShapeDtypeStruct(layout.shape(NUM_PAGES), DTYPE, sharding=layout.sharding(self.mesh))
        slots = jax.eval_shape(lambda: init_slot_state(NUM_SLOTS, vocab_width(self._config, self.mesh), MAX_EDITS))
        column = on(self.mesh, (NUM_SLOTS + 1,), jnp.int32)
        return DeviceState(pool, column, column, jax.tree.map(lambda a: on(self.mesh, a.shape, a.dtype), slots))

    def compile(self) -> jax.stages.Compiled:
        """The whole step, its state donated."""
        settings = StepSettings(self._config, self.mesh, "auto", max_logprobs=20)
        out = (jax.tree.map(lambda a: a.sharding, self.state), *[replicated(self.mesh)] * 2)
        function = partial(step, settings, self._layout)
        return compile_on(self.mesh, function, self._params, self.state, self._buffer, donate=(1,), out_shardings=out)

    def compile_backbone(self) -> jax.stages.Compiled:
        """Embedding and layers, the pool donated."""

        def backbone(params, pool, buffer, state):
            batch = unpack(self._layout, buffer, state)
            ctx = Context(self.mesh, "auto", batch.sampling.adapter[batch.token_rows])
            tokens, positions = batch.tokens, batch.positions
            hidden, pool, _ = transformer.forward(ctx, self._config, params, tokens, positions, batch.metas, pool)
            return hidden, pool

        pool, rest = self.state.pool, replace(self.state, pool=None, slots=None)
        out = (replicated(self.mesh), pool.sharding)
        return compile_on(self.mesh, backbone, self._params, pool, self._buffer, rest, donate=(1,), out_shardings=out)

    @property
    def _config(self):
        return SHAPES[self.name]

    @property
    def _layout(self) -> BatchLayout:
        return BatchLayout(self.bucket, self._config.kv_groups(PAGE), self._config.group_ranges)

    @property
    def _params(self):
        return targets(declare(self._config, self.mesh, DTYPE), self.mesh)

    @property
    def _buffer(self) -> jax.ShapeDtypeStruct:
        return on(self.mesh, (self._layout.size,), jnp.int32)
