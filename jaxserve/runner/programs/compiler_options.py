"""Device: the XLA options that keep programs from copying weights, by type of device.

A step reads each layer's weights from a stack of all layers. Without these options XLA copies them first: it reads them
twice and writes them once, where decoding takes as long as it takes to read them once.
"""

from jax.sharding import Mesh

Options = dict[str, bool | str]

# For bfloat16 operands of products XLA prefers tiles of 16 x 128, but a program's arguments have tiles of 8 x 128: each
# dispatch began with a copy of all weights, 17.5 of Llama 3 70B's 17.7 GB on a device (libtpu 0.0.48).
_TPU7X: Options = {"xla_tpu_control_large_2nd_minor_layout_for_x16": False}

# XLA's own kernels for products read whole arrays, cuBLAS takes the address of a layer in the stack: 395 MB of copies
# in a decode step of Llama 3 8B (jaxlib 0.11.2).
#
# Conditions and loops that end by data are parts of CUDA graphs, too: otherwise the host waits for each of them, and
# queues no other step meanwhile. A decode step of 8 rows of Llama 3 8B takes 5.1 instead of 7.2 ms (H200).
GPU: Options = {
    "xla_gpu_enable_triton_gemm": False,
    "xla_gpu_enable_command_buffer": "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,CONDITIONAL,WHILE",
    # A trace names a graph's operations only if they run one by one.
    "xla_enable_command_buffers_during_profiling": False,
}


def compiler_options(mesh: Mesh) -> Options:
    """Options for programs on a mesh; they change no result but roundings."""
    device = mesh.devices.flat[0]
    if device.platform == "gpu":
        return GPU
    return _TPU7X if device.device_kind == "TPU7x" else {}
