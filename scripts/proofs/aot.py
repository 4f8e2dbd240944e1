"""Kernels and steps compile for every TPU generation and for Hopper, update the pool in place, and spill no register.

The product of which the tests named `aot` compile a part. For every TPU topology: attention of every workload, page
operations on every pool, adapters at every product of Llama 3 8B and SmolLM2 with 8, 64 and 512 tokens, and the layers
of Llama 3 8B (four chips) in a decode and a mixed bucket. For v5e and v6e: layers and whole steps of Gemma 3 1B (two
chips) in such buckets. For v6e and Hopper: a whole decode step of Llama 3 8B, for them and TPU7x also a step with
drafts, and in blocks of Q4_0 and Q4_K; for TPUs one of Llama 3.2 1B in blocks. For v5e, v6e, TPU7x and Hopper:
its layers and head with packed weights, and products with blocks of every form, also of smaller models. For Hopper:
every workload of the GPU tests, and products of few rows of six models. No device is needed. A case that copies the
pool or a weight, needs more temporaries than its test allows, or spills registers ends the proof. What has passed is
stored in .cache/proofs: an interrupted run goes on as long as sources are unchanged.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

from jaxserve.core.hardware.compilers import compile_without_devices
from scripts.proofs.helpers.stored_rows import stored

Case = tuple[str, str, Callable[[], None]]


def cases() -> Iterator[Case]:
    """(what is compiled, for which target, the check). Imports jax: call `compile_without_devices` first."""
    from pallas_kernels.qtensor import ALL_SCHEMES, SCHEMES
    from tests.jaxserve.runner.step import test_blocks_step_aot as block_steps
    from tests.jaxserve.runner.step import test_gemma_step_aot as gemma
    from tests.jaxserve.runner.step import test_gpu_step_aot as gpu_step
    from tests.jaxserve.runner.step import test_llama_step_aot as llama
    from tests.jaxserve.runner.step import test_packed_step_aot as packed
    from tests.pallas_kernels.lora_matmul.mosaic_gpu import test_lora_gpu_aot as gpu_adapters
    from tests.pallas_kernels.lora_matmul.mosaic_tpu import test_lora_aot as adapters
    from tests.pallas_kernels.matmul.mosaic_gpu import test_matmul_gpu_aot as products
    from tests.pallas_kernels.page_ops import test_page_ops_aot as page_ops
    from tests.pallas_kernels.paged_attention.mosaic_gpu import test_attention_gpu_aot as gpu
    from tests.pallas_kernels.paged_attention.mosaic_tpu import test_attention_aot as tpu
    from tests.pallas_kernels.quant_matmul.mosaic_gpu.blocks import test_block_kernel_aot as blocks
    from tests.pallas_kernels.quant_matmul.mosaic_tpu import test_tpu_blocks_aot as tpu_blocks
    from tests.support.compiled.aot import TPU_TOPOLOGIES, gpu_mesh, tpu_mesh
    from tests.support.compiled.aot_step import DRAFTS

    for topology in TPU_TOPOLOGIES:
        for name in tpu.WORKLOADS:
            yield (
                f"attention, {name}",
                topology,
                partial(tpu.test_kernels_compile_and_leave_the_pool_in_place, topology, name),
            )
        for done, pools, test in (
            ("tokens written", page_ops.POOLS, page_ops.test_tokens_are_written_into_the_donated_pool),
            ("rows moved", page_ops.MOVED, page_ops.test_rows_are_moved_in_the_donated_pool),
            ("pages copied", page_ops.COPIED, page_ops.test_pages_come_and_go_without_a_copy_of_the_pool),
        ):
            for name in pools:
                yield f"{done}, {name}", topology, partial(test, tpu_mesh(topology), name)
        for model, num_tokens in product(adapters.MODELS, (8, 64, 512)):
            check = partial(adapters.check_layers, topology, model, num_tokens)
            yield f"adapters of {model}, {num_tokens} tokens", topology, check
        for bucket in (llama.DECODE, llama.MIXED):
            check = partial(llama.test_the_backbone_needs_little_memory, topology, bucket)
            yield f"Llama 3 8B, layers, {bucket}", topology, check
    for topology in ("v5e:2x2", "v6e:2x2"):
        for bucket in (gemma.DECODE, gemma.MIXED):
            yield (
                f"Gemma 3 1B, layers, {bucket}",
                topology,
                partial(gemma.check_backbone, topology, bucket),
            )
            yield f"Gemma 3 1B, step, {bucket}", topology, partial(gemma.check_whole_step, topology, bucket)
    yield "adapters by XLA, the control", "v6e:2x2", adapters.check_that_xla_gathers
    yield f"Llama 3 8B, step, {llama.DECODE}", "v6e:2x2", partial(llama.check_whole_step, "v6e:2x2", llama.DECODE)
    meshes = {"h200": gpu_mesh()} | {topology: tpu_mesh(topology, 4) for topology in ("v6e:2x2", "tpu7x:2x2x1")}
    for target, mesh in meshes.items():
        for drafts in DRAFTS:
            check = partial(llama.check_verify_step, mesh, drafts)
            yield f"Llama 3 8B, step, {llama.VERIFY}, {drafts}", target, check
        check = partial(llama.check_decode_step_with_taps, mesh)
        yield f"Llama 3 8B with EAGLE-3, step, {llama.DECODE}", target, check
        check = partial(llama.check_draft_model_step, mesh, llama.VERIFY)
        yield f"Llama 3.1 8B, drafts of Llama 3.2 1B, {llama.VERIFY}", target, check
        check = partial(llama.check_reads_with_a_draft_model, mesh)
        yield f"Llama 3.1 8B, drafts of Llama 3.2 1B, weights read, {llama.FEW_ROWS}", target, check
        yield "Llama 3 8B, draw of 64 late rows", target, partial(llama.check_late_draw, mesh)
        yield "Llama 3 8B, draw of 64 late rows with drafts", target, partial(llama.check_late_drafts, mesh)
    for target, mesh in (meshes | {"v5e:2x2": tpu_mesh("v5e:2x2", 4)}).items():
        for scheme in ALL_SCHEMES if target in ("h200", "tpu7x:2x2x1") else SCHEMES:
            yield f"Llama 3 8B, layers and head in {scheme}", target, partial(packed.check_packed_layers, mesh, scheme)
    for form in ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "NF4-g64"):
        for count in (1, 2):
            check = partial(packed.check_blocks_on_gpus, form, count)
            yield f"Llama 3 8B, layers and head in {form}", f"h200, {count}", check
        check = partial(packed.check_prompts_with_blocks_on_a_gpu, form)
        yield f"Llama 3 8B, layers in {form}, 256 tokens", "h200", check
    one_device = {"h200, 1": gpu_mesh()} | {f"{name}, one chip": tpu_mesh(name) for name in ("v6e:2x2", "tpu7x:2x2x1")}
    for (target, mesh), form in product(one_device.items(), ("Q4_0", "Q4_K")):
        check = partial(block_steps.check_whole_step, mesh, form)
        yield f"Llama 3 8B in {form}, step, {block_steps.FEW}", target, check
    for target, mesh in one_device.items():
        yield "Llama 3 8B, layers in Q4_K_M", target, partial(block_steps.check_mixed_layers, mesh)
    for target in ("v5e:2x2", "v6e:2x2", "tpu7x:2x2x1"):
        for form in ("Q4_0", "Q8_0", "Q6_K"):
            # Drawing tokens moves 38 MB in any case: more, the smaller a chip's part of the weights.
            for count, most in ((1, 1.08), (4, 1.25)):
                check = partial(block_steps.check_whole_step, tpu_mesh(target, count), form, "llama-3.2-1b", most)
                yield f"Llama 3.2 1B in {form}, step, {block_steps.FEW}", f"{target}, {count} chips", check
        for form in ("Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K"):
            check = partial(block_steps.check_blocks, tpu_mesh(target), form)
            yield f"Llama 3 8B, layers and head in {form}", f"{target}, one chip", check
            check = partial(block_steps.check_blocks_on_four_chips, tpu_mesh(target, 4), form)
            yield f"Llama 3 8B, layers and head in {form}", f"{target}, four chips", check
    yield f"Llama 3 8B, step, {gpu_step.DECODE}", "h200", gpu_step.check_whole_step
    yield "Llama 3 8B, step of prompts", "h200", gpu_step.check_step_of_prompts
    with_kernel = gpu_step.check_layers_with_measured_products
    yield f"Llama 3 8B, layers, {gpu_step.DECODE}, products by the kernel", "h200", with_kernel
    yield f"Llama 3 8B in int8, layers, {gpu_step.DECODE}, products by the kernel", "h200", partial(with_kernel, "int8")
    yield f"Gemma 3 1B, layers, {gpu_step.DECODE}", "h200", gpu_step.check_layers_of_two_kinds
    yield "Llama 3 8B, batch-invariant steps of 8 and 64 rows", "h200", gpu_step.check_batch_invariant_steps
    for name in gpu.CASES:
        check = partial(gpu.test_kernels_compile_without_spilling_and_leave_the_pool_in_place, name)
        yield f"attention, {name}", "h200", check
    for name in gpu_adapters.CASES:
        yield f"adapters, {name}", "h200", partial(gpu_adapters.check, name)
    for form in blocks.SERVED:
        yield f"products with {form}", "h200", partial(blocks.check_products_with, form)
    for topology, form in product(("v5e:2x2", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1"), tpu_blocks.served(4096)):
        yield f"products with {form}", topology, partial(tpu_blocks.check_products_with, topology, form)
    for model in products.MODELS:
        yield f"products of 1 to 64 rows, {model}", "h200", partial(products.check_products_of, model)


def main(argv: list[str]) -> str:
    parser = argparse.ArgumentParser(prog="scripts/prove aot")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name or target contains TEXT")
    args = parser.parse_args(argv)
    compile_without_devices()
    lines = ["| compiled | target | seconds |", "|---|---|---|"]
    for name, target, check in cases():
        if args.only in (case := f"{name} {target}"):
            took_s = stored("aot", case, partial(_seconds_of, check), with_tests=True)
            lines.append(f"| {name} | {target} | {took_s:.0f} |")
            print(lines[-1], file=sys.stderr)
    return "\n".join([*lines, "", f"{len(lines) - 2} programs; none copies the pool."])


def _seconds_of(check: Callable[[], None]) -> float:
    began_s = time.monotonic()
    check()
    return time.monotonic() - began_s
