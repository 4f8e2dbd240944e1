"""A header that is written describes the same model when it is read; a model that none describes is refused."""

from dataclasses import replace

import pytest

from jaxserve.core.errors import ConfigError
from jaxserve.models.config.rope import LongRope, Rope
from jaxserve.models.families import registry
from jaxserve.models.families.named_shapes import SHAPES
from jaxserve.models.families.to_gguf import to_gguf


def with_rope(model, rope):
    return model.map_kinds(lambda kind: replace(kind, attention=replace(kind.attention, rope=rope)))


def read(model):
    metadata, tables = to_gguf(model)
    factors = {name: tuple(map(float, table)) for name, table in tables.items()}
    return registry.from_gguf(metadata, is_tied=model.is_tied, rope_tables=factors)


@pytest.mark.parametrize("name", SHAPES)
def test_named_models_are_read_back(name):
    """Their numbers are float32 in a file; here they are as they were."""
    model = SHAPES[name]
    has_tables = bool(to_gguf(model)[1])
    found = replace(read(model), family=model.family, dtype=model.dtype, bos_id=model.bos_id, eos_ids=model.eos_ids)
    if has_tables:
        factors, wanted = (m.kinds[0].attention.rope.factors for m in (found, model))
        assert factors == pytest.approx(wanted, rel=1e-6)
        found = with_rope(found, model.kinds[0].attention.rope)
    assert found == model


def test_scaled_ropes_are_read_back():
    for name, ropes in {
        "qwen3-8b": [Rope(1e6, (4.0,) * 64)],
        "phi-4": [
            Rope(1e4, (1.5,) * 63 + (2.0,), 1.25),
            Rope(1e4, None, 1.25, dim=96, long=LongRope((2.0,) * 48, 4096)),
        ],
        "llama-3-8b": [Rope(5e5, (1.5,) * 63 + (2.0,), 1.25)],
    }.items():
        for rope in ropes:
            found = read(with_rope(SHAPES[name], rope)).kinds[0].attention.rope
            assert found == rope


def test_other_models_are_refused_by_name():
    qwen, gemma = SHAPES["qwen3-8b"], SHAPES["gemma-3-1b"]
    others = {
        "family 'other' have no GGUF form": replace(qwen, family="other"),
        "'qwen3' have no tables of rope factors": with_rope(qwen, Rope(1e6, (1.5,) * 63 + (2.0,))),
        "cannot say attn_logit_softcapping = 50.0|attn_logit_softcapping": gemma.map_kinds(
            lambda kind: replace(kind, attention=replace(kind.attention, softcap=50.0))
        ),
        "cannot say layer_types": replace(gemma, layer_stacks=gemma.layer_stacks[::-1]),
        "cannot say query_pre_attn_scalar": gemma.map_kinds(
            lambda kind: replace(kind, attention=replace(kind.attention, query_scale=0.5))
        ),
    }
    for said, model in others.items():
        with pytest.raises(ConfigError, match=said):
            to_gguf(model)
