"""`jaxserve batch`: where it keeps results that are copied to a bucket, and which names its lines may use."""

from jaxserve.cli import batch


def test_results_for_a_bucket_are_kept_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXSERVE_CACHE", str(tmp_path / "own"))
    assert batch._spool() == tmp_path / "own" / "batch"
    assert (tmp_path / "own" / "batch").is_dir()


def test_the_model_may_have_several_names():
    given = ["--served-model-name", "a", "--served-model-name", "b", "in", "out"]
    assert batch._parser().parse_args(given).served_model_name == ["a", "b"]
