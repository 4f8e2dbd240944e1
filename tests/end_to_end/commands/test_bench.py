"""`jaxserve bench` on random weights of a tiny configuration: every figure is reported, and errors name the flag."""

import json
import shutil
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from jaxserve.cli.main import main
from tests.support.golden_data import checkpoint
from tests.support.naive_loop import NaiveModel
from tests.support.processes.command_line import check_mistake_here
from tests.support.tiny_engines import SMALL, flags_of

FLAGS = flags_of(SMALL)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """Runs a benchmark and returns its JSON record."""
    folder = tmp_path_factory.mktemp("bench")
    shutil.copy(checkpoint("llama3") / "config.json", folder)

    def run(benchmark: str, *args: str) -> dict:
        out = folder / "out.json"
        flags = [*FLAGS, "--load-format", "dummy", "--json", str(out), *args]
        assert main(["bench", benchmark, str(folder), *flags]) == 0
        return json.loads(out.read_text())

    return run


def test_throughput_says_all_there_is_to_say(bench, capsys):
    lens = ["--num-prompts", "6", "--input-len", "2:20", "--output-len", "3:9"]
    report = bench("throughput", *lens, "--repeats", "2", "--quiet")
    assert report["completed"] == 12
    assert len(report["elapsed_s"]) == 2
    assert report["total_token_throughput"] == pytest.approx(report["input_throughput"] + report["output_throughput"])
    steps = report["steps"]
    # The model computes all tokens except the last one of each request.
    assert steps["num_tokens"] == report["total_input_tokens"] + report["total_output_tokens"] - report["completed"]
    assert 0 <= steps["token_padding"] < 1
    assert 0 <= steps["idle_share"] <= steps["host_share"] + 0.05
    assert report["timed"]["num_executables"] == report["timed"]["num_compiled"] == 0
    assert report["warm_up"]["num_executables"] >= 2
    assert report["memory"]["rss_bytes"] > 2**20
    assert report["options"]["max_num_seqs"] == report["limits"]["max_num_seqs"] == 8
    assert {"model", "dtype", "hardware", "versions", "date", "workload"} <= report.keys()
    shown, progress = capsys.readouterr()
    assert "output tokens/s" in shown
    assert "decode" in shown
    assert progress == ""


@pytest.mark.thorough
def test_throughput_with_adapters(bench, capsys):
    lens = ["--num-prompts", "8", "--input-len", "2:6", "--output-len", "3", "--repeats", "1", "--quiet"]
    report = bench("throughput", *lens, "--num-adapters", "5", "--adapter-rank", "3", "--max-loras", "2")
    assert report["completed"] == 8
    named = {"num_adapters": 5, "adapter_rank": 3, "adapter_skew": 0.0}
    assert named.items() <= report["workload"].items()
    assert report["adapters_loaded"] > 2  # idle ones give way to others
    assert "5 of rank 3, skew 0, 2 on the device" in capsys.readouterr().out


def test_latency_has_three_times_and_four_figures_of_each(bench, capsys):
    report = bench("latency", "--batch-size", "2", "--input-len", "20", "--output-len", "5", "--repeats", "3")
    assert report["completed"] == 6
    for name in ("ttft", "tpot", "e2el"):
        p50, p90, p99 = (report[f"{p}_{name}_ms"] for p in ("p50", "p90", "p99"))
        assert 0 < p50 <= p90 <= p99
    assert report["mean_e2el_ms"] == pytest.approx(report["mean_ttft_ms"] + 4 * report["mean_tpot_ms"])
    shown, progress = capsys.readouterr()
    assert "time to first token" in shown
    assert "timed pass 3 of 3" in progress


@pytest.mark.thorough
def test_prompts_come_from_a_file_and_all_buckets_can_be_compiled_first(bench, tmp_path):
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt_token_ids": [1] * n, "output_len": n}) + "\n" for n in (3, 4, 5)))
    report = bench("throughput", "--dataset", str(file), "--warmup", "all", "--repeats", "1", "--quiet")
    assert (report["total_input_tokens"], report["total_output_tokens"]) == (12, 12)
    assert report["timed"]["num_executables"] == 0


