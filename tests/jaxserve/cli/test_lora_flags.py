"""Adapters on the command line: `--lora`, those of batch files and of a server from its start, those of benchmarks."""

import asyncio
import json
import threading

import pytest

from jaxserve.cli import bench
from jaxserve.cli.bench_verbs.bench_adapters import engine_defaults
from jaxserve.cli.main import main
from jaxserve.core.errors import RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.engine.llm import LLM
from jaxserve.server.loading import start_loading
from tests.support.fakes.fake_adapters import fake_adapters
from tests.support.fakes.fake_llm import fake_llm


@pytest.fixture
def loads(monkeypatch):
    """The configurations of the models that were loaded, and what read their adapters."""
    loaded = []

    def fail(path):
        if path == "/bad":
            raise ValueError("adapter_config.json is missing")

    def load(config, **_):
        adapters, reader = fake_adapters(before=fail)
        loaded.append((config, reader))
        return fake_llm(adapters=adapters)

    monkeypatch.setattr(LLM, "from_config", load)
    return loaded


def generated(capsys, *options):
    code = main(["generate", "m", "--prompt", "x", "--max-tokens", "4", "--seed", "1", "--quiet", *options])
    return code, capsys.readouterr()


def test_generate_adds_an_adapter(loads, capsys):
    code, adapted = generated(capsys, "--lora", "/models/poet")
    ((config, reader),) = loads
    assert (code, config.enable_lora, config.max_loras) == (0, True, 1)
    assert reader.num_reads == {"/models/poet": 1}
    code, plain = generated(capsys)
    config, reader = loads[1]
    assert (code, config.enable_lora, reader.num_reads) == (0, False, {})
    assert adapted.out != plain.out  # the fake model's texts depend on the adapter
    generated(capsys, "--lora", "/models/poet", "--max-loras", "3")
    assert loads[2][0].max_loras == 3


def test_an_adapter_that_cannot_be_read_is_named(loads, capsys):
    code, shown = generated(capsys, "--lora", "/bad")
    assert code == 2
    assert "adapter_config.json is missing" in shown.err
    code, shown = generated(capsys, "--lora", "/models/poet", "--no-enable-lora")
    assert code == 2
    assert "--no-enable-lora" in shown.err


def line(name, **body):
    return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": {"prompt": "x", "seed": 1, **body}}


@pytest.fixture
def batch_of(tmp_path, capsys):
    def run(*lines, options=()):
        source = tmp_path / "in.jsonl"
        source.write_text("".join(json.dumps(each) + "\n" for each in lines))
        code = main(["batch", str(source), str(tmp_path / "out.jsonl"), *options])
        found = tmp_path / "out.jsonl"
        results = [json.loads(each) for each in found.read_text().splitlines()] if found.exists() else []
        return code, capsys.readouterr().err, {each["custom_id"]: each["response"]["body"] for each in results}

    return run


MODULES = ("--enable-lora", "--lora-modules", "poet=/models/poet", '{"name": "clerk", "path": "/models/clerk"}')


def test_lines_of_a_batch_file_name_adapters(loads, batch_of):
    lines = [line(name, model=name) for name in ("poet", "base", "clerk")] + [line("none")]
    code, said, found = batch_of(*lines, options=MODULES)
    assert code == 0, said
    ((config, _),) = loads
    assert config.model == "base"  # the first name that is no adapter's
    assert {name: body["model"] for name, body in found.items()} == {
        "poet": "poet",
        "base": "base",
        "clerk": "clerk",
        "none": "base",
    }
    texts = {name: body["choices"][0]["text"] for name, body in found.items()}
    assert texts["base"] == texts["none"]
    assert len({texts["poet"], texts["clerk"], texts["base"]}) == 3


def test_a_batch_is_refused_before_the_model_is_loaded(loads, batch_of):
    for lines, options, message in (
        ([line("a", model="poet")], MODULES, "names no model"),
        ([line("a", model="unknown")], ("--model", "m", *MODULES), "'unknown' is not 'm'"),
        ([line("a", model="m")], MODULES[1:], "--enable-lora"),
        ([line("a", model="poet")], ("--model", "poet", *MODULES), "give another"),
    ):
        code, said, _ = batch_of(*lines, options=options)
        assert (code, message in said) == (2, True), said
    assert not loads


def test_a_server_has_its_adapters_from_the_start(loads):
    async def serve(*paths):
        requests = [LoRARequest(path.strip("/"), path) for path in paths]
        engine = await start_loading(EngineConfig.create("m", enable_lora=True), requests, warm_up=False)
        try:
            return [adapter.name for adapter in engine.adapters]
        finally:
            await engine.close()

    assert asyncio.run(serve("/poet", "/clerk")) == ["poet", "clerk"]
    with pytest.raises(RequestError, match=r"adapter_config.json is missing"):
        asyncio.run(serve("/poet", "/bad"))
    assert not [thread for thread in threading.enumerate() if thread.name == "jaxserve-engine"]


def throughput(*flags):
    args = bench._parser().parse_args(["throughput", "m", *flags])
    return engine_defaults(args)


def test_a_benchmark_s_engine_has_room_for_its_adapters():
    assert throughput() == {}
    assert throughput("--num-adapters", "2000", "--adapter-rank", "32") == {
        "enable_lora": True,
        "max_lora_rank": 32,
        "max_cpu_loras": 2000,
    }
    for flag in ("--adapter-rank", "--adapter-skew"):
        with pytest.raises(RequestError, match="goes with --num-adapters"):
            throughput(flag, "1")


@pytest.mark.parametrize("flags", [("--num-adapters", "0"), ("--adapter-skew", "-1"), ("--adapter-skew", "nan")])
def test_bad_numbers_of_adapters_are_refused(flags):
    with pytest.raises(SystemExit):
        throughput("--num-adapters", "2", *flags)
