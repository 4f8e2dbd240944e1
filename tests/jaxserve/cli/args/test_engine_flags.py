"""Flags of the engine set only what the user sets; commands also turn on `keep_lowered`."""

import argparse

import pytest

from jaxserve.cli import serve
from jaxserve.cli.args.dataclass_flags import add_engine_flags, add_flags, engine_options, given
from jaxserve.server.server_config import ServerConfig
from tests.support.processes.command_line import check_mistake_here


def options(*argv: str, skip: tuple[str, ...] = ()) -> dict:
    parser = argparse.ArgumentParser()
    add_engine_flags(parser, skip=skip)
    return engine_options(parser.parse_args(argv))


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        ([], {"keep_lowered": True}),
        (["--no-keep-lowered"], {"keep_lowered": False}),
        (["--block-size", "32"], {"keep_lowered": True, "page_size": 32}),
    ],
)
def test_commands_keep_what_they_lower_unless_told_otherwise(argv, expected):
    assert options(*argv) == expected


def test_flags_of_several_texts_add_up():
    parser = argparse.ArgumentParser()
    add_flags(parser, ServerConfig)
    found = given(parser.parse_args(["--api-key", "a", "b", "--port", "9", "--api-key", "c"]), ServerConfig)
    assert found == {"api_key": ["a", "b", "c"], "port": 9}


def test_the_help_tells_the_verb_s_own_default():
    parser = serve._parser()
    (told,) = [action.help for action in parser._actions if action.dest == "max_num_waiting"]
    text = "most samples that wait beyond those for which a slot is free; further ones are refused (default: 512)"
    assert told == text
    assert engine_options(parser.parse_args(["m"]))["max_num_waiting"] == 512
    assert engine_options(parser.parse_args(["m", "--max-num-waiting", "3"]))["max_num_waiting"] == 3


def test_a_verb_without_the_option_says_nothing_of_it():
    assert options(skip=("keep_lowered",)) == {}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--quantization", "gptq"], "files of this format are read with 'auto'"),
        (["--quantization", "gptq-g64"], "`jaxserve quantize` writes this one"),
        (["--dtype", "float8"], "dtype='float8': must be one of auto, "),
    ],
)
def test_a_name_that_is_no_value_is_refused_with_advice(argv, message, capsys):
    check_mistake_here(["generate", "m", "--prompt", "a", *argv], message, capsys)


def test_the_help_tells_the_values():
    (action,) = [action for action in serve._parser()._actions if action.dest == "dtype"]
    assert action.metavar == "{auto,float32,bfloat16}"
