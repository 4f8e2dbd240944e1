"""Tasks that crash, hang and break the device, between others that do what they should."""

import os
import time
from pathlib import Path

import jax

from scripts.benchmarks.gpu.task_list import Task


def abort():
    os.abort()


def hang():
    time.sleep(1e6)


def illegal_address():
    """Every later wait for the device fails, as after CUDA_ERROR_ILLEGAL_ADDRESS."""

    def fails(*_):
        raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")

    jax.block_until_ready = fails
    fails()


def fault_of_a_check():
    """As a check reports it, which goes on after an error of the device."""
    try:
        illegal_address()
    except RuntimeError as error:
        return {"fault": str(error)}


def computes():
    jax.block_until_ready(jax.numpy.ones(3))
    return {"pid": os.getpid()}


def tasks(folder: Path, is_small: bool):
    for name, run in (("abort", abort), ("hang", hang), ("illegal address", illegal_address)):
        yield Task(f"before {name}", "planted", computes)
        yield Task(name, "planted", run)
    yield Task("before fault", "planted", computes)
    yield Task("fault", "planted checks", fault_of_a_check)
    yield Task("last", "planted", computes)
