"""`jaxserve plan` prints one sentence for mistakes."""

import pytest

from tests.support.processes.command_line import check_mistake

MISTAKES = {
    "no such GPU": (["llama-3-8b", "--device", "v100"], "a100, b200, h100, h200"),
    "two targets": (["llama-3-8b", "--device", "h200", "--topology", "v6e:2x2"], "not allowed with"),
    "no such model": (["no-such-model"], "no-such-model"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_with_code_2_and_one_sentence(name):
    args, message = MISTAKES[name]
    check_mistake(["plan", *args], message)
