"""The effect of each server option, observed over HTTP."""

import json
import threading
import time

import pytest

from tests.support.fakes.fake_llm import Reciter, fake_llm
from tests.support.serving.http_server import NAME, running

CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}
ADMIN = {"Authorization": "Bearer admin"}


def events(answer):
    """The JSON of each event except the last."""
    parts = answer.text.strip().split("\n\n")
    assert parts[-1] == "data: [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts[:-1] if not part.startswith(":")]


def params_of(server, body, path="/v1/completions"):
    """The parameters of a request as they reach the engine."""
    outputs, seen = server.llm._outputs, []
    add = outputs.add
    outputs.add = lambda request: seen.append(request.params) or add(request)
    try:
        assert server.post(path, body).status_code == 200
    finally:
        outputs.add = add
    return seen[0]


THEIRS = {"temperature": 0.6, "top_k": 20, "max_new_tokens": 7, "eos_token_id": 5, "do_sample": True}


@pytest.mark.parametrize(("choice", "expected"), [("auto", (0.6, 20, 7)), ("none", (1.0, 0, 16))])
def test_a_model_s_sampling_defaults_rank_between_the_request_s_and_openai_s(choice, expected):
    with running(fake_llm(generation_config=THEIRS), generation_config=choice) as server:
        params = params_of(server, {"prompt": "x"})
        assert (params.temperature, params.top_k, params.max_tokens) == expected
        params = params_of(server, {"prompt": "x", "temperature": 0.9, "top_k": -1, "max_tokens": 3})
        assert (params.temperature, params.top_k, params.max_tokens) == (0.9, 0, 3)


def test_a_chat_fills_the_context_by_default():
    with running(fake_llm()) as server:
        assert params_of(server, {**CHAT, "max_tokens": None}, "/v1/chat/completions").max_tokens is None
        asked = {**CHAT, "max_tokens": None, "max_completion_tokens": 5}
        assert params_of(server, asked, "/v1/chat/completions").max_tokens == 5


def test_variables_of_the_template_have_defaults():
    template = "{{ mood }}:{{ messages[0].content }}"
    with running(fake_llm(template=template), default_chat_template_kwargs={"mood": "calm"}) as server:
        body = {"messages": CHAT["messages"]}
        tokens = server.post("/tokenize", body).json()["tokens"]
        assert bytes(tokens) == b"calm:x"
        other = server.post("/tokenize", {**body, "chat_template_kwargs": {"mood": "wild"}}).json()["tokens"]
        assert bytes(other) == b"wild:x"


def test_usage_can_be_forced_in_every_stream():
    with running(fake_llm(), enable_force_include_usage=True) as server:
        last = events(server.post("/v1/completions", {"prompt": "x", "max_tokens": 3, "stream": True}))[-1]
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 3)


def test_a_silent_stream_gets_comments():
    llm = fake_llm()
    collect = llm.parts.runner.collect
    llm.parts.runner.collect = lambda ticket: time.sleep(0.2) or collect(ticket)
    with running(llm, sse_keep_alive_s=0.03) as server:
        answer = server.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "stream": True})
    assert ": still here\n\n" in answer.text
    assert events(answer)[-1]["choices"][0]["finish_reason"] == "length"


def test_the_response_role_and_the_model_s_names():
    with running(fake_llm(), response_role="pirate") as server:
        answer = server.post("/v1/chat/completions", CHAT).json()
        assert (answer["choices"][0]["message"]["role"], answer["model"]) == ("pirate", NAME)
        sent_back = [*CHAT["messages"], {"role": "pirate", "content": "arr"}, *CHAT["messages"]]
        read = server.post("/tokenize", {"messages": sent_back, "return_token_strs": True}).json()
        assert "[assistant]arr" in "".join(read["token_strs"])
        error = server.post("/tokenize", {"messages": [{"role": "parrot", "content": "arr"}]}).json()["error"]
        assert error["param"] == "messages[0].role"


def test_a_profile_is_recorded_between_start_and_stop(tmp_path):
    with running(fake_llm(), admin_key="admin", profile_dir=str(tmp_path / "trace")) as server:
        assert server.post("/start_profile", {}, headers=ADMIN).status_code == 200
        assert server.post("/start_profile", {}, headers=ADMIN).status_code == 400
        server.post("/v1/completions", {"prompt": "x"})
        assert server.post("/stop_profile", {}, headers=ADMIN).status_code == 200
        assert server.post("/stop_profile", {}, headers=ADMIN).status_code == 400
    assert [path for path in (tmp_path / "trace").rglob("*") if path.is_file()]


def test_the_admin_can_reset_the_prefix_cache():
    prompt = {"prompt": "abcdefgh" * 4, "max_tokens": 1}
    with running(fake_llm(prefix_eviction="lru"), admin_key="admin") as server:

        def cached():
            return server.post("/v1/completions", prompt).json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert (cached(), cached()) == (0, 28)
        server.post("/reset_prefix_cache", {}, headers=ADMIN)
        assert cached() == 0


def test_prompts_share_prefixes_only_with_equal_salts():
    with running(fake_llm(prefix_eviction="lru")) as server:

        def cached(salt):
            body = {"prompt": "abcdefgh" * 4, "max_tokens": 1, "cache_salt": salt}
            return server.post("/v1/completions", body).json()["usage"]["prompt_tokens_details"]["cached_tokens"]

        assert [cached("a"), cached("b"), cached("a"), cached(None)] == [0, 0, 28, 0]


def test_tokenize_and_detokenize():
    with running(fake_llm()) as server:
        text = "hello naïve 😀<|im_end|>"
        answer = server.post("/tokenize", {"prompt": text, "return_token_strs": True}).json()
        assert (answer["count"], answer["max_model_len"]) == (len(answer["tokens"]), 96)
        assert len(answer["token_strs"]) == answer["count"]
        assert server.post("/detokenize", {"tokens": answer["tokens"]}).json() == {"prompt": text}
        assert server.post("/detokenize", {"tokens": [99999]}).status_code == 400
        info = server.get("/tokenizer_info").json()
        assert (info["eos_token"], info["bos_token"]) == ("<|end|>", "<|im_end|>")


def test_streams_of_several_clients_do_not_mix():
    said = [{}, {}]

    def ask(server, i):
        body = {"prompt": "ab"[i], "max_tokens": 40, "stream": True, "n": 2}
        for event in events(server.post("/v1/completions", body)):
            for choice in event["choices"]:
                said[i][choice["index"]] = said[i].get(choice["index"], "") + choice["text"]

    with running(fake_llm(Reciter(264, said="abc; "))) as server:
        threads = [threading.Thread(target=ask, args=(server, i)) for i in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert all(text in "abc; " * 20 and len(text) == 40 for texts in said for text in texts.values())
    assert [sorted(texts) for texts in said] == [[0, 1], [0, 1]]
