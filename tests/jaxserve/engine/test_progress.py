"""Bars say what they count and go on moving while no sample ends."""

from jaxserve.core.buckets import Bucket
from jaxserve.engine.progress import CompileBar, GenerateBar, LoadBar


def test_the_bar_moves_with_tokens_alone(capsys):
    with GenerateBar(True, num_samples=3) as bar:
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


def test_compiling_names_the_bucket_at_work(capsys):
    with CompileBar(True, total=2) as bar:
        bar._bar.mininterval = 0
        assert list(bar.over([Bucket(8, 8, 4), Bucket(32, 8, 4)])) == [Bucket(8, 8, 4), Bucket(32, 8, 4)]
    shown = capsys.readouterr().err
    assert "mixed[tokens=32, rows=8, page_columns=4]" in shown
    assert "2/2" in shown


def test_a_bar_switched_off_prints_nothing(capsys):
    with GenerateBar(False, num_samples=3) as bar:
        bar.update(3, 10)
    assert capsys.readouterr().err == ""
