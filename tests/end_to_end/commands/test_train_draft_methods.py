"""`jaxserve train-draft` trains EAGLE-3 drafts and finds layers to skip, and an engine drafts with them."""

import json

import pytest

from jaxserve import LLM
from jaxserve.cli.main import main
from jaxserve.core.options.speculative_config import SpeculativeConfig
from tests.support.drafting import always, draft_counts
from tests.support.golden_data import checkpoint
from tests.support.processes.command_line import check_mistake_here
from tests.support.tiny_engines import SMALL, tiny_engine

pytestmark = pytest.mark.usefixtures("as_optax_adds")

ENGINE = ["--dtype", "float32", "--num-pages", "200"]
OPTIONS = ["--learning-rate", "0.02", *ENGINE]


@pytest.mark.thorough
def test_an_eagle_draft_is_trained_and_used(tmp_path, capsys):
    out, model = tmp_path / "draft", str(checkpoint("llama3"))
    sizes = ["--num-tokens", "2000", "--text-len", "32", "--max-steps", "50", "--epochs", "100"]
    assert main(["train-draft", model, "--method", "eagle3", "--out", str(out), *sizes, *OPTIONS]) == 0
    shown = capsys.readouterr().err
    assert "an EAGLE-3 draft of 80 tokens, right one after the other in a share of" in shown
    options = json.loads(shown.rpartition("--speculative-config '")[2].partition("'")[0])
    assert options == {"method": "eagle3", "model": str(out), "num_speculative_tokens": 3}
    assert (out / "training.html").read_text().count("<th>depth ") == 3
    llm = always(LLM(model, speculative_config=options | {"eagle_topk": 2}, **SMALL))
    assert draft_counts(llm)[1] > 0


@pytest.mark.parametrize("method", ["eagle3", "layer_skip"])
def test_methods_that_take_layers_apart_need_dense_weights(method, tmp_path, capsys):
    options = ["--method", method, "--out", str(tmp_path), "--quantization", "int8", "--quiet", *ENGINE]
    message = f"--method {method} needs dense weights: leave --quantization out"
    check_mistake_here(["train-draft", str(checkpoint("llama3")), *options], message, capsys)


@pytest.mark.thorough
def test_layers_to_skip_are_found_and_used(tmp_path, capsys):
    out, model = tmp_path / "skips", str(checkpoint("llama3"))
    sizes = ["--num-tokens", "500", "--text-len", "32"]
    assert main(["train-draft", model, "--method", "layer_skip", "--out", str(out), *sizes, *ENGINE]) == 0
    found = json.loads((out / "skips.json").read_text())
    options = json.loads(capsys.readouterr().err.rpartition("--speculative-config '")[2].partition("'")[0])
    assert options["skip_layers"] == found[-1]["skipped"]
    llm = always(tiny_engine("llama3", speculative_config=SpeculativeConfig(**options)))
    assert draft_counts(llm)[0] > 0
