"""Loading needs no more host memory than the resulting arrays and a few pieces of the file.

A separate process loads a Llama-shaped GGUF file of 1.5 billion parameters, written block by block into a temporary
folder, as bfloat16 onto one CPU device, while this process samples its anonymous memory (RssAnon) every 20 ms. The peak
minus the memory before loading must not exceed the bytes of the arrays plus 256 MB.
"""

import argparse
import json
import os
import struct
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from scripts.proofs.helpers.process_memory import anonymous_bytes, peak_growth_bytes

BOUND_BYTES = 256 * 10**6
# Type id, values per block, bytes per block; each quantized block begins with its float16 scale.
F32, Q4_0, Q8_0 = (0, 1, 4), (2, 32, 18), (8, 32, 34)


@dataclass(frozen=True)
class Sizes:
    """Sizes of a Llama-shaped model with tied embeddings; the defaults have 1.5 billion parameters."""

    vocab_size: int = 151936
    model_dim: int = 1536
    mlp_dim: int = 8960
    num_layers: int = 28
    num_heads: int = 12
    num_kv_heads: int = 2
    head_dim: int = 128

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], tuple[int, int, int]]]:
        """Yields name, shape and type of each tensor: the embedding in Q8_0, the layers in Q4_0, norms in F32."""
        d, f, q, k = self.model_dim, self.mlp_dim, self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        yield "token_embd.weight", (self.vocab_size, d), Q8_0
        yield "output_norm.weight", (d,), F32
        for i in range(self.num_layers):
            for name in ("attn_norm", "ffn_norm"):
                yield f"blk.{i}.{name}.weight", (d,), F32
            shapes = {"attn_q": (q, d), "attn_k": (k, d), "attn_v": (k, d), "attn_output": (d, q)}
            for name, shape in (shapes | {"ffn_gate": (f, d), "ffn_up": (f, d), "ffn_down": (d, f)}).items():
                yield f"blk.{i}.{name}.weight", shape, Q4_0


@dataclass(frozen=True)
class Measured:
    num_params: int
    file_bytes: int
    target_bytes: int
    peak_bytes: int
    load_s: float

    @property
    def overhead_bytes(self) -> int:
        return self.peak_bytes - self.target_bytes


def write_model(path: Path, sizes: Sizes) -> None:
    """Writes a minimal header and random blocks of scale 0.01, with little memory."""
    rng = np.random.default_rng(0)
    declarations, offset, spans = b"", 0, []
    for name, shape, (type_id, block_len, block_bytes) in sizes.tensors():
        nbytes = int(np.prod(shape)) // block_len * block_bytes
        declarations += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        declarations += struct.pack(f"<{len(shape)}QIQ", *reversed(shape), type_id, offset)
        padded = -(-nbytes // 32) * 32
        spans.append((padded, block_bytes))
        offset += padded
    header = b"GGUF" + struct.pack("<IQQ", 3, len(spans), 0) + declarations
    with path.open("wb") as file:
        file.write(header + bytes(-len(header) % 32))
        for nbytes, block_bytes in spans:
            blocks = rng.integers(0, 256, (2**14, block_bytes), np.uint8)
            blocks[:, :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
            raw = (np.ones(2**14, "<f4") if block_bytes == 4 else blocks).tobytes()
            for start in range(0, nbytes, len(raw)):
                file.write(raw[: nbytes - start])


def load_here(path: str, sizes_json: str, piece_bytes: str) -> None:
    """Body of the measured process: prints its memory once JAX is initialized, loads, prints sizes and seconds."""
    import jax
    import jax.numpy as jnp

    import checkpoints.load
    import checkpoints.loading.pieces
    from checkpoints.mapping.rules import ModelDims
    from checkpoints.open_checkpoint import open_checkpoint
    from checkpoints.sources import resolve
    from checkpoints.tensor_names import llama_names

    s = Sizes(**json.loads(sizes_json))
    checkpoints.loading.pieces.PIECE_BYTES = int(piece_bytes) or checkpoints.loading.pieces.PIECE_BYTES
    n, group = s.num_layers, s.num_heads // s.num_kv_heads
    shapes = {
        "qkv": (n, s.num_kv_heads, (group + 2) * s.head_dim, s.model_dim),
        "o": (n, s.model_dim, s.num_heads * s.head_dim),
        "gate_up": (n, 2, s.mlp_dim, s.model_dim),
        "down": (n, s.model_dim, s.mlp_dim),
    }
    layer = {name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in shapes.items()}
    layer |= {name: jax.ShapeDtypeStruct((n, s.model_dim), jnp.float32) for name in ("attn_norm", "mlp_norm")}
    target = {
        "embed": jax.ShapeDtypeStruct((s.vocab_size, s.model_dim), jnp.bfloat16),
        "final_norm": jax.ShapeDtypeStruct((s.model_dim,), jnp.float32),
        "layers": {"all": layer},
    }
    slots = tuple(("all", i) for i in range(n))
    dims = ModelDims(s.num_heads, s.num_kv_heads, s.head_dim, s.vocab_size, slots)
    jax.block_until_ready(jnp.zeros(8))
    print(anonymous_bytes(os.getpid()), flush=True)
    started_s = time.monotonic()
    with open_checkpoint(resolve(path)) as checkpoint:
        params = jax.block_until_ready(checkpoints.load.load(checkpoint, target, llama_names.rules("gguf", dims)))
    leaves = jax.tree.leaves(params)
    print(json.dumps([sum(a.size for a in leaves), sum(a.nbytes for a in leaves), time.monotonic() - started_s]))


def measure(path: Path, sizes: Sizes, piece_bytes: int = 0) -> Measured:
    """Loads `path` in a new process and samples its memory; `piece_bytes` overrides the piece size, for a control."""
    code = "import sys; from scripts.proofs import loading; loading.load_here(*sys.argv[1:])"
    command = [sys.executable, "-c", code, str(path), json.dumps(asdict(sizes)), str(piece_bytes)]
    peak_bytes, output = peak_growth_bytes(command, XLA_FLAGS="")
    num_params, target_bytes, load_s = json.loads(output)
    return Measured(num_params, path.stat().st_size, target_bytes, peak_bytes, load_s)


def main(args: list[str]) -> str:
    """The table. Raises AssertionError where the bound does not hold."""
    parser = argparse.ArgumentParser(prog="scripts/prove loading", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, help="parent of the model's temporary folder, needs 1 GB (default: the system's)"
    )
    options = parser.parse_args(args)
    sizes = Sizes()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "model.gguf"
        write_model(path, sizes)
        measured = measure(path, sizes)
    if measured.overhead_bytes > BOUND_BYTES:
        raise AssertionError(
            f"loading took {measured.overhead_bytes / 1e6:.0f} MB in addition to the arrays; bound: 256 MB"
        )
    rows = {
        "parameters": f"{measured.num_params / 1e9:.3f} billion",
        "file (Q4_0, embedding Q8_0)": f"{measured.file_bytes / 1e6:.0f} MB",
        "arrays (bfloat16, norms float32)": f"{measured.target_bytes / 1e6:.0f} MB",
        "peak RssAnon minus start": f"{measured.peak_bytes / 1e6:.0f} MB",
        "in addition to the arrays": f"{measured.overhead_bytes / 1e6:.0f} MB (bound {BOUND_BYTES / 1e6:.0f} MB)",
        "time to load": f"{measured.load_s:.1f} s",
    }
    return "| | |\n| --- | --- |\n" + "\n".join(f"| {name} | {value} |" for name, value in rows.items())
