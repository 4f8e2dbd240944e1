"""`jaxserve inspect` prints tables or JSON, and one sentence for mistakes."""

import json

import pytest

from tests.support.processes.command_line import check_mistake_here, jaxserve

NAME = "smollm2-135m-instruct"


def test_a_real_model_is_described_in_tables_that_a_file_can_hold(real_model):
    real_model(NAME)
    done = jaxserve("inspect", NAME)
    assert done.returncode == 0, done.stderr
    for shown in ("134,515,008", "Q4_1", "30 global", "with a chat template", "TPU v5e", "H100 80GB", "this cpu"):
        assert shown in done.stdout
    assert "\x1b" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 130


def test_a_shape_is_described_in_json_for_the_devices_asked_about():
    args = ["--json", "--tensor-parallel-size", "8", "--no-device", "--max-model-len", "4096"]
    done = jaxserve("inspect", "llama-3-70b", *args)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["num_params"] == 70_553_706_496
    assert record["max_model_len"] == 4096
    assert {fit["num_devices"] for fit in record["fits"]} == {8}
    assert not any(fit["device"].startswith("this") for fit in record["fits"])


MISTAKES = {
    "no such model": (["no-such-model"], "no-such-model"),
    "too long": (["llama-3-8b", "--max-model-len", "9000"], "max_model_len=9000"),
    "heads that do not divide": (["llama-3-8b", "--tensor-parallel-size", "3"], "possible: 1, 2, 4"),
    "an option of the engine": (["llama-3-8b", "--max-num-seqs", "3"], "--max-num-seqs"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_end_with_code_2_and_one_sentence(name, capsys):
    args, message = MISTAKES[name]
    check_mistake_here(["inspect", *args], message, capsys)
