"""Chat: the template's text and tokens, the model's answer; errors name conversation and field."""

import pytest

from jaxserve import SamplingParams
from jaxserve.core.errors import ConfigError, RequestError
from jaxserve.core.options.engine_config import EngineConfig
from jaxserve.engine.build.model_text import choose_chat_template
from jaxserve.text.chat_template import ChatTemplate
from tests.support.fakes.fake_llm import PLAIN_TEMPLATE, all_pages_are_back, fake_llm

HI = [{"role": "user", "content": "hello"}]
LONG = [*HI, {"role": "assistant", "content": "hello, "}]
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
PARAMS = SamplingParams(seed=1, max_tokens=9, ignore_eos=True)
RENDERINGS = {
    "plain": (HI, {}, "[user]hello<|end|>[assistant]"),
    "no generation prompt": (HI, {"add_generation_prompt": False}, "[user]hello<|end|>"),
    "the final message goes on": (
        LONG,
        {"add_generation_prompt": False, "continue_final_message": True},
        "[user]hello<|end|>[assistant]hello, ",
    ),
    "tools": (HI, {"tools": [TOOL]}, "(look_up)[user]hello<|end|>[assistant]"),
    "an effort": (HI, {"reasoning_effort": "low", "chat_template": "{{ reasoning_effort }}"}, "low"),
    "a thought": (HI, {"reasoning_effort": "none", "chat_template": "{{ enable_thinking }}"}, "False"),
    "a template of the call's own": (HI, {"chat_template": "{{ messages[0].content }}!"}, "hello!"),
    "variables": (
        HI,
        {
            "chat_template": "{% if enable_thinking %}<tool>{% endif %}",
            "chat_template_kwargs": {"enable_thinking": True},
        },
        "<tool>",
    ),
}


def tokens_of(outputs):
    return [(o.prompt, o.prompt_token_ids, [c.token_ids for c in o.outputs]) for o in outputs]


@pytest.mark.parametrize("name", RENDERINGS)
def test_a_chat_completes_the_rendered_template(name):
    messages, options, text = RENDERINGS[name]
    llm = fake_llm()
    if "chat_template" not in options:
        text = "<|im_end|>" + text  # the template writes the beginning-of-text token itself
    rendered = llm.render_chat(messages, **options)
    assert rendered["prompt"] == text
    assert rendered["prompt_token_ids"] == llm.get_tokenizer().encode(text, add_special_tokens=False)
    answers = llm.chat(messages, PARAMS, use_tqdm=False, **options)
    assert tokens_of(answers) == tokens_of(llm.generate(rendered, PARAMS, use_tqdm=False))
    pieces = list(llm.stream(rendered, PARAMS))
    assert [t for piece in pieces for t in piece.outputs[0].token_ids] == answers[0].outputs[0].token_ids


def test_the_rendering_is_the_templates_own():
    options = {"tools": [TOOL], "add_generation_prompt": True}
    by_hand = ChatTemplate(PLAIN_TEMPLATE, {"bos_token": "<|im_end|>"}).render(LONG, **options)
    assert fake_llm().render_chat(LONG, **options)["prompt"] == by_hand


def test_no_special_token_is_written_twice():
    """The tokenizer would add one itself, as it does to plain prompts."""
    from jaxserve.engine.inputs.chat_renderer import ChatRenderer
    from jaxserve.text.tokenizer_from_gguf import tokenizer_from_gguf
    from tests.jaxserve.text.small_vocab import byte_level

    tokenizer = tokenizer_from_gguf(byte_level(bos_token_id=262, add_bos_token=True))
    renderer = ChatRenderer(ChatTemplate(PLAIN_TEMPLATE, {"bos_token": "<|im_end|>"}), tokenizer)
    (prompt,) = renderer.prompts([HI])
    assert prompt.token_ids.count(262) == 1
    assert tokenizer.encode(prompt.text).count(262) == 2


def test_many_conversations_are_answered_in_order_each_by_its_parameters():
    llm = fake_llm()
    chats = [HI, LONG, [{"role": "user", "content": "o"}]]
    params = [SamplingParams(seed=i, max_tokens=3 + i, ignore_eos=True) for i in range(3)]
    answers = llm.chat(chats, params, use_tqdm=False)
    assert tokens_of(answers) == [
        tokens_of(llm.chat(c, p, use_tqdm=False))[0] for c, p in zip(chats, params, strict=True)
    ]
    assert [len(a.outputs[0].token_ids) for a in answers] == [3, 4, 5]


def test_an_answer_fills_the_context_unless_told_otherwise():
    llm = fake_llm()
    assert llm.chat(HI, SamplingParams(ignore_eos=True), use_tqdm=False)[0].outputs[0].finish_reason == "length"
    (answer,) = llm.chat(HI, use_tqdm=False)
    if answer.outputs[0].finish_reason == "length":
        assert len(answer.prompt_token_ids) + len(answer.outputs[0].token_ids) == 96
    assert len(answer.outputs[0].token_ids) > 16


