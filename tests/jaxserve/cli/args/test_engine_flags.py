"""Flags of the engine set only what the user sets; commands also turn on `keep_lowered`."""

import argparse

import pytest

from jaxserve.cli import serve
from jaxserve.cli.args.dataclass_flags import add_engine_flags, add_flags, engine_options, given
from jaxserve.server.server_config import ServerConfig


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
