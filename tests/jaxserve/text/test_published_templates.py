"""The published templates render as in transformers (scripts/goldens/tokenizer_goldens.py), including errors."""

import hashlib

import pytest

from jaxserve.core.errors import RequestError
from tests.support.golden_tokenizers import IN_FOLDERS, goldens, rendered, template_of

WITH_TEMPLATE = ("smollm2-135m-instruct", *IN_FOLDERS)
SAY_NOTHING = ("system and turns", "continue nothing", "continue null", "null content")  # chats with an empty message
SHOW_TOOLS = ("qwen3",)
ENDED = {"qwen3": "<|im_end|>", "llama3_1": "<|eot_id|>", "gemma3": "<end_of_turn>"}


def rendering(name, chat):
    """The content of a golden: [sha256, characters], or None where the template refuses the messages."""
    options = dict(chat["options"])
    if name not in SHOW_TOOLS:  # transformers ignores them there
        options.pop("tools", None)
    try:
        text = rendered(name, chat["messages"], options)
    except RequestError:
        return None
    return [hashlib.sha256(text.encode()).hexdigest(), len(text)]


@pytest.mark.parametrize("name", WITH_TEMPLATE)
def test_conversations_are_rendered_as_in_transformers(name):
    pairs = list(zip(goldens()["chats"], goldens()["models"][name]["rendered"], strict=True))
    chats = [(chat, expected) for chat, expected in pairs if chat["name"] not in SAY_NOTHING]
    assert len(chats) > 30
    assert not [chat["name"] for chat, expected in chats if rendering(name, chat) != expected]


@pytest.mark.parametrize("name", WITH_TEMPLATE)
def test_tools_are_refused_by_templates_that_do_not_show_them(name):
    tool = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
    messages = [{"role": "user", "content": "a"}]
    if name in SHOW_TOOLS:
        assert '"add"' in template_of(name).render(messages, tools=[tool])
    else:
        with pytest.raises(RequestError, match="does not show tools") as error:
            template_of(name).render(messages, tools=[tool])
        assert error.value.param == "tools"


def test_conversations_with_an_empty_message_are_refused_by_its_content():
    chats = {chat["name"]: chat for chat in goldens()["chats"]}
    for name in SAY_NOTHING:
        with pytest.raises(RequestError, match=r"^messages\[\d\].content is (empty|null): "):
            rendered("qwen3", chats[name]["messages"], chats[name]["options"])


def test_the_goldens_tell_conversations_apart():
    rows = [goldens()["models"][name]["rendered"] for name in WITH_TEMPLATE]
    assert all(len({tuple(entry) for entry in row if entry}) > len(row) // 2 for row in rows)
    assert None in goldens()["models"]["gemma3"]["rendered"]


def test_gemma_refuses_roles_that_do_not_alternate_and_says_so():
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    with pytest.raises(RequestError, match="roles must alternate user/assistant") as error:
        template_of("gemma3").render(messages)
    assert error.value.param == "messages[1]"
    assert str(error.value).startswith("the model's chat template failed at messages[1] (line ")


@pytest.mark.parametrize("name", IN_FOLDERS)
def test_null_content_of_an_assistant_renders_as_nothing(name):
    call = {"type": "function", "function": {"name": "f", "arguments": {}}}
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [call]}]
    text = template_of(name).render(messages, add_generation_prompt=False)
    assert text.rstrip().endswith(ENDED[name])
    assert "None" not in text


def test_qwen3_thinks_unless_told_not_to():
    messages = [{"role": "user", "content": "a"}]
    plain = template_of("qwen3").render(messages)
    assert template_of("qwen3").render(messages, variables={"enable_thinking": True}) == plain
    silent = template_of("qwen3").render(messages, variables={"enable_thinking": False})
    assert silent == plain + "<think>\n\n</think>\n\n"


@pytest.mark.parametrize("name", IN_FOLDERS)
def test_a_developer_is_heard_by_models_that_know_none(name):
    """Qwen3's template drops unknown roles; Gemma's would refuse this one."""
    messages = [{"role": "developer", "content": "be terse"}, {"role": "user", "content": "a"}]
    as_system = [{**messages[0], "role": "system"}, messages[1]]
    assert "be terse" in template_of(name).render(messages)
    assert template_of(name).render(messages) == template_of(name).render(as_system)
