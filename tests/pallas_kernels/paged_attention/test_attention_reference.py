"""The reference equals attention computed token by token in numpy, in float64, over contiguous keys and values."""

from dataclasses import replace

import numpy as np
import pytest

from pallas_kernels.paged_attention.workload_arguments import build
from pallas_kernels.paged_attention.workloads import Workload
from tests.pallas_kernels.paged_attention.attention_calls import attend, truth

SHAPE = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "page_size": 4}
PLAIN = Workload("plain", (1, 1, 5, 3), (9, 1, 5, 11), **SHAPE, padding_tokens=2)
FEATURES = (
    PLAIN,
    Workload("window", (1, 5, 3), (20, 5, 30), **SHAPE, window=6),
    Workload("softcap_and_sinks", (1, 5, 3), (9, 5, 11), **SHAPE, softcap=1.5, has_sinks=True),
    Workload("tree", (1, 7, 6), (9, 7, 11), **SHAPE, tree_words=1),
    Workload("tree_and_narrow_window", (1, 7, 6), (9, 17, 21), **SHAPE, tree_words=1, window=3),
    Workload("wide_tree_and_chain", (1, 40, 64, 70), (9, 45, 64, 71), **SHAPE, tree_words=2),
    Workload("int8", (1, 5, 3), (9, 5, 11), **SHAPE, pool_dtype="int8"),
    Workload("float8_e5m2", (1, 5, 3), (9, 5, 11), **SHAPE, pool_dtype="float8_e5m2", window=6),
)


def history(pool: np.ndarray, a: dict, row: int) -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """Keys and values [K, H] at each position that a row holds."""
    meta, page_size, head_dim, layer = a["meta"], pool.shape[3], a["q"].shape[2], int(a["layer"])
    k_scale, v_scale = (
        1.0 if a[s] is None else np.asarray(a[s], np.float64)[layer, :, None] for s in ("k_scale", "v_scale")
    )
    first = int(meta.first_pages[row])
    pages = np.asarray(meta.tables[row])
    kv = {}
    for p in range(first * page_size, int(meta.kv_lens[row])):
        stored = pool[layer, pages[p // page_size - first], :, p % page_size].astype(np.float64)
        kv[p] = (stored[:, :head_dim] * k_scale, stored[:, head_dim : 2 * head_dim] * v_scale)
    return kv


def ancestors(words: np.ndarray, node: int) -> list[int]:
    return [j for j in range(node) if j >= 32 * len(words) or int(words[j // 32]) >> j % 32 & 1]


def attention_of_token(a: dict, pool: np.ndarray, row: int, token: int) -> np.ndarray:
    meta = a["meta"]
    start, end = int(meta.cu_q_lens[row]), int(meta.cu_q_lens[row + 1])
    base, node = int(meta.kv_lens[row]) - (end - start), token - start
    text = [*range(base)]  # KV indices of the text that this token continues, itself last
    if meta.tree is None:
        text += range(base, base + node)
    else:
        text += [base + j for j in ancestors(np.asarray(meta.tree[token]), node)]
    text.append(base + node)
    spec = a["spec"]
    text = text[-(spec.window or len(text)) :]
    kv = history(pool, a, row)
    q = np.asarray(a["q"][token], np.float64)
    num_heads = len(q)
    out = np.zeros_like(q)
    for n in range(num_heads):
        head = n // (num_heads // pool.shape[2])
        scores = np.array([q[n] @ kv[p][0][head] for p in text]) * spec.scale
        if spec.softcap:
            scores = spec.softcap * np.tanh(scores / spec.softcap)
        sink = 0.0 if a["sinks"] is None else np.exp(float(a["sinks"][n]))
        weights = np.exp(scores) / (np.exp(scores).sum() + sink)
        out[n] = sum(w * kv[p][1][head] for w, p in zip(weights, text, strict=True))
    return out


@pytest.mark.parametrize("workload", FEATURES, ids=lambda workload: workload.name)
def test_the_reference_is_attention(workload):
    arguments = build(workload)
    o, pool = attend(arguments, backend="reference", compile_fast=True)
    o_wide, _ = truth(arguments)
    assert o_wide.dtype == np.float64
    for row in range(len(workload.q_lens)):
        start, end = (int(n) for n in arguments["meta"].cu_q_lens[row : row + 2])
        for token in range(start, end):
            expected = attention_of_token(arguments, pool, row, token)
            np.testing.assert_allclose(o[token], expected, rtol=2e-5, atol=2e-6)
            np.testing.assert_allclose(o_wide[token], expected, rtol=1e-11, atol=1e-13)


def test_new_keys_and_values_in_an_8_bit_pool_are_divided_by_their_scales():
    arguments = build(replace(PLAIN, pool_dtype="int8"))
    pool = attend(arguments, backend="reference", compile_fast=True).pool
    layer, slots = int(arguments["layer"]), np.asarray(arguments["meta"].write_slots)[: sum(PLAIN.q_lens)]
    stored = pool[layer, slots // 4, :, slots % 4]
    for lanes, part in ((slice(0, 8), "k"), (slice(8, 16), "v")):
        scale = np.asarray(arguments[f"{part}_scale"])[layer, :, None]
        wanted = np.asarray(arguments[part])[: len(slots)]
        in_range = np.abs(wanted) < 127 * scale
        assert in_range.mean() > 0.9
        assert (np.abs(stored[..., lanes] * scale - wanted) <= 0.501 * scale)[in_range].all()
    assert not stored[..., 16:].any()


def test_new_keys_and_values_are_stored_side_by_side_and_nothing_else_changes():
    arguments = build(PLAIN)
    before = np.asarray(arguments["pool"])
    after = attend(arguments, backend="reference", compile_fast=True).pool
    kv = np.concatenate([arguments["k"], arguments["v"]], axis=-1)
    expected = before.copy()
    layer, num_tokens = int(arguments["layer"]), sum(PLAIN.q_lens)
    for token, slot in enumerate(np.asarray(arguments["meta"].write_slots)[:num_tokens]):
        expected[layer, slot // 4, :, slot % 4] = np.pad(kv[token], ((0, 0), (0, 112)))
    np.testing.assert_array_equal(after[:, 1:], expected[:, 1:])
