"""A client's template renders as in this process, or ends within its limits."""

import json
import signal
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest

from jaxserve.core.errors import RequestError
from jaxserve.text.chat_template import ChatTemplate
from jaxserve.text.client_template import MAX_CHARS, MEMORY_LIMIT, ClientTemplate, command
from jaxserve.text.client_template_process import CLIENTS
from tests.jaxserve.text.test_chat_template import HI, PLAIN
from tests.support.golden_tokenizers import IN_FOLDERS, template_of
from tests.support.processes.children import recorded

TOKENS = {"bos_token": "<s>"}
CALL = {"type": "function", "function": {"name": "f", "arguments": '{"city":"<Köln>"}'}}
TALK = [
    {"role": "system", "content": "Be brief. \ud800\U0001f600\x00"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [CALL]},
    {"role": "tool", "content": "4 °C", "name": "f"},
    {"role": "user", "content": " more\n"},
]
TOOLS = [{"type": "function", "function": {"name": "f", "description": "<d>", "parameters": {"type": "object"}}}]
CONTINUED = {"add_generation_prompt": False, "continue_final_message": True}
GROWING = "{% set n = namespace(x=7) %}{% for i in range(27) %}{% set n.x = n.x * n.x %}{% endfor %}"
ENDLESS = {
    "one step of hours": GROWING,
    "much in a step": "{% for i in range(99999) %}{% set x = range(99999) | sum %}{% endfor %}",
    "uncounted": "{% for i in range(99999) recursive %}{{ '' if loop.depth0 else loop(range(99999)) }}{% endfor %}",
}
HUGE = {
    "text": GROWING.replace("7)", "'abcdefgh')", 1).replace("*", "~"),
    "objects": GROWING.replace("27", "999").replace("n.x * n.x", "[n.x, range(99999) | list]"),
}


def outcome(template, messages, **options):
    """The text, or the error."""
    try:
        return template.render(messages, **options)
    except RequestError as error:
        return str(error), error.param


@pytest.mark.parametrize("name", IN_FOLDERS)
def test_published_templates_write_what_they_write_here(name):
    own = template_of(name)
    own = own.with_source(own.source, CLIENTS)
    theirs = ClientTemplate(own.source).with_special_tokens(own.special_tokens)
    for messages, options in ((TALK, {"tools": TOOLS}), ([*HI, {"role": "assistant", "content": "One, "}], CONTINUED)):
        assert outcome(theirs, messages, **options) == outcome(own, messages, **options)


@pytest.mark.parametrize(
    ("source", "messages", "options"),
    [
        (PLAIN, TALK[:2], {}),
        (PLAIN, [], {}),
        (PLAIN, [{"role": "user", "content": 5}], {}),
        (PLAIN, HI, {"continue_final_message": True}),
        ("{% if %}", HI, {}),
        ("{{ raise_exception('roles must alternate') }}", HI, {}),
        ("{{ ''.__class__.__mro__ }}", HI, {}),
        ("{% for i in range(99999) %}" + "x" * 1000 + "{% endfor %}", HI, {}),
        ("{{ " + "(" * 999 + "1" + ")" * 999 + " }}", HI, {}),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_texts_and_errors_are_those_of_this_process(source, messages, options):
    here = outcome(ChatTemplate(source, TOKENS, name=CLIENTS), messages, **options)
    assert outcome(ClientTemplate(source, TOKENS), messages, **options) == here


@pytest.mark.parametrize("name", ENDLESS)
def test_what_would_not_end_is_killed_while_other_threads_go_on(name):
    """Control: the process does not end by itself."""
    ended, num_turns = threading.Event(), 0
    with recorded() as children:

        def render():
            with pytest.raises(RequestError, match=r"took too long: more than 0\.6 s") as error:
                ClientTemplate(ENDLESS[name], time_limit_s=0.6).render(HI)
            assert error.value.param == "chat_template"
            ended.set()

        thread = threading.Thread(target=render)
        thread.start()
        while thread.is_alive():
            num_turns += 1
            thread.join(0.001)
    assert ended.is_set()
    assert num_turns > 5
    assert children.codes == [-signal.SIGKILL]


@pytest.mark.parametrize("name", HUGE)
def test_memory_is_bounded(name):
    with recorded() as children, pytest.raises(RequestError, match="too much memory: more than 96 MiB") as error:
        ClientTemplate(HUGE[name], memory_limit=96 << 20).render(HI)
    assert error.value.param == "chat_template"
    assert children.codes == [3]


def test_what_fits_the_memory_is_rendered():
    """Control of the previous test: only the doubled text does not fit."""
    assert ClientTemplate(HUGE["text"].replace("27", "7"), memory_limit=96 << 20).render(HI) == ""


def test_a_process_that_nobody_kills_ends_by_its_own_clock():
    """As happens when the server has died."""
    asked = {"source": ENDLESS["much in a step"], "special_tokens": {}, "messages": HI, "options": {}}
    ended = subprocess.run(command(MEMORY_LIMIT, cpu_s=1), input=json.dumps(asked).encode(), capture_output=True)
    assert ended.returncode == -signal.SIGKILL


def test_the_process_imports_neither_jax_nor_numpy_nor_tokenizers():
    python, *words = command(MEMORY_LIMIT, cpu_s=9)
    asked = {"source": PLAIN, "special_tokens": {}, "messages": HI, "options": {}}
    done = subprocess.run(
        [python, "-X", "importtime", *words], input=json.dumps(asked).encode(), capture_output=True, check=True
    )
    assert "text" in json.loads(done.stdout)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.decode().splitlines()}
    assert {"jinja2", "jaxserve"} <= imported
    assert not imported & {"jax", "numpy", "tokenizers"}


def test_a_long_template_starts_nothing():
    with recorded() as children, pytest.raises(RequestError, match="too long: 65537 characters") as error:
        ClientTemplate("x" * (MAX_CHARS + 1)).render(HI)
    assert error.value.param == "chat_template"
    assert not children
    assert ClientTemplate("x" * MAX_CHARS).render(HI) == "x" * MAX_CHARS


def test_the_process_gets_no_environment_and_no_signals_of_the_terminal(monkeypatch):
    monkeypatch.setenv("JAXSERVE_API_KEY", "secret")
    monkeypatch.setenv("TZ", "JST-9")
    before = datetime.now(UTC)
    with recorded() as children:
        written = ClientTemplate("{{ strftime_now('%Y-%m-%d %H:%M:%S+00:00') }}").render(HI)
    told = datetime.fromisoformat(written) - timedelta(hours=9)
    assert before - timedelta(seconds=1) < told <= datetime.now(UTC)
    (options,) = children.options
    assert options["env"] == {"TZ": "JST-9"}
    assert options["start_new_session"]


def test_what_is_not_json_is_refused_by_name():
    for bad in ({1, 2}, object()):
        with pytest.raises(RequestError, match="must be JSON") as error:
            ClientTemplate(PLAIN).render([{"role": "user", "content": bad}])
        assert error.value.param == "messages"
