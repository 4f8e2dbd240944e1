"""`jaxserve quantize --calibration` loads the model only to write, and checks folder, form and text before."""

import string

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from jaxserve.cli.main import main
from jaxserve.engine import pure_model
from tests.jaxserve.convert.test_quantize import ODD, model
from tests.support.processes.command_line import check_mistake_here

LETTERS = Tokenizer(models.BPE({letter: i for i, letter in enumerate(string.ascii_lowercase)}, []))


@pytest.fixture
def loads(monkeypatch):
    """The models that were loaded."""
    load, names = pure_model.load, list[str]()

    def counted(name, **options):
        names.append(name)
        return load(name, **options)

    monkeypatch.setattr(pure_model, "load", counted)
    return names


@pytest.fixture
def quantize(tmp_path):
    """(arguments of the command for a scheme, function that writes a text of so many random letters)."""
    model(tmp_path / "model")
    LETTERS.save(str(tmp_path / "model" / "tokenizer.json"))
    text = tmp_path / "text.txt"

    def write(num_letters, seed=0):
        letters = np.random.default_rng(seed).choice(list(string.ascii_lowercase), 999)[:num_letters]
        text.write_text("".join(letters))

    write(600)
    given = ["quantize", str(tmp_path / "model"), str(tmp_path / "out"), "--quiet", "--calibration", str(text)]
    return (lambda *options: [*given, *options]), write


def test_mistakes_are_named_before_the_model_is_loaded(quantize, loads, tmp_path, capsys):
    arguments, write = quantize
    model(tmp_path / "odd", ODD)
    LETTERS.save(str(tmp_path / "odd" / "tokenizer.json"))
    odd = arguments("--scheme", "gptq-g128")
    odd[1] = str(tmp_path / "odd")
    check_mistake_here(odd, "64 inputs are not a multiple of 128", capsys)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("of someone")
    check_mistake_here(arguments("--scheme", "w8a8"), "is not empty", capsys)
    write(255)
    text = tmp_path / "text.txt"
    short = arguments("--scheme", "w8a8", "--overwrite")
    check_mistake_here(short, f"--calibration {text} has 255 tokens, fewer than a piece of 256", capsys)
    text.write_bytes(bytes(range(256)))
    check_mistake_here(short, f"--calibration {text} is not UTF-8 text", capsys)
    assert loads == []


@pytest.mark.thinned(1)
@pytest.mark.parametrize("scheme", ["w8a8", "gptq-g32"])
def test_only_what_is_left_to_write_needs_the_model(scheme, quantize, loads, tmp_path, capsys):
    arguments, write = quantize
    command = arguments("--scheme", scheme, "--max-shard-size", "200KB")
    assert main(command) == 0
    assert len(loads) == 1
    write(700)  # its pieces of 256 letters are the same
    assert main([argument for argument in command if argument != "--quiet"]) == 0
    assert "already complete" in capsys.readouterr().err
    write(600, seed=1)
    check_mistake_here(command, "different conversion (different calibration)", capsys)
    assert len(loads) == 1
