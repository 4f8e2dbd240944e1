"""`jaxserve plan` prints one sentence for mistakes, and its help without loading jax."""

import pytest

from tests.repository.test_host_half import loaded_after
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


def test_help_costs_neither_jax_nor_numpy():
    statements = (
        "from jaxserve.cli.main import main\n"
        "try:\n    main(['plan', '--help'])\nexcept SystemExit as stop:\n    assert not stop.code, stop.code"
    )
    suspects = ["jax", "numpy", "gguf", "huggingface_hub", "rich"]
    assert loaded_after(statements, "jaxserve.cli.plan", *suspects) == ["jaxserve.cli.plan"]
