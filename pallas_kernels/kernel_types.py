"""Device: names for values inside Pallas kernels, whose types Pallas does not declare."""

from typing import Any

Ref = Any
"""A buffer, semaphore or barrier in some memory of the device, or a part of one (`ref.at[…]`)."""
Copy = Any
"""An asynchronous copy: `start()`, then `wait()`."""
Scalar = Any
"""An integer: traced, or a Python `int` where the kernel is unrolled."""
Refs = dict[str, Any]
"""Refs by the names of what they hold."""