MISTAKES = {
    "range": (["throughput", "x", "--input-len", "9:3"], "--input-len"),
    "count": (["throughput", "x", "--repeats", "0"], "--repeats"),
    "folder": (["latency", "x", "--json", "/no/such/folder/out.json"], "--json"),
    "dataset": (["throughput", "x", "--dataset", "no-such-file"], "--dataset"),
    "lengths of a file": (["throughput", "x", "--dataset", __file__, "--input-len", "5"], "--input-len"),
    "benchmark": (["frobnicate", "x"], "frobnicate"),
    "unknown": (["latency", "x", "--frobnicate", "1"], "--frobnicate"),
    "option": (["latency", "x", "--page-size", "7"], "page_size"),
    "warm-up": (["latency", "x", "--warmup", "some"], "--warmup"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_name_their_flag(name, capsys):
    args, message = MISTAKES[name]
    try:
        code = main(["bench", *args])
    except SystemExit as stop:
        code = stop.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_a_workload_longer_than_the_context_is_refused(tmp_path, capsys):
    shutil.copy(checkpoint("llama3") / "config.json", tmp_path)
    args = ["latency", str(tmp_path), *FLAGS, "--load-format", "dummy", "--input-len", "120", "--output-len", "9"]
    assert main(["bench", *args]) == 2
    assert "--max-model-len" in capsys.readouterr().err


def test_help_is_shown_without_jax(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(SystemExit) as stop:
        main(["bench", "throughput", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "--num-prompts" in shown
    assert "--max-num-seqs" in shown


@pytest.mark.thorough
def test_spec_compares_drafts_with_plain_decoding(bench, tmp_path, capsys):
    page = tmp_path / "page.html"
    drafts = ["--drafts", '{"method": "suffix", "num_speculative_tokens": 4}']
    sizes = ["--num-prompts", "4", "--output-len", "12:20", "--repeats", "2"]
    report = bench("spec", *drafts, *sizes, "--report", str(page), "--max-model-len", "192")
    (result,) = report["drafts"]
    assert result["name"] == "suffix"
    assert result["options"] == {"method": "suffix", "num_speculative_tokens": 4}
    assert result["tokens_per_s"] > 0 < result["plain_tokens_per_s"]
    assert result["acceptance"] == sorted(result["acceptance"], reverse=True)
    assert len(result["acceptance"]) <= 4
    assert result["tokens_a_pass"] == pytest.approx(1 + sum(result["acceptance"]))
    assert 0 <= result["num_accepted"] <= result["num_drafted"]
    split = result["time_split"]  # rows draft where that is faster, perhaps in no traced step
    assert split is None or sum(split.values()) == pytest.approx(1)
    assert split is None or split.keys() == {"drafting", "verifying", "other", "host"}
    shown, progress = capsys.readouterr()
    assert "tokens a pass" in shown
    assert "timed pass 2 of 2" in progress
    assert page.read_text().count("<tr>") == 13 + len(result["acceptance"])
    check_mistake_here(["bench", "spec", "m", "--drafts", "[]"], "must be a JSON object", capsys)
    check_mistake_here(["bench", "spec", "m", "--drafts", '{"method": "x"}'], "num_speculative_tokens", capsys)


@pytest.mark.thorough
def test_quality_compares_forms_of_the_weights_on_a_text(tmp_path, capsys):
    model, text, out = str(checkpoint("llama3")), tmp_path / "text", tmp_path / "out.json"
    text.write_text("A lighthouse stands on a rock in the sea. " * 20)
    bytes_alone = models.BPE({char: i for i, char in enumerate(pre_tokenizers.ByteLevel.alphabet())}, [])
    tokenizer = Tokenizer(bytes_alone)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    given = ["--text", str(text), "--dtype", "float32", "--context", "32", "--tokenizer", str(tmp_path)]
    command = ["bench", "quality", model, *given]
    page = tmp_path / "page.html"
    assert main([*command, "--max-pieces", "3", "--json", str(out), "--report", str(page)]) == 0
    report = json.loads(out.read_text())
    dense, packed, coded = report["models"]
    pieces = np.asarray(tokenizer.encode(text.read_text()).ids[:96]).reshape(3, 32)
    assert report["tokens"] == pieces.size
    losses = [
        -log_softmax(logits)[np.arange(31), piece[1:]]
        for piece in pieces
        for logits in [NaiveModel.load(model).logits(piece)[:-1]]
    ]
    assert dense["perplexity"] == pytest.approx(np.exp(np.mean(losses)), rel=1e-5)
    assert (dense["divergence"], dense["agreement"]) == (0, 1)
    assert 0 < packed["divergence"] < coded["divergence"] < 0.01
    assert 0.25 <= packed["num_bytes"] / dense["num_bytes"] < 0.3
    assert "perplexity" in capsys.readouterr().out
    assert [(found["packed"], found["decoded"]) for found in report["models"]] == [("", ""), ("int8", ""), ("w8a8", "")]
    assert page.read_text().count("<tr>") == 10
    assert page.read_text().count("<svg") == 2
    check_mistake_here([*command, "--context", "1"], "must have at least 2 tokens", capsys)
    check_mistake_here([*command, "--context", "9999"], "fewer than a piece of 9999", capsys)
    check_mistake_here(["bench", "quality", model, "--text", str(tmp_path / "none")], "none", capsys)
    (tmp_path / "latin").write_bytes(b"\xe9")
    check_mistake_here([*command, "--text", str(tmp_path / "latin")], "is not UTF-8 text", capsys)
    other = tmp_path / "other" / checkpoint("llama3").name  # models whose paths end alike have their paths as names
    shutil.copytree(checkpoint("llama3"), other, ignore=shutil.ignore_patterns("*.npz"))
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"vocab_size": 512}))
    two = ["bench", "quality", model, str(other), *given, "--load-format", "dummy", "--quantizations", "dense"]
    check_mistake_here([*two, "--json", str(out)], f"{other}, dense has a vocabulary of 512 tokens, not 320", capsys)
    assert len(json.loads(out.read_text())["models"]) == 1, "what was measured before is written"


def log_softmax(logits):
    logits = logits.astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
