"""An EAGLE-3 draft of the tiny Llama with random weights, and its folder."""

import pytest

from tests.support.eagle_drafts import random_draft, saved


@pytest.fixture(scope="module")
def naive():
    """Of two tokens that answers have often, random weights are right now and then."""
    return random_draft("llama3", 2)


@pytest.fixture(scope="module")
def folder(naive, tmp_path_factory):
    return saved(tmp_path_factory.mktemp("eagle"), naive)
