"""`jaxserve plan` prints one sentence for mistakes."""

import pytest

from tests.support.processes.command_line import check_mistake, check_mistake_here

MISTAKES = {
    "two targets": (["llama-3-8b", "--device", "h200", "--topology", "v6e:2x2"], "not allowed with"),
    "no such model": (["no-such-model"], "no-such-model"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_with_code_2_and_one_sentence(name, capsys):
    args, message = MISTAKES[name]
    check_mistake_here(["plan", *args], message, capsys)


def test_a_gpu_that_does_not_exist_is_refused():
    """In a process of its own, in which jax looks for no device."""
    check_mistake(["plan", "llama-3-8b", "--device", "v100"], "a100, b200, h100, h200")
