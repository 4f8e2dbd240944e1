"""Every field of every body, fuzzed: each response is a refusal by name or the requested result.

`scripts/prove serving` sends more bodies to a real model.
"""

import traceback
from collections import Counter
from itertools import islice

import pytest

from jaxserve.server.calls import stream_events
from jaxserve.server.openai.requests.generation_fields import SamplingFields
from jaxserve.server.openai.responses.chat_response import ChatResponse
from tests.support.fakes.fake_llm import all_pages_are_back
from tests.support.fakes.real_grammars import engines_with_grammars
from tests.support.serving.body_fuzz import body_schemas, cases
from tests.support.serving.fuzz_client import fuzz
from tests.support.serving.http_server import running, until

NUM_CASES, NUM_WITH_FAULT = 1200, 400


@pytest.fixture
def server():
    options = {"trust_request_chat_template": True, "admin_key": "key"}
    with engines_with_grammars() as make, running(make(prefix_eviction="lru"), **options) as server:
        yield server


def drawn(server, number):
    return list(islice(cases(body_schemas(server.get("/openapi.json").json()), seed=0), number))


def cause_of_death(server):
    """The traceback of what ended the engine, if it has ended."""
    death = server.state.engine._thread.death
    return "".join(traceback.format_exception(death.result())) if death.done() else "the engine lives"


def test_no_body_damages_the_server(server):
    found = fuzz(server.url, drawn(server, NUM_CASES))
    assert not found.faults, cause_of_death(server)
    assert found.statuses.total() == NUM_CASES
    assert 0.25 < found.num_accepted / NUM_CASES < 0.6
    until(lambda: server.state.num_active == 0 and not server.llm.parts.engine.has_work)
    meters = server.state.engine.metrics
    assert (meters.num_running, meters.num_waiting, len(meters._live)) == (0, 0, 0)
    assert server.post("/reset_prefix_cache", {}, headers={"Authorization": "Bearer key"}).status_code == 200
    assert all_pages_are_back(server.llm)
    assert server.post("/v1/completions", {"prompt": "x", "max_tokens": 3}).json()["usage"]["completion_tokens"] == 3
    assert server.get("/health").status_code == 200


def test_every_field_of_every_body_is_fuzzed(server):
    counts: Counter[tuple[str, str]] = Counter()
    for case in drawn(server, NUM_CASES):
        counts.update((case.path, name) for name in (case.body if isinstance(case.body, dict) else ()))
    schemas = body_schemas(server.get("/openapi.json").json())
    assert len(schemas) >= 5
    rare = [(path, name) for path in schemas for name in schemas[path]["properties"] if counts[path, name] < 6]
    assert not rare


def test_a_field_whose_value_breaks_the_server_is_found(server, monkeypatch, caplog):
    def broken(self, longest_s):
        return {1: {}}[self.n]

    monkeypatch.setattr(SamplingFields, "scheduling", broken)
    found = fuzz(server.url, drawn(server, NUM_WITH_FAULT))
    assert any("failed; 500" in fault for fault in found.faults)
    assert "KeyError" in caplog.text


def test_a_stream_without_its_end_is_found(server, monkeypatch):
    monkeypatch.setattr(stream_events, "DONE", b"")
    assert fuzz(server.url, drawn(server, NUM_WITH_FAULT)).faults


def test_missing_choices_are_found(server, monkeypatch):
    monkeypatch.setattr(ChatResponse, "whole", lambda self, outputs: {"choices": []})
    assert fuzz(server.url, drawn(server, NUM_WITH_FAULT)).faults