def test_a_template_may_be_a_file(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text("[{{ messages[0].content }}]")
    llm = fake_llm()
    for form in (path, str(path)):
        assert llm.render_chat(HI, chat_template=form)["prompt"] == "[hello]"


def test_errors_call_a_template_by_where_it_comes_from(tmp_path):
    path = tmp_path / "mine.jinja"
    path.write_text("{{ nothing.at_all }}")
    own = "{{ nothing.at_all }}"

    def told(llm, **options):
        with pytest.raises(RequestError) as error:
            llm.render_chat(HI, **options)
        return str(error.value).partition(" failed at messages (line 1): UndefinedError")[0]

    assert told(fake_llm(template=own)) == "the model's chat template"
    assert told(fake_llm(), chat_template=own) == "the request's chat template"
    assert told(fake_llm(), chat_template=path) == "the request's chat template (mine.jinja)"
    option = choose_chat_template(EngineConfig.create("m", chat_template=str(path)), None, tmp_path)
    assert option.name == "the engine's chat template (mine.jinja)"


BAD = {
    "role": ([{"content": "x"}], {}, r"messages\[0\].role", "messages[0].role"),
    "not a message": ([HI[0], "x"], {}, r"messages\[1\]", "messages[1]"),
    "empty": ([], {}, "at least 1 is needed", "messages"),
    "a picture": (
        [{"role": "user", "content": [{"type": "image"}]}],
        {},
        "'image', which is not supported",
        "messages[0].content[0].type",
    ),
    "both": (LONG, {"continue_final_message": True}, "add_generation_prompt=False", "continue_final_message"),
    "no such file": (HI, {"chat_template": "/nowhere.jinja"}, "nor a readable file", "chat_template"),
    "a number": (HI, {"chat_template": 5}, "text or a path", "chat_template"),
    "the template refuses": (HI, {"chat_template": "{{ raise_exception('no system') }}"}, "no system", "messages"),
    "the template is broken": (HI, {"chat_template": "{% if %}"}, "is not valid jinja", "chat_template"),
    "a tool": (HI, {"tools": TOOL}, "must be a list", "tools"),
    "a name": (HI, {"tools": ["look_up"]}, "must be an object", "tools[0]"),
    "tools that are not shown": (HI, {"tools": [TOOL], "chat_template": "{{ 1 }}"}, "does not show tools", "tools"),
    "no effort": (HI, {"reasoning_effort": "low"}, "reads none of", "reasoning_effort"),
    "an unknown effort": (HI, {"reasoning_effort": "lots"}, "must be one of", "reasoning_effort"),
    "words": (HI, {"add_generation_prompt": "yes"}, "True or False", "add_generation_prompt"),
    "variables": (HI, {"chat_template_kwargs": {"tools": []}}, "holds tools, which has", "chat_template_kwargs"),
    "jinja's own": (HI, {"chat_template_kwargs": {"self": 1}}, "holds self, which has", "chat_template_kwargs"),
    "a list": (HI, {"chat_template_kwargs": ["x"]}, "must map", "chat_template_kwargs"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_chat_is_refused_by_field(name):
    messages, options, message, param = BAD[name]
    llm = fake_llm()
    for call in (llm.chat, llm.render_chat):
        with pytest.raises(RequestError, match=message) as error:
            call(messages, **options)
        assert error.value.param == param
    assert all_pages_are_back(llm)


def test_of_many_conversations_the_bad_one_is_named():
    llm = fake_llm()
    with pytest.raises(RequestError, match=r"^conversation 1: messages\[0\].role"):
        llm.chat([HI, [{"content": "x"}]])
    with pytest.raises(RequestError, match=r"^conversation 1: This model's maximum context"):
        llm.chat([HI, [{"role": "user", "content": "long " * 50}]])
    with pytest.raises(RequestError, match="2 conversations but 1 sampling_params"):
        llm.chat([HI, HI], [PARAMS])
    assert all_pages_are_back(llm)


def test_a_model_without_a_template_asks_for_one():
    llm = fake_llm(template=None)
    with pytest.raises(RequestError, match="set chat_template"):
        llm.chat(HI)
    assert llm.render_chat(HI, chat_template="{{ messages[0].role }}")["prompt"] == "user"


def test_an_unknown_option_is_an_error():
    with pytest.raises(TypeError, match="documents"):
        fake_llm().chat(HI, documents=[])


def test_the_engines_option_goes_before_the_models_own_template(tmp_path):
    def chosen(**options):
        return choose_chat_template(EngineConfig.create("m", **options), None, tmp_path).source

    assert chosen() is None
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": "{{ 1 }}"}')
    assert chosen() == "{{ 1 }}"
    other = tmp_path / "other"
    other.mkdir()
    (other / "tokenizer.json").write_text("{}")
    assert chosen(tokenizer=str(other)) == "{{ 1 }}"
    (other / "chat_template.jinja").write_text("{{ 2 }}")
    assert chosen(tokenizer=str(other)) == "{{ 2 }}"
    (tmp_path / "mine").write_text("{{ 3 }}")
    for option, text in ((str(tmp_path / "mine"), "{{ 3 }}"), ("{{ 4 }}", "{{ 4 }}")):
        assert chosen(tokenizer=str(other), chat_template=option) == text
    for bad in ("/nowhere.jinja", "{% if %}"):
        with pytest.raises(ConfigError) as error:
            chosen(chat_template=bad)
        assert error.value.param == "chat_template"
