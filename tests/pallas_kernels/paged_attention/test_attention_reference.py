"""The reference equals attention computed token by token in numpy over contiguous keys and values."""

import numpy as np
import pytest

from pallas_kernels.paged_attention.arg_specs import Workload, build
from tests.pallas_kernels.paged_attention.attention_calls import attend

SHAPE = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "page_size": 4}
PLAIN = Workload("plain", (1, 1, 5, 3), (9, 1, 5, 11), **SHAPE, padding_tokens=2)
FEATURES = (
    PLAIN,
    Workload("window", (1, 5, 3), (20, 5, 30), **SHAPE, window=6),
    Workload("softcap_and_sinks", (1, 5, 3), (9, 5, 11), **SHAPE, softcap=1.5, has_sinks=True),
    Workload("tree", (1, 7, 6), (9, 7, 11), **SHAPE, is_tree=True),
    Workload("tree_and_narrow_window", (1, 7, 6), (9, 17, 21), **SHAPE, is_tree=True, window=3),
)


def history(pool: np.ndarray, a: dict, row: int) -> dict[int, np.ndarray]:
    """[K, W2] at each position that a row holds."""
    meta, page_size = a["meta"], pool.shape[3]
    first = int(meta.first_pages[row])
    positions = range(first * page_size, int(meta.kv_lens[row]))
    pages = np.asarray(meta.tables[row])
    return {p: pool[int(a["layer"]), pages[p // page_size - first], :, p % page_size] for p in positions}


def ancestors(bits: int, node: int) -> list[int]:
    return [j for j in range(node) if bits >> j & 1]


def attention_of_token(a: dict, pool: np.ndarray, row: int, token: int) -> np.ndarray:
    meta = a["meta"]
    start, end = int(meta.cu_q_lens[row]), int(meta.cu_q_lens[row + 1])
    base, node = int(meta.kv_lens[row]) - (end - start), token - start
    text = [*range(base)]  # KV indices of the text that this token continues, itself last
    if meta.tree is None:
        text += range(base, base + node)
    else:
        text += [base + j for j in ancestors(int(meta.tree[token, 0]) & 0xFFFFFFFF, node)]
    text.append(base + node)
    text = text[-(a["window"] or len(text)) :]
    kv = history(pool, a, row)
    q = np.asarray(a["q"])[token]
    num_heads, head_dim = q.shape
    out = np.zeros_like(q)
    for n in range(num_heads):
        head = n // (num_heads // pool.shape[2])
        scores = np.array([q[n] @ kv[p][head, :head_dim] for p in text]) * a["scale"]
        if a["softcap"]:
            scores = a["softcap"] * np.tanh(scores / a["softcap"])
        sink = 0.0 if a["sinks"] is None else np.exp(float(a["sinks"][n]))
        weights = np.exp(scores) / (np.exp(scores).sum() + sink)
        out[n] = sum(w * kv[p][head, head_dim : 2 * head_dim] for w, p in zip(weights, text, strict=True))
    return out


@pytest.mark.parametrize("workload", FEATURES, ids=lambda workload: workload.name)
def test_the_reference_is_attention(workload):
    arguments = build(workload)
    o, pool = attend(arguments, backend="reference", compile_fast=True)
    for row in range(len(workload.q_lens)):
        start, end = (int(n) for n in arguments["meta"].cu_q_lens[row : row + 2])
        for token in range(start, end):
            np.testing.assert_allclose(o[token], attention_of_token(arguments, pool, row, token), rtol=2e-5, atol=2e-6)


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
