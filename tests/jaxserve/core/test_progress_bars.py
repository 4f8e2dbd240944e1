"""Bars say what they count and go on moving while no sample ends."""

from jaxserve.core.progress_bars import CompileBar, GenerateBar, LoadBar


def test_the_bar_moves_with_tokens_alone(capsys):
    with GenerateBar(True, total=3) as bar:
        bar._bar.mininterval = 0
        bar.update(1, 10)
        for _ in range(3):
            bar.update(0, 10)
    shown = capsys.readouterr().err
    assert "40 tokens" in shown
    assert "tokens/s" in shown
    assert "1/3" in shown


def test_weights_are_counted_in_bytes(capsys):
    with LoadBar(True) as bar:
        bar.update(1024, 2048)
        bar.update(2048, 2048)
    assert "2.00k/2.00k" in capsys.readouterr().err


def test_compiling_names_the_last_program_that_is_done(capsys):
    with CompileBar(True, total=2) as bar:
        bar._bar.mininterval = 0
        for name in ("decode[tokens=8]", "fork"):
            bar.update(name)
    shown = capsys.readouterr().err
    assert "decode[tokens=8]" in shown
    assert "2/2" in shown


def test_a_bar_switched_off_prints_nothing(capsys):
    with GenerateBar(False, total=3) as bar:
        bar.update(3, 10)
    assert capsys.readouterr().err == ""
