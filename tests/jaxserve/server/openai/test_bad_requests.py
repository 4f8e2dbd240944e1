"""Invalid and unsupported fields are refused by name, with the expected status, before they reach the engine."""

import difflib
from dataclasses import fields

import pytest

from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.server.openai.requests.generation_fields import SAMPLING_FIELDS, GenerationFields
from jaxserve.server.openai.requests.unsupported_fields import IGNORED, INSTEAD, UNSUPPORTED
from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
from tests.jaxserve.text.small_vocab import byte_level
from tests.support.fakes.fake_llm import all_pages_are_back, fake_llm
from tests.support.serving.http_server import NAME, running

COMPLETION = {"prompt": "x", "max_tokens": 2}
CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
PATHS = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT}

BAD = {
    "temperature": [-0.1, 1.1e6, "1", True, [1]],
    "top_p": [0, 1.1, "x"],
    "top_k": [-2, 1.5],
    "min_p": [-0.1, 1.1],
    "n": [0, 129, "2", 1.5],
    "max_tokens": [-2, "5", 1.5, 1 << 40],
    "min_tokens": [-1, 90, 3],
    "presence_penalty": [-2.1, 2.1],
    "frequency_penalty": [-2.1, 2.1],
    "repetition_penalty": [0, -1],
    "seed": [1 << 63, 1 << 64, 10**30, -(1 << 63) - 1, "x", 0.5],
    "stop": [["a"] * 17, [""], 5, [1]],
    "stop_token_ids": [[-1], [1 << 20], "x"],
    "logit_bias": [{"x": 1}, {"5": "y"}, [1], {"9999": 1}],
    "allowed_token_ids": [[], [1 << 20]],
    "bad_words": [["a"] * 129, "x"],
    "prompt_logprobs": [-2, 6],
    "cache_salt": ["", "a" * 129, "a/b", 5],
    "truncate_prompt_tokens": [0, -2, 97],
    "truncation_side": ["middle", "left"],
    "stream_options": [5, {"include_usag": True}, {"include_usage": 1}, {"include_obfuscation": True}],
    "request_id": ["", "a b", "a" * 129],
    "priority": [1, "high"],
    "tenant": ["a", ""],
    "deadline_s": [0, -1, "soon"],
    "queue_timeout_s": [0, -1],
    "model": ["other", 5],
    "no_such_field": [1, None],
    "tools": [[{"type": "function"}]],
    "response_format": [
        5, {}, {"type": "xml"}, {"type": ["text"]}, {"type": "text", "schema": {}}, {"type": "json_schema"},
        {"type": "json_schema", "json_schema": {"name": "a"}}, {"type": "json_schema", "json_schema": {"schema": {}}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": [1]}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "strict": "yes"}},
        {"type": "json_schema", "json_schema": {"name": "a", "schema": {}, "other": 1}},
        {"type": "structural_tag", "structures": [5], "triggers": []}, {"type": "structural_tag", "structures": []},
    ],
    "structured_outputs": [5, "json", [], {}, {"json": None}, {"jsn": {}}, {"regex": "a", "json": {}}, {"regex": ""}],
    "guided_decoding_backend": ["xgrammar"],
    "grammar_lazy": [True],
    "use_beam_search": [True],
    "best_of": [2],
    "regex": ["", 5],
    "mirostat": [2],
    "cache_prompt": ["yes", 1],
}  # fmt: skip
ONLY_COMPLETIONS = {
    "prompt": [None, "", [], [[]], [[1], "x"], ["x", 5], [-1], [9999], {"a": 1}, "x" * 97, [1] * 96, ["x"] * 1025],
    "logprobs": [-2, 6, True],
    "max_tokens": [0],
    "messages": [[]],
}
ONLY_CHAT = {
    "messages": [None, [], "x", [{}], [{"role": "user", "content": [{"type": "image_url"}]}], [5]],
    "top_logprobs": [1, -2, 6],
    "logprobs": [1],
    "chat_template": ["{{ messages }}", "x"],
    "chat_template_kwargs": [5, {"messages": []}, {"self": 1}],
    "continue_final_message": ["x"],
    "max_completion_tokens": [0, 3],
    "prompt": ["x"],
}
CASES = [(path, name, value) for path in PATHS for name, values in BAD.items() for value in values]
CASES += [("/v1/completions", name, value) for name, values in ONLY_COMPLETIONS.items() for value in values]
CASES += [("/v1/chat/completions", name, value) for name, values in ONLY_CHAT.items() for value in values]


@pytest.fixture(scope="module")
def server():
    with running(fake_llm()) as server:
        yield server
    assert all_pages_are_back(server.llm)


@pytest.fixture(scope="module")
def client(server):
    with server.http() as client:
        yield client


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_bad_value_is_refused_by_name_before_any_header(client, is_streamed):
    """None means an absent field."""
    wrong = []
    for path, name, value in CASES:
        body = {**PATHS[path], **({"stream": True} if is_streamed and name != "stream_options" else {}), name: value}
        if name == "min_tokens" and value == 3:
            body["max_tokens"] = 2
        answer = client.post(path, json=body)
        error = answer.json().get("error", {}) if answer.headers["content-type"] == "application/json" else {}
        names = f"{error.get('param')} {error.get('message')}"
        if (
            answer.status_code not in (400, 404)
            or name not in names
            or set(error) != {"message", "type", "param", "code"}
        ):
            wrong.append((path, name, str(value)[:40], answer.status_code, answer.text[:200]))
    assert not wrong


def test_ignored_fields_and_nulls_change_nothing(client):
    for path, body in PATHS.items():
        plain = client.post(path, json={**body, "seed": 1}).json()
        inert = (
            dict.fromkeys(IGNORED, "x") | dict.fromkeys(UNSUPPORTED) | {"temperature": None, "stop": None, "n": None}
        )
        neutral = {name: values[0] for name, values in UNSUPPORTED.items() if values}
        for extra in (inert, neutral):
            answer = client.post(path, json={**extra, **body, "seed": 1})
            assert answer.status_code == 200, answer.text
            assert _said(answer.json()) == _said(plain)


def test_an_unsupported_field_is_refused_by_name(client):
    for name in UNSUPPORTED:
        answer = client.post("/v1/completions", json={**COMPLETION, name: "surely not neutral"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, name)


def test_a_misspelled_field_gets_a_suggestion(client):
    answer = client.post("/v1/completions", json={**COMPLETION, "temprature": 1})
    assert "did you mean 'temperature'" in answer.json()["error"]["message"]


def test_only_the_start_of_a_long_name_is_compared_and_shown(client, monkeypatch):
    """Comparing four million characters took a second."""
    compare, compared = difflib.get_close_matches, []
    monkeypatch.setattr(
        difflib, "get_close_matches", lambda name, *args, **how: compared.append(name) or compare(name, *args, **how)
    )
    error = client.post("/v1/completions", json={**COMPLETION, "é" * 100_000: 1}).json()["error"]
    assert compared == [error["param"]] == ["é" * 100]
    assert len(error["message"]) < 200


def test_null_within_stream_options_means_absent_and_unknown_fields_are_refused(client):
    def ask(**options):
        return client.post("/v1/completions", json={**COMPLETION, "stream": True, "stream_options": options})

    assert ask(include_usage=None, continuous_usage_stats=None).text.count('"usage"') == 0
    assert ask(include_usage=True, include_obfuscation=None).text.count('"total_tokens"') == 1
    assert ask(no_such_field=None).status_code == 400


def test_tokenize_refuses_fields_that_would_have_no_effect(client):
    def refused(**body):
        return client.post("/tokenize", json=body).json().get("error", {}).get("param")

    messages = CHAT["messages"]
    assert refused(messages=messages, add_special_tokens=True) is None
    assert refused(messages=messages, add_generation_prompt=False) is None
    assert refused(prompt="x", add_special_tokens=True) is None
    for name, value in {"add_generation_prompt": True, "chat_template_kwargs": {}, "chat_template": "{{ 1 }}"}.items():
        assert refused(prompt="x", **{name: value}) == name


def refusal(client, path, **fields):
    """(param, message) of the refusal; (None, "") if the body is accepted."""
    answer = client.post(path, json={**PATHS.get(path, {}), **fields})
    error = answer.json().get("error", {})
    assert answer.status_code == (400 if error else 200), answer.text
    return error.get("param"), error.get("message", "")


def test_an_unsupported_field_says_what_to_use_instead(client):
    assert set(INSTEAD) <= set(UNSUPPORTED)
    expected = {
        "mirostat": (2, "use top_p, top_k or min_p"),
        "dry_multiplier": (0.8, "use frequency_penalty"),
        "stop_regex": ("a+", "use stop"),
        "grammar_lazy": (True, "use structured_outputs with a structural_tag"),
        "guided_decoding_backend": ("xgrammar", "llguidance is the only one here"),
        "n_probs": (5, "use logprobs"),
        "lora": ([{"id": 0, "scale": 1.0}], "name the adapter as the model"),
    }
    for path in PATHS:
        for name, (value, hint) in expected.items():
            param, message = refusal(client, path, **{name: value})
            assert (param, message.startswith(f"{name} is not supported: {hint}")) == (name, True), message


def test_a_field_of_another_endpoint_is_not_unknown(client):
    bodies = {"/v1/completions": {"messages": []}, "/v1/chat/completions": {"prompt": "x"}}
    bodies["/v1/embeddings"] = {"input": "x", "messages": CHAT["messages"]}
    for path, body in bodies.items():
        _, message = refusal(client, path, **body)
        assert "is not supported: send " in message


def test_other_servers_names_mean_the_fields_here(client):
    def text(**fields):
        answer = client.post("/v1/completions", json={"prompt": "x", "ignore_eos": True, "logprobs": 1, **fields})
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"], answer.json()["usage"]

    own = {"max_tokens": 6, "seed": 3, "min_tokens": 2}
    other = {"n_predict": 6, "sampling_seed": 3, "min_new_tokens": 2, "repeat_penalty": 1, "cache_prompt": False}
    assert text(**own) == text(**other, **own) == text(**other)
    assert text(n_predict=-1)[1]["total_tokens"] == 96
    assert text(max_tokens=5, tools=[], stream_options={"include_usage": True}, temperature=40)
    assert client.post("/v1/completions", json={**COMPLETION, "rid": "mine"}).json()["id"] == "cmpl-mine"


def test_cache_prompt_is_the_opposite_of_skipping_the_cache():
    with running(fake_llm(prefix_eviction="lru")) as server:

        def num_cached(**fields):
            body = {**COMPLETION, "prompt": "a cached prompt of many tokens", **fields}
            return server.post("/v1/completions", body).json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        num_cached()
        assert num_cached(cache_prompt=True) == num_cached() > 0
        assert num_cached(cache_prompt=False) == 0


def test_enable_thinking_is_a_variable_of_the_template():
    template = "{{ enable_thinking }}{{ messages[0].content }}"
    with running(fake_llm(template=template)) as server:
        for fields in ({"enable_thinking": False}, {"chat_template_kwargs": {"enable_thinking": False}}):
            answer = server.post("/tokenize", {"messages": CHAT["messages"], **fields, "return_token_strs": True})
            assert "".join(answer.json()["token_strs"]) == "Falsex"
        assert server.post("/tokenize", {"prompt": "x", "enable_thinking": None}).status_code == 200
        assert server.post("/tokenize", {"prompt": "x", "enable_thinking": True}).status_code == 400
        both = {"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}
        error = server.post("/v1/chat/completions", {**CHAT, **both}).json()["error"]
        assert error["message"] == "enable_thinking and chat_template_kwargs.enable_thinking differ: send one"


def test_two_names_of_a_field_must_agree(client):
    for path in PATHS:
        for alias, name, values in (
            ("repeat_penalty", "repetition_penalty", (1.1, 1.2)),
            ("n_predict", "max_tokens", (3, 4)),
        ):
            assert refusal(client, path, **{alias: values[0], name: values[0]}) == (None, "")
            param, message = refusal(client, path, **{alias: values[0], name: values[1]})
            assert (param, message) == (alias, f"{alias} and {name} differ: send one")
        assert refusal(client, path, cache_prompt=True, skip_reading_prefix_cache=True)[0] == "cache_prompt"


def test_all_bad_keys_of_logit_bias_are_named(client):
    _, message = refusal(client, "/v1/completions", logit_bias={"9998": 1, "9999": 1, "5": 1})
    assert "9998; 9999" in message
    _, message = refusal(client, "/v1/completions", logit_bias={"x": 1, "5": "y", "-1": 1, "6": 1})
    assert all(part in message for part in ("'x': ", "'5': ", "'-1': "))
    assert "'6'" not in message
    _, message = refusal(client, "/v1/completions", logit_bias={f"x{i}": 1 for i in range(300)})
    assert message.endswith("and 290 more")


@pytest.mark.parametrize("seed", [1 << 63, 1 << 64, 10**30, -(1 << 63) - 1])
def test_a_seed_out_of_range_is_named_as_that(client, seed):
    param, message = refusal(client, "/v1/completions", seed=seed)
    assert (param, message) == ("seed", f"seed is out of range: it must be from {-(1 << 63)} to {(1 << 63) - 1}")


def test_tokenize_adds_special_tokens_around_rendered_messages_on_request():
    tokenizer = tokenizer_from_gguf(byte_level(bos_token_id=262, add_bos_token=True, eos_token_id=261))
    with running(fake_llm(tokenizer=tokenizer)) as server:
        tokens = {
            adds: server.post("/tokenize", {"messages": CHAT["messages"], "add_special_tokens": adds}).json()["tokens"]
            for adds in (None, False, True)
        }
    assert tokens[None] == tokens[False]
    assert tokens[True] == [262, *tokens[False]]


def test_the_error_of_a_long_prompt_has_the_text_that_clients_match(client):
    for prompt in ("x" * 97, "x" * 100_000, [1] * 96):
        answer = client.post("/v1/completions", json={**COMPLETION, "prompt": prompt})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
        assert "maximum context length is 96 tokens" in error["message"]


def test_a_bad_prompt_s_error_names_its_field(client):
    long = "x" * 200
    bodies = {
        "/v1/completions": [{"prompt": long}, {"prompt": ""}, {"prompt": [9999]}],
        "/v1/chat/completions": [{"messages": [{"role": "user", "content": long}]}],
        "/v1/embeddings": [{"input": long}, {"input": ""}, {"input": ["a", long]}, {"input": [9999]}],
    }
    told = {path: {client.post(path, json=body).json()["error"]["param"] for body in bodies[path]} for path in bodies}
    assert told == {
        "/v1/completions": {"prompt"}, "/v1/chat/completions": {"messages"}, "/v1/embeddings": {"input"},
    }  # fmt: skip


def test_a_truncated_prompt_fits(client):
    body = {**COMPLETION, "prompt": "abcdef" * 30, "echo": True, "max_tokens": 1}
    left = client.post("/v1/completions", json={**body, "truncate_prompt_tokens": 5}).json()["choices"][0]["text"]
    right = {"truncate_prompt_tokens": 5, "truncation_side": "right"}
    assert left.startswith("bcdef")
    assert client.post("/v1/completions", json={**body, **right}).json()["choices"][0]["text"].startswith("abcde")
    for max_tokens in (1, 50, 200):
        cut = {"truncate_prompt_tokens": -1, "max_tokens": max_tokens}
        most = client.post("/v1/completions", json={**body, **cut}).json()
        assert (most["usage"]["prompt_tokens"], most["usage"]["completion_tokens"]) == (95, 1)


def test_a_prompt_that_fits_is_not_truncated_for_long_outputs(client):
    for cut in ({}, {"truncate_prompt_tokens": -1}):
        body = {"prompt": "abcdefghij", "max_tokens": 96, "ignore_eos": True, **cut}
        usage = client.post("/v1/completions", json=body).json()["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (10, 86)


@pytest.mark.parametrize(
    ("raw", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"", "application/json", 400),
        (b"[1]", "application/json", 400),
        (b"NaN", "application/json", 400),
        (b'{"prompt": "x", "temperature": NaN}', "application/json", 400),
        (b'{"prompt": "\\ud800"}', "application/json", 400),
        (b'{"prompt": "\xff"}', "application/json", 400),
        (b"[" * 5000, "application/json", 400),
        (b'{"prompt": "x"}', "text/plain", 415),
        (b'{"prompt": "x"}', None, 415),
    ],
)
def test_a_body_that_is_not_json_is_refused(client, raw, kind, status):
    answer = client.post("/v1/completions", content=raw, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == status
    assert "error" in answer.json()


def test_unknown_paths_and_methods(client):
    assert client.get("/v1/nothing").status_code == 404
    assert client.get("/v1/completions").status_code == 405
    assert client.post("/health").status_code == 405
    assert {client.get(path).json()["error"]["type"] for path in ("/v1/nothing", "/..%2f..%2fetc/passwd")} == {
        "NotFoundError"
    }


def _said(answer):
    choices = answer["choices"]
    return [choice.get("text", choice.get("message")) for choice in choices], answer["usage"], answer["model"] == NAME


def test_every_accepted_field_of_sampling_reaches_the_engine():
    common = set(GenerationFields.model_fields) & {field.name for field in fields(SamplingParams)}
    assert common - set(SAMPLING_FIELDS) == {"structured_outputs"}  # `response_format` can state it, too
    with running(fake_llm()) as server:
        answer = server.post("/v1/completions", COMPLETION | {"kv_policy": True})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "kv_policy")
