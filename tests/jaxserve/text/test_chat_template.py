"""Chat templates render as in transformers, and any error in them becomes a RequestError."""

import json
import time

import pytest

from jaxserve.core.errors import RequestError
from jaxserve.text.chat_messages import checked_messages
from jaxserve.text.chat_template import ChatTemplate, chat_template_from_folder
from tests.support.golden_tokenizers import template_of

PLAIN = (
    "{{ bos_token }}{% for m in messages %}[{{ m.role }}]{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
HI = [{"role": "user", "content": "Hi"}]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def test_a_base_model_has_no_chat_template():
    with pytest.raises(RequestError, match="no chat template: set chat_template") as error:
        template_of("gemma-3-270m").render(HI)
    assert error.value.param == "messages"


def test_special_tokens_and_the_templates_own_variables_reach_it():
    template = ChatTemplate(PLAIN + "{{ mood }}", {"bos_token": "<s>"})
    assert template.render(HI, variables={"mood": "!"}) == "<s>[user]Hi\n[assistant]!"
    assert template.render(HI, add_generation_prompt=False) == "<s>[user]Hi\n"


@pytest.mark.parametrize("name", ["variables", "source", "values", "args", "kwargs", "context", "vars", "name", "loop"])
def test_no_name_along_the_way_is_taken_from_the_templates_variables(name):
    """`self` would raise TypeError if variables were keyword arguments; jinja reserves the name."""
    assert ChatTemplate(f"{{{{ {name} }}}}").render(HI, variables={name: "!", "self": 1, "": 2}) == "!"


def test_content_may_be_null_or_parts_of_text():
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    messages += [{"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "content": ""}]
    messages += [{"role": "assistant", "tool_calls": [CALL]}]
    assert ChatTemplate(PLAIN).render(messages) == "[user]a\nb\n[assistant]\n[tool]\n[assistant]\n[assistant]"


def test_null_content_stays_null_for_a_template_that_tests_it():
    template = ChatTemplate("{% if messages[0]['content'] is none %}null{% else %}text{% endif %}")
    assert template.render([{"role": "assistant", "content": None, "tool_calls": [CALL]}]) == "null"


def test_null_reasoning_is_no_sign_of_a_template_that_tests_for_null_content():
    template = ChatTemplate(
        "{% if messages[0].reasoning_content is not none %}{{ messages[0].content ~ '.' }}{% endif %}"
    )
    assert template.render([{"role": "assistant", "content": None, "tool_calls": [CALL]}]) == "."


def test_parts_reach_a_template_that_goes_through_them_and_no_other():
    parts = [{"type": "input_text", "text": "a "}, {"type": "text", "text": "b"}]
    through = (
        "{% for m in messages %}{% for part in m['content'] %}[{{ part.type }} {{ part.text }}]{% endfor %}{% endfor %}"
    )
    assert ChatTemplate(through).render([{"role": "user", "content": parts}]) == "[text a ][text b]"
    asking = "{% if messages[0].content is string %}{{ messages[0].content }}{% endif %}"
    assert ChatTemplate(asking).render([{"role": "user", "content": parts}]) == "a \nb"


def test_reasoning_is_read_under_any_of_its_names():
    template = ChatTemplate("{{ messages[0].reasoning_content }} {{ messages[0].thinking }}")
    for name in ("reasoning_content", "thinking", "reasoning"):
        assert template.render([{"role": "assistant", "content": "", name: "hm"}]) == "hm hm"


def test_arguments_of_tool_calls_become_objects_and_the_callers_messages_stay_as_they_were():
    template = ChatTemplate("{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}")
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"city":"<Köln>"}'}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    before = json.dumps(messages)
    assert template.render(messages) == '{"city": "<Köln>"}'
    assert json.dumps(messages) == before


def test_null_fields_and_empty_tool_calls_are_as_those_left_out():
    """OpenAI's client sends back all fields of a received message."""
    source = "{% for m in messages %}{{ 'call' if 'tool_calls' in m else m.content }} {{ m | length }};{% endfor %}"
    empty = {"refusal": None, "audio": None, "name": None, "reasoning_content": None}
    messages = [{"role": "assistant", "content": "a", "tool_calls": calls, **empty} for calls in (None, [])]
    assert ChatTemplate(source).render(messages) == "a 2;a 2;"
    call = {"function": {"name": "f", "arguments": {}}}
    assert ChatTemplate(source).render([{"role": "assistant", "tool_calls": [call]}]) == "call 3;"


def test_a_developer_is_the_system_for_a_template_that_does_not_name_it():
    messages = [{"role": "developer", "content": "be terse"}]
    assert ChatTemplate(PLAIN).render(messages, add_generation_prompt=False) == "[system]be terse\n"
    naming = PLAIN + "{# the developer, too #}"
    assert ChatTemplate(naming).render(messages, add_generation_prompt=False) == "[developer]be terse\n"


def test_tools_are_passed_and_absent_tools_are_none():
    template = ChatTemplate("{{ tools is none }} {{ tools | tojson }}")
    assert template.render(HI) == "True null"
    assert template.render(HI, tools=[]) == "True null"
    assert template.render(HI, tools=[{"type": "function"}]) == 'False [{"type": "function"}]'


def test_the_final_message_is_continued_with_its_spaces_unless_the_template_trims_them():
    messages = [*HI, {"role": "assistant", "content": "One, "}]
    options = {"add_generation_prompt": False, "continue_final_message": True}
    assert ChatTemplate(PLAIN).render(messages, **options) == "[user]Hi\n[assistant]One, "
    trimming = PLAIN.replace("m['content']", "m['content'] | trim")
    assert ChatTemplate(trimming).render(messages, **options) == "[user]Hi\n[assistant]One,"
    with pytest.raises(RequestError, match="cannot be continued"):
        ChatTemplate("nothing").render(messages, **options)
    with pytest.raises(RequestError, match="drops or changes"):
        ChatTemplate(PLAIN.replace("m['content']", "m['content'] | replace('e,', 'e;')")).render(messages, **options)
    with pytest.raises(RequestError, match="no content"):
        ChatTemplate(PLAIN).render([*HI, {"role": "assistant", "content": None, "tool_calls": [CALL]}], **options)
    with pytest.raises(RequestError, match="add_generation_prompt=False") as error:
        ChatTemplate(PLAIN).render(messages, continue_final_message=True)
    assert error.value.param == "continue_final_message"


def test_what_templates_of_today_use_is_there():
    source = (
        "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + loop.length %}"
        "{% if loop.last %}{% break %}{% endif %}{% endfor %}{{ ns.n }}"
        "{% generation %}said{% endgeneration %}{{ strftime_now('%Y') | length }}"
        "{% for m in messages if m.role == 'user' %}{{ loop.index0 % 2 }}{{ loop.first }}{% endfor %}"
        "{%- macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ab') }}{{ messages[0].content.split('i')[0] }}"
        "{{ {'b': 1, 'a': [1, '<']} | tojson(indent=1) }}{{ '-' * 3 }}{{ 100000 | default(7) }}"
        "{{ '%s-%02d' | format('a', 3) }}{{ '%d' % 4 }}{{ '{:,}'.format(1234) }}"
    )
    rendered = ChatTemplate(source).render(HI)
    assert rendered == '1said40TrueababH{\n "b": 1,\n "a": [\n  1,\n  "<"\n ]\n}---100000a-0341,234'


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        ("hi", "messages"),
        ({"role": "user"}, "messages"),
        (None, "messages"),
        ([{"content": "x"}], "messages[0].role"),
        ([*HI, {"role": 5, "content": "x"}], "messages[1].role"),
        (["hi"], "messages[0]"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": ["x"]}], "messages[0].content[0]"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], "messages[0].content[0].text"),
        ([*HI, {"role": "user", "contents": "x"}], "messages[1].contents"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": ""}], "messages[0].content"),
        ([{"role": "user", "content": []}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "text", "text": ""}]}], "messages[0].content"),
        ([{"role": "assistant", "content": ""}], "messages[0].content"),
        ([{"role": "user", "tool_calls": [CALL]}], "messages[0].content"),
        ([{"role": "tool", "content": None}], "messages[0].content"),
        ([{"role": "usr", "content": "x"}], "messages[0].role"),
        ([{"role": None, "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": "x", "naem": None}], "messages[0].naem"),
        ([{"role": "user", "content": "x", 5: "x"}], "messages[0].5"),
        ([{"role": "user", "content": [{"type": "text", "text": "x", "txt": "y"}]}], "messages[0].content[0].txt"),
        ([{"role": "assistant", "content": "x", "refusal": "no"}], "messages[0].refusal"),
        ([{"role": "assistant", "content": "x", "annotations": [1]}], "messages[0].annotations"),
        ([{"role": "assistant", "tool_calls": [{**CALL, "typ": "x"}]}], "messages[0].tool_calls[0].typ"),
        ([{"role": "assistant", "tool_calls": [{**CALL, "type": "x"}]}], "messages[0].tool_calls[0].type"),
        ([{"role": "assistant", "tool_calls": "x"}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": {}}], "messages[0].tool_calls"),
        ([{"role": "assistant", "tool_calls": [{}]}], "messages[0].tool_calls[0].function"),
        (
            [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            "messages[0].tool_calls[0].function.arguments",
        ),
        (HI * 5000, "messages"),
    ],
)
def test_bad_messages_are_refused_by_the_place_of_the_fault(messages, param):
    with pytest.raises(RequestError) as error:
        ChatTemplate(PLAIN).render(messages)
    assert error.value.param == param
    assert param in str(error.value)


def test_a_misspelled_field_gets_a_suggestion():
    with pytest.raises(RequestError, match=r"unknown field messages\[1\].contents; did you mean 'content'\?"):
        ChatTemplate(PLAIN).render([*HI, {"role": "user", "contents": "x"}])


READING = (
    "{% macro show(one) %}{{ one.tool_plan }}{% endmacro %}{% set chat = messages[0:] %}"
    "{% for turn in chat | list %}{{ turn['mood'] }}{{ turn.get('weight') }}{{ show(turn) }}"
    "{% if turn.role == 'ipython' or turn['role'] in ['critic'] %}!{% endif %}"
    "{% for part in turn.content %}{{ part.picture }}{% endfor %}{% endfor %}{{ tools.unread }}"
)


def test_a_template_may_read_fields_and_roles_of_its_own():
    own = {"mood": "good", "weight": 1, "tool_plan": "first"}
    messages = [{"role": role, "content": "x", **own} for role in ("ipython", "critic")]
    assert ChatTemplate(READING).render(messages) == "good1first!" * 2
    for name in (*own, "picture", "unread", "get"):
        template = PLAIN if name in own else READING
        with pytest.raises(RequestError, match=rf"unknown field messages\[0\].{name}"):
            ChatTemplate(template).render([{"role": "user", "content": "x", name: "y"}])
    with pytest.raises(RequestError, match=r"messages\[0\].role is 'critic', which is not supported; known: 'system'"):
        ChatTemplate(PLAIN).render(messages[1:])


def test_checking_the_most_messages_takes_a_fraction_of_a_second_and_ends_at_the_first_fault():
    messages = [{"role": "user", "content": [{"type": "text", "text": "x"}] * 20}] * 4096
    start_s = time.process_time()
    checked_messages(messages)
    assert time.process_time() - start_s < 2
    start_s = time.process_time()
    with pytest.raises(RequestError):
        checked_messages([{"role": "usr"}, *messages[1:]])
    assert time.process_time() - start_s < 0.02


def test_an_error_names_template_message_and_line():
    source = (
        "{% for m in messages %}\n{% for part in [1, 2] %}{% endfor %}{% if loop.index0 == 1 %}\n{{ m.content + 1 }}"
    )
    template = ChatTemplate(source + "{% endif %}{% endfor %}", name="this one")
    with pytest.raises(RequestError, match=r"^this one failed at messages\[1\] \(line 3\): TypeError: ") as error:
        template.render(HI * 3)
    assert error.value.param == "messages[1]"
    with pytest.raises(RequestError, match=r"^this one failed at messages \(line 1\): "):
        ChatTemplate("{% for m in messages %}{% endfor %}{{ messages[0].content + 1 }}", name="this one").render(HI)
    with pytest.raises(RequestError, match=r"^this one is not valid jinja \(line 2\): ") as error:
        ChatTemplate("\n{% if %}", name="this one").render(HI)
    assert error.value.param == "chat_template"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{% if %}", "valid jinja"),
        ("{{ messages[0].content + 1 }}", "TypeError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.__init__.__globals__ }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__.os.popen('id') }}", "SecurityError"),
        ("{{ ''['__cla' ~ 'ss__']['__mro__'] }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ namespace(__call__=messages) }}", "may not name __call__"),
        ("{% set n = namespace() %}{% set n.__html__ = messages %}", "may not name __html__"),
        ("{{ messages[0].update(a=1) }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "TypeError|no loader"),
        ("{% for i in range(10 ** 9) %}x{% endfor %}", "SecurityError"),
        ("{% for i in range(10000000) %}x{% endfor %}", "Range too big"),
        ("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "more than 1000000 steps"),
        ("{% macro f(x) %}{{ f(x) }}{{ f(x) }}{% endmacro %}{{ f(1) }}", "RecursionError|steps"),
        ("{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}", "RecursionError|steps"),
        ("{% for i in range(99999) %}" + "x" * 1000 + "{% endfor %}", "writes more than"),
        ("{{ 'x' * 1000000000 }}", "repeat text"),
        ("{{ [1] * 1000000000 }}", "repeat text"),
        ("{{ 'x'.ljust(1000000000) }}", "pad text"),
        ("{{ 'x' | center(1000000000) }}", "pad text"),
        ("{{ [1] | tojson(indent=1000000000) }}", "pad text"),
        ("{{ '%1000000000d' % 1 }}", "large or computed widths"),
        ("{{ '%*d' % (1000000000, 1) }}", "large or computed widths"),
        ("{{ '%1000000000d' | format(1) }}", "large or computed widths"),
        ("{{ '{:>1000000000}'.format(1) }}", "large or computed widths"),
        ("{{ '{:>{}}'.format(1, 1000000000) }}", "large or computed widths"),
        ("{{ '{0.__class__.__mro__}'.format(1) }}", "SecurityError"),
        ("x" * (1 << 20) + "x", "longer than"),
    ],
)
@pytest.mark.timeout(60)  # without a limit the template never ends
def test_a_failing_or_hostile_template_ends_as_a_request_error(source, reason):
    with pytest.raises(RequestError, match=reason) as error:
        ChatTemplate(source).render(HI)
    assert error.value.param == ("chat_template" if "valid jinja" in reason or "longer" in reason else "messages")
    assert len(str(error.value)) < 600


def test_a_folders_template_file_comes_before_its_tokenizer_config(tmp_path):
    assert chat_template_from_folder(tmp_path).source is None
    config = {"chat_template": [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "named"}]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert chat_template_from_folder(tmp_path).render(HI) == "named"
    config = {"chat_template": "{{ bos_token }}{{ eos_token }}", "bos_token": {"content": "<b>"}, "eos_token": "<e>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert chat_template_from_folder(tmp_path).render(HI) == "<b><e>"
    (tmp_path / "chat_template.jinja").write_text("file{{ bos_token }}")
    assert chat_template_from_folder(tmp_path).render(HI) == "file<b>"


TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
ARGUMENTS = "messages[0].tool_calls[0].function.arguments"
WRITERS = {  # templates that take arguments as text, and what they make of {"a": 1}
    "{{ 'x' + %s }}": 'x{"a": 1}',
    "{{ 'x' ~ %s ~ 'y' }}": 'x{"a": 1}y',
    "{{ %s }}": '{"a": 1}',
    "{{ 'x' + messages[0]['tool_calls'][0]['function']['arguments'] }}": 'x{"a": 1}',
    "{{ 'x' + (%s | tojson) }}": 'x{"a": 1}',
    "{{ %s.a }}": "1",
    "{%% if %s is string %%}text{%% else %%}{{ %s | tojson }}{%% endif %%}": '{"a": 1}',
}


@pytest.mark.parametrize("source", WRITERS)
@pytest.mark.parametrize("arguments", [{"a": 1}, '{"a": 1}'])
def test_arguments_are_text_for_templates_that_join_them_to_text(source, arguments):
    template = ChatTemplate(source % ((ARGUMENTS,) * source.count("%s")) if "%s" in source else source)
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    assert template.render(messages) == WRITERS[source]


def test_a_template_that_does_not_show_tools_refuses_them():
    with pytest.raises(RequestError, match="does not show tools") as error:
        ChatTemplate("{{ messages[0].content }}{{ messages[0].tools }}").render(HI, tools=[TOOL])
    assert error.value.param == "tools"
    assert ChatTemplate("{% for t in tools %}{{ t.function.name }}{% endfor %}").render(HI, tools=[TOOL]) == "f"


def test_the_effort_of_reasoning_reaches_templates_that_read_it():
    assert ChatTemplate("{{ reasoning_effort }}").render(HI, reasoning_effort="high") == "high"
    for name in ("enable_thinking", "thinking"):
        found = [ChatTemplate(f"{{{{ {name} }}}}").render(HI, reasoning_effort=e) for e in ("none", "low")]
        assert found == ["False", "True"]
    own = {"variables": {"enable_thinking": True}, "reasoning_effort": "none"}
    assert ChatTemplate("{{ enable_thinking }}").render(HI, **own) == "False"
    with pytest.raises(RequestError, match="reads none of") as error:
        ChatTemplate("{{ messages[0].content }}").render(HI, reasoning_effort="low")
    assert error.value.param == "reasoning_effort"
