"""Every flag of every verb is described, with its default; a wrong one gets one line with a hint."""

import argparse
import re
import sys

import pytest

from jaxserve.cli.main import VERBS, main, verb_module

UNSET = (None, False, argparse.SUPPRESS, [], {})


def parsers():
    """By the words that call them."""
    for verb in VERBS:
        top = verb_module(verb)._parser()
        yield verb, top
        for action in top._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from ((f"{verb} {name}", parser) for name, parser in action.choices.items())


PARSERS = dict(parsers())


@pytest.mark.parametrize("words", PARSERS)
def test_every_argument_has_a_description_with_its_default(words):
    parser = PARSERS[words]
    assert parser.description
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            assert action.help, action.option_strings or action.dest
            if action.option_strings and action.default not in UNSET:
                assert "default" in action.help, action.option_strings
            if told := re.search(r"\(default: (\d[\d.]*)\)", action.help):
                # None and SUPPRESS: the number is that of the dataclass, or of the verb's own code.
                assert action.default in (None, argparse.SUPPRESS) or float(told[1]) == plain(action.default)


def plain(default):
    """A default as a number; of several or of a range, what the help shows for one."""
    return float(default[0] if isinstance(default, tuple) else str(default))


def said_of(argv, capsys):
    try:
        code = main(argv)
    except SystemExit as stop:
        code = stop.code
    return code, capsys.readouterr().err


WRONG = {
    ("generate", "m", "--temprature=1"): "jaxserve generate: unknown option --temprature: did you mean --temperature?",
    ("generate", "--temp", "1"): "jaxserve generate: unknown option --temp: did you mean --temperature?",
    (
        "serve",
        "--model",
        "m",
    ): "jaxserve serve: unknown option --model: give it without the name, as in `jaxserve serve M",
    ("serve", "--prot", "80"): "jaxserve serve: unknown option --prot: did you mean --port?",
    ("bench", "serve", "--modle", "m"): "jaxserve bench serve: unknown option --modle: did you mean --model?",
    ("bench", "latency", "--xyzzy"): "jaxserve bench latency: unknown option --xyzzy (",
    ("generate", "m", "--temperature", "hot"): "jaxserve generate: argument --temperature: invalid float",
    ("chat", "m", "--n", "2"): "jaxserve chat: unknown option --n (",
    ("chat",): "jaxserve chat: the following arguments are required: model (",
    ("generate", "m", "--prompts-file", "/"): "jaxserve generate: /: Is a directory",
    (
        "generate",
        "m",
        "--prompts-file",
        sys.executable,
    ): f"jaxserve generate: --prompts-file {sys.executable} is not text",
    ("serv",): "jaxserve: unknown verb serv: did you mean serve?",
    ("--verson",): "jaxserve: unknown option --verson (",
}


@pytest.mark.parametrize("argv", WRONG, ids=" ".join)
def test_a_mistake_gets_one_line_with_a_hint(argv, capsys):
    code, said = said_of(list(argv), capsys)
    assert code == 2
    assert said.startswith(WRONG[argv])
    assert said.count("\n") == 1


def test_a_number_may_be_none():
    parser = PARSERS["generate"]
    assert parser.parse_args(["m", "--max-tokens", "none"]).max_tokens is None
    assert parser.parse_args(["m", "--max-tokens", "7"]).max_tokens == 7
    assert parser.parse_args(["m", "--stop", "none"]).stop == "none"


@pytest.mark.parametrize(
    ("words", "usage"),
    [("serve", "MODEL"), ("compile", "MODEL --out DIR"), ("bench", "{throughput,latency,spec,quality,prefix,serve}")],
)
def test_the_usage_names_what_is_required_and_no_more(words, usage):
    assert PARSERS[words].format_help().startswith(f"usage: jaxserve {words} {usage} [OPTIONS]\n")


def test_the_defaults_told_are_those_of_the_verb():
    told = {verb: {a.dest: a.help for a in PARSERS[verb]._actions} for verb in ("chat", "generate")}
    assert told["chat"]["max_tokens"] == "most tokens of an answer, by default until the context is full"
    assert told["generate"]["max_tokens"].endswith("(default: 16)")
    assert told["chat"]["max_num_seqs"].endswith("(default: 1)")
    assert told["generate"]["ignore_eos"].endswith("(default: off)")


def test_the_version_names_what_runs(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("jaxserve 0.1.0, jax ")


def test_without_a_verb_the_verbs_are_listed(capsys):
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(f"  {name} " in shown for name in VERBS)
