"""Wiring: models as pure functions, without an engine.

    import jax, jax.numpy as jnp
    from jaxserve import pure

    model = pure.load("smollm2-135m-instruct", dtype="float32")
    prefill = jax.jit(pure.prefill, static_argnums=0, donate_argnames="cache")
    decode = jax.jit(pure.decode, static_argnums=0, donate_argnames="cache")

    tokens, lengths = jnp.array([[504, 3575, 282, 4649], [4, 5, 0, 0]]), jnp.array([4, 2])
    cache = pure.init_cache(model.settings, batch_size=2, max_len=256)
    logits, cache = prefill(model.settings, model.params, tokens, lengths, cache)           # [B, V]
    logits, cache = decode(model.settings, model.params, logits.argmax(-1), cache)

    hidden, taps = pure.forward(model.settings, model.params, tokens, layers=(0, 5))        # [B, T, D], [2, B, T, D]
    logits = pure.logits(model.settings, model.params, hidden)                              # [B, T, V]

`prefill` and `decode` run the engine's own layers, kernels and page layout, and return its numbers. `forward` keeps
no cache, uses dense attention, and can be differentiated. `model.settings` is hashable and static; the weights
(named in `jaxserve.models.params`) and the cache are pytrees. All of them work under `jit`, in `scan`
and under `vmap` over weights; outside `jit` they are slow. Settings and weights of a running engine serve as well:
`llm.parts.runner.settings.model` and `llm.parts.runner.params`.
"""

from jaxserve.engine.pure_model import PureModel, load
from jaxserve.functional.forward_steps import decode, forward, logits, prefill
from jaxserve.functional.kv_cache import Cache, init_cache
from jaxserve.models.model_settings import Settings

__all__ = ["Cache", "PureModel", "Settings", "decode", "forward", "init_cache", "load", "logits", "prefill"]
