"""`jaxserve bench serve` as started by users, against a scripted server in real time; no result depends on timing."""

import json
import signal
import subprocess
import sys
import time

import pytest

from jaxserve.bench.serving import benchmark
from jaxserve.bench.serving.client.server_target import clean_url
from jaxserve.bench.serving.report.run_report import RunReport
from jaxserve.cli.main import main
from jaxserve.core.errors import ConfigError
from tests.repository.modules import ROOT
from tests.support.serving.scripted_server import (
    MODEL,
    Refusal,
    Step,
    Stream,
    answer,
    chat_chunk,
    served_in_thread,
    text_chunk,
    usage_chunk,
)

SHORT = ["--random-input-len", "12", "--random-output-len", "3", "--quiet"]
# Runs the verb where importing jax is an error.
WITHOUT_JAX = """
import sys
from tests.repository.import_without_jax import Blocker
sys.meta_path.insert(0, Blocker())
from jaxserve.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def good(body) -> Stream:
    return answer(0.0, 0.0, tokens=body["max_tokens"], prompt_tokens=len(body["prompt"].split()))


def test_runs_of_several_concurrencies_are_measured_and_kept(tmp_path, capsys):
    page = tmp_path / "page.html"
    arguments = ["--max-concurrency", "1,3", "--num-prompts", "7", "--num-warmups", "2", "--report", str(page)]
    saved = ["--save-result", "--result-dir", str(tmp_path / "results"), "--save-detailed"]
    with served_in_thread(good) as server:
        asked = [
            "--base-url",
            f"{server.url}/v1/",
            "--ignore-eos",
            "--extra-body",
            '{"top_k": 3}',
            "--api-key",
            "k-123",
        ]
        assert main(["bench", "serve", *asked, *arguments, *saved, *SHORT]) == 0
    shown = capsys.readouterr().out
    assert shown.count("Serving Benchmark Result") == 2
    records = [json.loads(path.read_text()) for path in sorted((tmp_path / "results").iterdir())]
    assert [record["max_concurrency"] for record in records] == [1, 3]
    for record in records:
        assert (record["completed"], record["failed"], record["total_output_tokens"]) == (7, 0, 21)
        assert record["input_lens"] == [12] * 7
        assert record["max_concurrent_requests"] <= record["max_concurrency"]
        assert record["model_id"] == MODEL
    assert server.most <= 3
    assert len(server.bodies) == 2 + 7 + 7
    assert {json.dumps({k: v for k, v in body.items() if k != "prompt"}) for body in server.bodies} == {
        json.dumps(
            {"model": MODEL, "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 3}
            | {"temperature": 0.0, "ignore_eos": True, "top_k": 3}
        )
    }
    assert len({body["prompt"] for body in server.bodies}) == 16  # no run repeats another run's prompts
    assert all("Authorization: Bearer k-123" in head for head in server.headers)
    kept = [*(tmp_path / "results").iterdir(), page]
    assert not [path for path in kept if "k-123" in path.read_text("utf-8")]


@pytest.mark.parametrize("asked", [["--endpoint", "chat"], ["--backend", "openai-chat"]])
def test_chats_are_measured_too(asked, capsys):
    def chat(body):
        texts = [Step(0, chat_chunk({"role": "assistant", "content": ""})), Step(0, chat_chunk({"content": "hi"}))]
        return Stream([*texts, Step(0, chat_chunk({}, "stop")), Step(0, usage_chunk(30, 1)), Step(0, "[DONE]")])

    with served_in_thread(chat) as server:
        arguments = ["--base-url", server.url, *asked, "--num-prompts", "2", "--request-rate", "1e6"]
        assert main(["bench", "serve", *arguments, *SHORT]) == 0
    assert "Total input tokens:                      60 " in capsys.readouterr().out
    assert [list(body["messages"][0]) for body in server.bodies] == [["role", "content"]] * 2
    assert server.bodies[0]["max_completion_tokens"] == 3


def test_the_record_is_json_and_tells_how_many_requests_there_were(tmp_path, capsys):
    (tmp_path / "p.txt").write_text("a\nb\nc\n")
    data = ["--dataset-name", "custom", "--dataset-path", str(tmp_path / "p.txt"), "--custom-output-len", "2"]
    load = ["--request-rate", "1e6", "--burstiness", "inf", "--goodput", "ttft:0", "--goodput", "e2el:1e6"]
    saved = ["--save-result", "--result-dir", str(tmp_path), "--result-filename", "r.json"]
    with served_in_thread(good) as server:
        assert main(["bench", "serve", "--base-url", server.url, *data, *load, *saved, "--quiet"]) == 0
    record = json.loads((tmp_path / "r.json").read_text(), parse_constant=pytest.fail)
    assert (record["burstiness"], record["num_prompts"]) == ("inf", 3)
    assert record["goodput_ms"] == {"ttft": 0.0, "e2el": 1e6}


def test_runs_that_were_measured_are_kept_where_the_server_goes_away(tmp_path, monkeypatch):
    write, asked = benchmark.build_requests, []

    async def gone(*given, **more):
        asked.append(given)
        if len(asked) == 2:
            raise ConfigError("cannot reach it")
        return await write(*given, **more)

    monkeypatch.setattr(benchmark, "build_requests", gone)
    kept = ["--save-result", "--result-dir", str(tmp_path / "r"), "--report", str(tmp_path / "page.html")]
    with served_in_thread(good) as server:
        arguments = ["--base-url", server.url, "--max-concurrency", "1,2", "--num-prompts", "2"]
        assert main(["bench", "serve", *arguments, *kept, *SHORT]) == 2
    assert len(list((tmp_path / "r").iterdir())) == 1
    assert (tmp_path / "page.html").exists()


def test_the_page_is_written_also_where_the_record_cannot_be(tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError("the disk is full")

    monkeypatch.setattr(RunReport, "save", full)
    kept = ["--save-result", "--result-dir", str(tmp_path / "new"), "--report", str(tmp_path / "page.html")]
    with served_in_thread(good) as server:
        assert main(["bench", "serve", "--base-url", server.url, "--num-prompts", "1", *kept, *SHORT]) == 2
    assert "the disk is full" in capsys.readouterr().err
    assert (tmp_path / "page.html").exists()


def test_token_ids_are_sent_where_that_is_asked_for():
    with served_in_thread(lambda body: answer(0.0, tokens=1)) as server:
        arguments = ["--base-url", server.url, "--prompt-token-ids", "--num-prompts", "3"]
        assert main(["bench", "serve", *arguments, *SHORT]) == 0
    assert [(len(body["prompt"]), {type(i) for i in body["prompt"]}) for body in server.bodies] == [(12, {int})] * 3


def test_a_trace_is_replayed_in_its_order(tmp_path):
    trace = tmp_path / "t.jsonl"
    rows = [
        {"timestamp": t, "input_length": n, "output_length": n, "hash_ids": [n]}
        for t, n in ((9000, 3), (0, 5), (40, 4))
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with served_in_thread(good) as server:
        arguments = [
            "--dataset-name",
            "trace",
            "--dataset-path",
            str(trace),
            "--trace-speed",
            "1000",
            "--max-concurrency",
            "1",
        ]
        assert main(["bench", "serve", "--base-url", server.url, *arguments, "--quiet"]) == 0
    assert [body["max_tokens"] for body in server.bodies] == [5, 4, 3]


def test_lines_of_a_file_may_have_token_ids_and_salts_but_not_in_chats(tmp_path, capsys):
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt_token_ids": [4, 5], "output_len": 2, "cache_salt": "s"}\n')
    with served_in_thread(lambda body: answer(0.0, tokens=1)) as server:
        flags = ["--base-url", server.url, "--dataset-name", "custom", "--dataset-path", str(file), "--quiet"]
        assert main(["bench", "serve", *flags]) == 0
        assert main(["bench", "serve", *flags, "--endpoint", "chat"]) == 2
    assert "prompts of token ids need --endpoint completions" in capsys.readouterr().err
    assert [(body["prompt"], body["cache_salt"]) for body in server.bodies] == [([4, 5], "s")]


def test_refusals_end_with_code_1_and_their_reason(capsys):
    with served_in_thread(lambda body: Refusal(503, json.dumps({"error": {"message": "full"}}))) as server:
        assert main(["bench", "serve", "--base-url", server.url, "--num-prompts", "4", *SHORT]) == 1
    shown = capsys.readouterr().out
    assert "Failed requests:                         4 " in shown
    assert f"{'HTTP 503:':<40} {4:<10} full\n" in shown


def test_it_runs_where_jax_is_not():
    with served_in_thread(good) as server:
        arguments = ["--base-url", server.url, "--tokenizer", "smollm2-135m-instruct", "--num-prompts", "2", *SHORT]
        command = [sys.executable, "-c", WITHOUT_JAX, "bench", "serve", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Successful requests:                     2 " in done.stdout
    assert not [head for head in server.headers if "/tokenize" in head]  # counted by the server


# Background processes of a shell ignore interrupts, and so would a child of these tests.
LISTENING = """
import signal, sys
from jaxserve.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main())
"""


def test_an_interrupt_shows_what_has_been_done():
    hang = Stream([Step(0, text_chunk("a")), Step(3600, None)])
    with served_in_thread(lambda body: good(body) if len(server.bodies) <= 2 else hang) as server:
        arguments = ["--base-url", server.url, "--num-prompts", "9", "--max-concurrency", "2", *SHORT]
        command = [sys.executable, "-c", LISTENING, "bench", "serve", *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        with subprocess.Popen(command, cwd=ROOT, **pipes) as process:
            try:
                while len(server.bodies) < 4 and process.poll() is None:
                    time.sleep(0.01)
                process.send_signal(signal.SIGINT)
                shown, said = process.communicate(timeout=60)
            finally:
                process.kill()
        assert process.returncode == 130, said
    assert "Successful requests:                     2 " in shown
    assert "interrupted: 2 requests were in flight, 5 were not sent" in shown
    assert "Traceback" not in said


MISTAKES = {
    "dataset's flag": (["--sharegpt-output-len", "3"], "--sharegpt-output-len"),
    "no file": (["--dataset-name", "custom"], "--dataset-path"),
    "file": (["--dataset-path", __file__], "leave out --dataset-path"),
    "concurrency": (["--max-concurrency", "1,0"], "--max-concurrency"),
    "twice": (["--max-concurrency", "4,4"], "--max-concurrency"),
    "endpoint": (["--endpoint", "/v1/embeddings"], "--endpoint"),
    "goodput": (["--goodput", "itl:5"], "--goodput"),
    "percentile": (["--metric-percentiles", "101"], "--metric-percentiles"),
    "metric": (["--percentile-metrics", "ttft,x"], "--percentile-metrics"),
    "body": (["--extra-body", "[1]"], "--extra-body"),
    "ids in chats": (["--endpoint", "chat", "--prompt-token-ids"], "--prompt-token-ids"),
    "nothing saved": (["--save-detailed"], "--save-result"),
    "rate": (["--request-rate", "0"], "request_rate"),
    "ramp": (["--ramp-up-strategy", "linear"], "ramp_up_start_rps"),
    "lengths": (["--random-input-len", "0"], "random_input_len"),
    "url": (["--base-url", "localhost:8000"], "base_url"),
    "two addresses": (["--base-url", "http://a", "--port", "80"], "--base-url"),
    "speed of no trace": (["--trace-speed", "2"], "--trace-speed"),
    "bursts without a rate": (["--burstiness", "0.5"], "burstiness"),
    "not json": (["--extra-body", '{"a": NaN}'], "--extra-body"),
    "infinite": (["--extra-body", '{"a": 1e999}'], "--extra-body"),
    "backend": (["--backend", "tgi"], "--backend"),
    "two endpoints": (["--backend", "openai-chat", "--endpoint", "completions"], "--backend"),
    "password": (["--base-url", "http://user:sesame@a"], "base_url must have no user"),
    "folder in a name": (["--save-result", "--result-filename", "nope/b.json"], "--result-filename"),
    "folder in a label": (["--save-result", "--label", "a/b"], "--label"),
    "file as a folder": (["--save-result", "--result-dir", __file__], "--result-dir"),
    "folder as a page": (["--report", "."], "--report"),
    "nobody there": (["--base-url", "http://127.0.0.1:1"], "cannot reach"),
}


@pytest.mark.parametrize(("flags", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_names_its_flag(flags, message, capsys):
    try:
        code = main(["bench", "serve", *flags])
    except SystemExit as stop:
        code = stop.code
    said = capsys.readouterr().err
    assert code == 2
    assert message in said
    assert "sesame" not in said


@pytest.mark.parametrize("url", ["", "ftp://a", "http://", "http://a:99999", "http://a/?q", "http://[::1", "a:1"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError, match="base_url"):
        clean_url(url)


def test_addresses_are_understood_with_and_without_the_version():
    for url in ("https://h/x", "https://h/x/", "https://h/x/v1", "https://h/x/v1/"):
        assert clean_url(url) == "https://h/x"
