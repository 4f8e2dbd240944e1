"""PyTorch's scaled_dot_product_attention, if PyTorch is installed; PyTorch selects the kernel."""

import statistics
import time

from pallas_kernels.paged_attention.workloads import Workload
from scripts.benchmarks.kernels.measure_kernel import Sampling


def torch_sdpa(w: Workload, num_rows: int, q_len: int, kv_len: int, sampling: Sampling) -> float:
    """Seconds per call with contiguous keys and values in each row; new tokens are not stored.

    Calls are queued without waiting, which hides their dispatch while it is shorter than the calls. Raises
    NotImplementedError without PyTorch.
    """
    try:
        import torch
    except ImportError:
        raise NotImplementedError("PyTorch is not installed") from None
    if not torch.cuda.is_available():
        raise NotImplementedError("PyTorch sees no GPU")
    from torch.nn.functional import scaled_dot_product_attention

    def normal(num_heads: int, length: int):
        return torch.randn(num_rows, num_heads, length, w.head_dim, dtype=torch.bfloat16, device="cuda")

    q, k, v = normal(w.num_heads, q_len), normal(w.num_kv_heads, kv_len), normal(w.num_kv_heads, kv_len)

    def sample(count: int) -> float:
        torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(count):
            scaled_dot_product_attention(q, k, v, is_causal=q_len > 1, enable_gqa=w.num_heads != w.num_kv_heads)
        torch.cuda.synchronize()
        return (time.perf_counter() - started) / count

    try:
        sample(1)
        count = max(1, min(1000, round(sampling.seconds / sample(1))))
        return statistics.median(sample(count) for _ in range(sampling.count))
    finally:
        del q, k, v
        torch.cuda.empty_cache()
