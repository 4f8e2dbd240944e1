"""Device: constants of the online softmaxes."""

import math

import numpy as np

LOG2_E = math.log2(math.e)
"""Factor of scores whose weights are powers of 2 instead of e."""
HIDDEN = float(np.finfo(np.float32).min)
"""Score of positions that a query does not attend to; finite, so that differences of two such scores are numbers."""
LOWEST = -1e30
"""Initial highest score of a query. Finite for the same reason, and far above HIDDEN: 2 ** (HIDDEN - LOWEST) is 0."""
