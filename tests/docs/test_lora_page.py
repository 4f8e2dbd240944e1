"""docs/lora.md matches the code: its options are those of the engine, and its examples run."""

import re
import shlex
from dataclasses import fields

import pytest

import jaxserve
from jaxserve.cli import bench, serve
from jaxserve.cli.args.dataclass_flags import engine_options, given
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.server.server_config import ServerConfig
from tests.end_to_end.api.test_recipes import blocks
from tests.repository.modules import ROOT
from tests.support.fakes.fake_adapters import fake_adapters
from tests.support.fakes.fake_llm import fake_llm
from tests.support.serving.http_server import running

PAGE = (ROOT / "docs" / "lora.md").read_text(encoding="utf-8")


def test_the_options_have_the_engine_s_defaults():
    defaults = {f.name: {False: "off"}.get(f.default, str(f.default)) for f in fields(EngineConfig) if "lora" in f.name}
    rows = re.findall(r"^\| `(\w*lora\w*)` \| (\w+) \|", PAGE, re.MULTILINE)
    assert dict(rows) == defaults


def test_calls_and_counters_exist():
    calls = set(re.findall(r"llm\.(\w+)", PAGE)) - {"generate", "stats"}
    assert {"load_adapter", "unload_adapter", "adapters"} <= calls
    assert [name for name in calls if not hasattr(jaxserve.LLM, name)] == []
    stats = fake_llm().parts.engine.scheduler.stats
    named = re.findall(r"`(num_\w+)`", PAGE)
    assert len(named) == 4
    assert [name for name in named if not hasattr(stats, name)] == []


@pytest.fixture(scope="module")
def server():
    adapters, _ = fake_adapters("poet", "clerk")
    with running(fake_llm(adapters=adapters)) as server:
        yield server


def test_the_examples_run(server, monkeypatch, capsys):
    adapters, reader = fake_adapters()
    monkeypatch.setattr(jaxserve, "LLM", lambda model, **options: fake_llm(adapters=adapters), raising=False)
    namespace = {"__name__": "page"}
    shown = []
    for line, source in blocks(PAGE):
        there = source.replace("http://127.0.0.1:8000", server.url)
        exec(compile("\n" * (line - 1) + there, "docs/lora.md", "exec"), namespace)
        shown.append(capsys.readouterr().out)
    assert reader.num_reads == {"adapters/poet": 1, "adapters/clerk": 1}
    assert re.search(r"lora_name='poet'.*lora_name='clerk'.*\bNone\b", shown[0], re.DOTALL)
    assert "['fake', 'poet', 'clerk']" in shown[1]


def test_the_commands_parse():
    found = re.findall(r"^(?:`)?(jaxserve (?:serve|bench) [^`\n]+)", PAGE, re.MULTILINE)
    assert len(found) == 2
    for command in found:
        verb, *words = shlex.split(command)[1:]
        args = (
            {"serve": serve, "bench": bench}[verb]._parser().parse_args([word.replace("MODEL", "m") for word in words])
        )
        EngineConfig.create("m", **engine_options(args))
        if verb == "serve":
            assert [
                module.request.lora_name for module in ServerConfig(**given(args, ServerConfig)).adapter_modules
            ] == [
                "poet",
                "clerk",
            ]
