"""Kept programs know the form of the weights that they were compiled for."""

import pytest

from tests.end_to_end.packed.test_packed_groups import int4, texts, write_model


@pytest.mark.thorough
def test_kept_programs_are_those_of_the_form(tmp_path):
    """Engines of one model whose weights have different forms share a folder of compiled programs."""
    write_model(tmp_path / "model", int4)
    forms, kept = ("packed", "int8"), {"compilation_cache_dir": str(tmp_path / "cache")}
    first, second = ([texts(tmp_path / "model", quantization=form, **kept)[0] for form in forms] for _ in range(2))
    assert first == second
    assert first[0] == texts(tmp_path / "model", **kept)[0]
