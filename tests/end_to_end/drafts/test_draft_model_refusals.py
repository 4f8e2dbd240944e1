"""Engines whose draft model has no KV, and models that cannot draft."""

import shutil
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest

from jaxserve import LLM
from jaxserve.core.errors import ConfigError
from jaxserve.engine.build.model_text import check_same_tokens
from jaxserve.runner.drafts.draft_model import DraftModel
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.end_to_end.drafts.test_draft_model import LONG, drafting, texts
from tests.jaxserve.text.small_vocab import byte_level
from tests.support.drafting import counted
from tests.support.eagle_drafts import random_draft, saved
from tests.support.golden_data import checkpoint, goldens
from tests.support.tiny_engines import SMALL, tiny_engine


@pytest.mark.thorough
def test_control_a_draft_without_its_kv_is_often_wrong():
    prompts = [golden.prompt for golden in goldens("llama3")]

    def read_nothing(self, params, state, batch):
        lens = state.draft_lens.at[batch.slots].set(batch.ends)  # as if it had read them
        return state.replace(draft_lens=lens)

    with patch.object(DraftModel, "read", read_nothing):
        llm = drafting("llama3", "llama3", max_logprobs=3)
        with counted(llm) as seen:
            found = texts(llm, prompts, LONG)
    assert found == texts(tiny_engine("llama3"), prompts, LONG), "but the text is the model's"
    proposed, accepted = np.sum(seen, axis=0)
    assert accepted < 0.8 * proposed


def test_a_tokenizer_of_other_tokens_is_refused_with_the_first_that_differs():
    own = SimpleNamespace(token_bytes=[b"a", b"b", b"c"])
    check_same_tokens(own, SimpleNamespace(token_bytes=[b"a", b"b", b"c"]))
    check_same_tokens(own, None)
    for other, message in (
        ([b"a", b"x", b"c"], r"it has 3 tokens, the model's has 3; token 1 is b'b' and b'x'\. Drafts must be tokens"),
        ([b"a", b"b"], r"it has 2 tokens, the model's has 3\. Drafts must be tokens of the model"),
    ):
        with pytest.raises(ConfigError, match=message):
            check_same_tokens(own, SimpleNamespace(token_bytes=other))


def test_the_drafts_own_tokenizer_is_compared_whatever_the_options_of_the_models(tmp_path):
    named, draft = tmp_path / "named", tmp_path / "draft"
    named.mkdir()
    tokenizer_from_gguf(byte_level()).backend.save(str(named / "tokenizer.json"))
    shutil.copytree(checkpoint("llama3"), draft)
    text = (named / "tokenizer.json").read_text()
    (draft / "tokenizer.json").write_text(text.replace("<tool>", "<call>"))

    def error(target, **options):
        given = {"method": "draft_model", "model": str(draft), "num_speculative_tokens": 3}
        with pytest.raises(ConfigError) as caught:
            LLM(str(target), speculative_config=given, **SMALL | options)
        return str(caught.value)

    found = error(checkpoint("llama3"), tokenizer=str(named))
    assert "the draft model's tokenizer is another: it has 264 tokens" in found
    assert "b'<tool>' and b'<call>'" in found
    (draft / "tokenizer.json").unlink()  # one without a tokenizer is not asked for one
    found = error(checkpoint("mistral"), tokenizer=str(named), escape_special_tokens=True)
    assert "all layers of the model have a window" in found


def test_a_model_that_cannot_draft_is_refused():
    options = {"method": "draft_model", "num_speculative_tokens": 3}
    for target, model, message in (
        ("llama3", "smollm2-135m", "the draft model has a vocabulary of 49152 tokens, the model one of"),
        ("mistral", "llama3", "all layers of the model have a window"),
    ):
        given = {"model": model if "smol" in model else str(checkpoint(model))}
        load = {"load_format": "dummy", "skip_tokenizer_init": True} if "smol" in model else {}
        with pytest.raises(ConfigError, match=message):
            LLM(str(checkpoint(target)), speculative_config=options | given, **SMALL | load)


@pytest.mark.parametrize("method", ["draft_model", "eagle3", "auto"])
def test_drafts_with_kv_of_their_own_are_refused_where_positions_are_dropped(method, tmp_path):
    """The policy moves the first tokens' KV, and knows only the model's."""
    model = {"model": str(checkpoint("llama3"))}
    if method != "draft_model":
        model = {"model": saved(tmp_path / "draft", random_draft("llama3", 40))}
    given = {"method": method, "num_speculative_tokens": 3} | model
    if method == "auto":
        given["learned"] = "eagle3"
    policy = {"name": "streaming", "num_sinks": 3, "window": 40}
    with pytest.raises(ConfigError, match=f"drafts of '{method}'") as refusal:
        LLM(str(checkpoint("llama3")), speculative_config=given, kv_policy=policy, **SMALL)
    assert refusal.value.param == "kv_policy"
