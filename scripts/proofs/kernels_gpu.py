"""GPU attention kernels lie within their bound of a float64 reference, in all combinations of what they serve.

See scripts/proofs/kernels.py. Without a GPU the kernels are interpreted.
"""

from scripts.proofs import kernels


def main(argv: list[str]) -> str:
    return kernels.prove("kernels_gpu", (kernels.GPU,), argv)
