"""Drafts whose context is shorter than the engine's, or with which texts are not the model's, are warned of."""

import json
import shutil

import pytest

from jaxserve import LLM
from jaxserve.core.options.speculative_config import SpeculativeConfig
from jaxserve.engine.build.draft_warnings import warn_of_other_texts, warn_of_short_context
from jaxserve.models.config.eagle_config import EagleConfig
from jaxserve.models.config.medusa_heads import UNKNOWN, MedusaHeads
from jaxserve.models.families.named_shapes import SHAPES
from tests.support.golden_data import checkpoint
from tests.support.tiny_engines import SMALL

SHAPE = SHAPES["llama-2-7b"]  # of 4096 tokens


@pytest.mark.parametrize(
    ("draft", "is_short"),
    [
        (SHAPE, True),
        (EagleConfig(SHAPE, None, SHAPE.vocab_size), True),
        (SHAPES["llama-3-8b"], False),
        (MedusaHeads(1, SHAPE.d_model, UNKNOWN[:1]), False),
        (None, False),
    ],
    ids=["model", "layer", "long", "heads", "none"],
)
def test_only_a_shorter_context_is_warned_of(draft, is_short, caplog):
    warn_of_short_context(draft, 8192)
    expected = (
        "the draft's context has 4096 tokens, the engine's 8192 (max_model_len): few drafts are accepted beyond it"
    )
    assert caplog.messages == [expected] * is_short


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({}, ""),
        ({"acceptance": "typical"}, "acceptance='typical' is not lossless"),
        ({"synthetic_acceptance": 0.5}, "texts are not the model's: synthetic_acceptance"),
    ],
)
def test_drafts_that_change_texts_are_warned_of(options, start, caplog):
    warn_of_other_texts(SpeculativeConfig(method="ngram", num_speculative_tokens=3, **options))
    assert len(caplog.messages) == bool(options)
    assert all(message.startswith(start) for message in caplog.messages)


def test_an_engine_warns_while_it_is_built(tmp_path, caplog):
    draft = shutil.copytree(checkpoint("llama3"), tmp_path / "draft")
    config = json.loads((draft / "config.json").read_text()) | {"max_position_embeddings": 64}
    (draft / "config.json").write_text(json.dumps(config))
    options = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 3, "acceptance": "typical"}
    LLM(str(checkpoint("llama3")), speculative_config=options, **SMALL)
    assert "the draft's context has 64 tokens, the engine's 128" in caplog.text
    assert "acceptance='typical' is not lossless" in caplog.text
