"""Host: codes of a few bits each, packed into 32-bit words one after the other, the lowest bits first.

Codes whose bits do not divide 32 may lie in two words ("split"), or leave the last bits of each word unused.
"""

import numpy as np

WORD = 32


def num_words(num_codes: int, bits: int, *, are_split: bool = True) -> int:
    """That hold so many codes."""
    return -(-num_codes * bits // WORD) if are_split else -(-num_codes // (WORD // bits))


def unpacked(words: np.ndarray, bits: int, axis: int, *, are_split: bool = True) -> np.ndarray:
    """uint8 codes of int32 or uint32 words: all that have room along `axis`."""
    words = np.ascontiguousarray(np.moveaxis(words, axis, -1)).view(np.uint32)
    per_word, mask = WORD // bits, np.uint32(2**bits - 1)
    num_codes = words.shape[-1] * WORD // bits if are_split else words.shape[-1] * per_word
    if WORD % bits == 0 or not are_split:
        shifts = np.arange(0, per_word * bits, bits, dtype=np.uint32)
        codes = ((words[..., None] >> shifts) & mask).astype(np.uint8)
    else:
        first = np.arange(num_codes, dtype=np.int64) * bits
        word, shift = first // WORD, (first % WORD).astype(np.uint64)
        pairs = words.astype(np.uint64)
        pairs[..., :-1] |= pairs[..., 1:] << np.uint64(WORD)
        codes = ((pairs[..., word] >> shift).astype(np.uint32) & mask).astype(np.uint8)
    return np.moveaxis(codes.reshape(*words.shape[:-1], num_codes), -1, axis)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """int32 words of uint8 codes, 32 / bits of the last axis in each; bits divides 32."""
    per_word = WORD // bits
    parts = codes.reshape(*codes.shape[:-1], codes.shape[-1] // per_word, per_word).astype(np.uint32)
    shifts = np.arange(0, WORD, bits, dtype=np.uint32)
    return np.bitwise_or.reduce(parts << shifts, axis=-1).view(np.int32)


def nibbles(codes: np.ndarray, *, is_high_first: bool) -> np.ndarray:
    """The two codes of each byte of the last axis, one after the other."""
    low, high = codes & np.uint8(15), codes >> np.uint8(4)
    pairs = (high, low) if is_high_first else (low, high)
    return np.stack(pairs, axis=-1).reshape(*codes.shape[:-1], 2 * codes.shape[-1])
