"""Host: the int32 columns of a batch row on its way to the device; floats are sent as their bit patterns.

One table for both sides: the host fills `SAMPLING_FIELDS` once, when a sequence gets its slot; the runner puts
`STEP_FIELDS` before them in each step; the device reads both by name.
"""

import numpy as np

STEP_FIELDS = ("slot", "query_len", "start", "samples", "max_tokens", "max_drafts", "proposer")

FLOAT_FIELDS = (
    "temperature",
    "top_p",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
)

# Stop tokens known to the device, -1: none. A row with more of them may draw past its end, where the host truncates.
STOP_FIELDS = ("stop_0", "stop_1", "stop_2", "stop_3")

INT_FIELDS = (
    "top_k",  # 0: off
    "seed_low",  # the request's seed, 64 bits in two words
    "seed_high",
    "sample_index",  # index among the n samples of a request
    "prompt_len",
    "num_logprobs",  # -1: none asked
    "num_prompt_logprobs",  # -1: none asked
    "has_penalties",
    "has_edits",
    "mask_row",  # of the token masks; row 0 allows every token
    "pooling",  # a value of POOLING; 0: none asked
    "min_len",  # first position at which a stop token may be drawn
    "adapter",  # its place among those on the device; 0: none
    "owner",  # of the earlier outputs that the row may draft from (`EarlierOutputs`); 0: none
    *STOP_FIELDS,
)

POOLING = {None: 0, "mean": 1, "last": 2}

SAMPLING_FIELDS = FLOAT_FIELDS + INT_FIELDS
SAMPLING_INDEX = {name: i for i, name in enumerate(SAMPLING_FIELDS)}
ROW_FIELDS = STEP_FIELDS + SAMPLING_FIELDS
ROW_INDEX = {name: i for i, name in enumerate(ROW_FIELDS)}


def pack_sampling(values: dict[str, float | int]) -> np.ndarray:
    """int32[len(SAMPLING_FIELDS)]: one row; `values` must have every field."""
    if values.keys() != set(SAMPLING_FIELDS):
        raise KeyError(f"sampling fields differ: {sorted(values.keys() ^ set(SAMPLING_FIELDS))}")
    floats = np.array([values[name] for name in FLOAT_FIELDS], np.float32).view(np.int32)
    ints = np.array([values[name] for name in INT_FIELDS], np.int64).astype(np.uint32).view(np.int32)
    return np.concatenate([floats, ints])
