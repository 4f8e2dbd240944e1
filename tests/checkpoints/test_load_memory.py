"""Loading holds the arrays and a few pieces, never a whole decoded tensor; `scripts/prove loading` tests full size."""

from scripts.proofs.loading import BOUND_BYTES, Sizes, measure, write_model

# 60 million parameters, 50 million of them in one tensor: decoded whole, that tensor alone takes 200 MB.
SIZES = Sizes(vocab_size=49152, model_dim=1024, mlp_dim=2048, num_layers=1, num_heads=16, num_kv_heads=4, head_dim=64)


def test_a_model_loads_within_its_arrays_and_the_bound_and_whole_tensors_would_not(tmp_path):
    path = tmp_path / "model.gguf"
    write_model(path, SIZES)
    in_pieces = measure(path, SIZES)
    assert in_pieces.num_params > 59e6
    assert in_pieces.target_bytes < in_pieces.peak_bytes, "the sampler saw the arrays"
    assert in_pieces.overhead_bytes < BOUND_BYTES
    whole = measure(path, SIZES, piece_bytes=2**40)
    assert whole.overhead_bytes > BOUND_BYTES
