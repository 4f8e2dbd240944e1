"""Flags of the engine: what the user sets and no more, but that commands keep what they lower."""

import argparse

import pytest

from jaxserve.cli.flags import add_engine_flags, add_flags, engine_options, given
from jaxserve.server.config import ServerConfig


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


def test_a_verb_without_the_option_says_nothing_of_it():
    assert options(skip=("keep_lowered",)) == {}
