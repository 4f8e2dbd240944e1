"""Random quantized weights `a.weight` of every format: (config, tensors, decoded values by plain loops)."""

import json

import ml_dtypes
import numpy as np

SHAPE, GROUP = (32, 64), 16
NUM_GROUPS = SHAPE[1] // GROUP
RANDOM = np.random.default_rng(0)
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]
NF4 = np.linspace(-1, 1, 16).astype(np.float32)


def packed(codes, bits, axis, *, are_split=True):
    """Words of codes, one bit after the other by plain arithmetic of Python's integers. are_split: a code may lie in
    two words."""
    rows = np.moveaxis(codes, axis, -1)
    if not are_split:
        per_word = 32 // bits
        rows = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, -rows.shape[-1] % per_word)])
        rows = rows.reshape(*rows.shape[:-1], -1, per_word)
        words = sum(rows[..., i].astype(np.uint32) << np.uint32(bits * i) for i in range(per_word))
        return np.moveaxis(words, -1, axis).view(np.int32)
    words = np.zeros((*rows.shape[:-1], rows.shape[-1] * bits // 32), np.uint32)
    for place in np.ndindex(*rows.shape[:-1]):
        number = sum(int(code) << (bits * i) for i, code in enumerate(rows[place]))
        words[place] = [number >> (32 * i) & 0xFFFFFFFF for i in range(words.shape[-1])]
    return np.moveaxis(words, -1, axis).view(np.int32)


def random_parts(bits, shape, *, num_groups=None):
    """Codes [out, in], zero points and scales [out, groups], all of unsigned codes."""
    by_group = shape[0], num_groups or shape[1] // GROUP
    codes, zeros = (RANDOM.integers(0, 2**bits, size) for size in (shape, by_group))
    scales = RANDOM.uniform(0.01, 0.02, by_group).astype(np.float16)
    return codes.astype(np.uint8), zeros.astype(np.uint8), scales


def values(codes, zeros, scales, group):
    """By plain loops."""
    found = np.zeros(codes.shape, np.float32)
    for o, i in np.ndindex(*codes.shape):
        found[o, i] = np.float32(scales[o, group[i]]) * (int(codes[o, i]) - int(zeros[o, group[i]]))
    return found


def gptq(bits, stored_as, group=None, shape=SHAPE, group_len=GROUP):
    codes, zeros, scales = random_parts(bits, shape, num_groups=-(-shape[1] // group_len))
    stored = (zeros.astype(int) - 1) % 2**bits if stored_as == "gptq" else zeros
    tensors = {
        "a.qweight": packed(codes.T, bits, axis=0),
        "a.qzeros": packed(stored.T, bits, axis=1),
        "a.scales": np.ascontiguousarray(scales.T),
    }
    if group is not None:
        tensors["a.g_idx"] = group.astype(np.int32)
    config = {"quant_method": "gptq", "bits": bits, "group_size": group_len, "checkpoint_format": stored_as}
    return config, tensors, values(codes, zeros, scales, np.arange(shape[1]) // group_len if group is None else group)


def awq(shape=SHAPE, group_len=GROUP):
    codes, zeros, scales = random_parts(4, shape, num_groups=-(-shape[1] // group_len))
    order = np.arange(shape[0]).reshape(-1, 8)[:, AWQ_ORDER].reshape(-1)
    tensors = {
        "a.qweight": packed(codes.T[:, order], 4, axis=1),
        "a.qzeros": packed(zeros.T[:, order], 4, axis=1),
        "a.scales": np.ascontiguousarray(scales.T),
    }
    config = {"quant_method": "awq", "bits": 4, "version": "gemm", "group_size": group_len}
    return config, tensors, values(codes, zeros, scales, np.arange(shape[1]) // group_len)


def compressed(weights, tensors, expected):
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "config_groups": groups}, tensors, expected


def compressed_ints(
    bits, *, is_packed, is_symmetric, num_groups, group=None, shape=SHAPE, group_len=None, are_split=True
):
    codes, zeros, scales = random_parts(bits, shape, num_groups=num_groups)
    half = 2 ** (bits - 1)
    if is_symmetric:
        zeros = np.full_like(zeros, half)
    tensors = {"a.weight_scale": scales}
    if is_packed:
        tensors["a.weight_packed"] = packed(codes, bits, axis=1, are_split=are_split)
        tensors["a.weight_shape"] = np.array(shape)
    else:
        tensors["a.weight"] = (codes.astype(np.int16) - half).astype(np.int8)
    if not is_symmetric:
        shifted = (zeros.astype(np.int16) - half).astype(np.int8)
        tensors["a.weight_zero_point"] = packed(zeros, bits, axis=0, are_split=are_split) if is_packed else shifted
    if group is not None:
        tensors["a.weight_g_idx"] = group.astype(np.int32)
    group_len = group_len or shape[1] // num_groups
    by_group = {"strategy": "channel"} if num_groups == 1 else {"strategy": "group", "group_size": group_len}
    config = {"type": "int", "num_bits": bits, "symmetric": is_symmetric, **by_group}
    expected = values(codes, zeros, scales, np.arange(shape[1]) // group_len if group is None else group)
    return compressed(config, tensors, expected)


def one_scale(shape=SHAPE):
    codes = RANDOM.integers(-128, 128, shape).astype(np.int8)
    tensors = {"a.weight": codes, "a.weight_scale": np.array([0.5], np.float32)}
    return compressed({"type": "int", "num_bits": 8, "strategy": "tensor"}, tensors, codes * np.float32(0.5))


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]


def fp4(kind, shape=SHAPE):
    codes = RANDOM.integers(0, 16, shape).astype(np.uint8)
    tensors = {"a.weight_packed": (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)}
    if kind == "nvfp4":
        scales = RANDOM.uniform(1, 400, (shape[0], shape[1] // 16)).astype(ml_dtypes.float8_e4m3fn)
        tensors |= {"a.weight_scale": scales, "a.weight_global_scale": np.array([320.5], np.float32)}
        each = np.repeat(scales.astype(np.float32) / np.float32(320.5), 16, axis=1)
    else:
        scales = RANDOM.integers(110, 140, (shape[0], shape[1] // 32)).astype(np.uint8)
        tensors["a.weight_scale"] = scales
        each = np.repeat(2.0 ** (scales.astype(int) - 127), 32, axis=1).astype(np.float32)
    expected = np.array(E2M1, np.float32)[codes] * each
    return compressed({"type": "float", "num_bits": 4, "strategy": "group"}, tensors, expected)


def nf4(*, is_nested, block=64, shape=SHAPE, nested=8, storage="uint8"):
    codes = RANDOM.integers(0, 16, shape[0] * shape[1]).astype(np.uint8)
    num_blocks, state = -(-codes.size // block), {"shape": [*shape], "blocksize": block, "quant_type": "nf4"}
    tensors = {"a.weight": (codes[0::2] << 4 | codes[1::2]).astype(np.uint8).view(storage)[:, None]}
    tensors["a.weight.quant_map"] = NF4
    if is_nested:
        factor_codes = RANDOM.integers(0, 256, num_blocks).astype(np.uint8)
        table = np.linspace(-1, 1, 256).astype(np.float32)
        outer = RANDOM.uniform(1, 2, -(-num_blocks // nested)).astype(np.float32)
        state |= {"nested_blocksize": nested, "nested_offset": 0.25}
        tensors |= {
            "a.weight.absmax": factor_codes,
            "a.weight.nested_quant_map": table,
            "a.weight.nested_absmax": outer,
        }
        factors = table[factor_codes] * outer[np.arange(num_blocks) // nested] + np.float32(0.25)
    else:
        factors = tensors["a.weight.absmax"] = RANDOM.uniform(1, 2, num_blocks).astype(np.float32)
    tensors["a.weight.quant_state.bitsandbytes__nf4"] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    expected = (NF4[codes] * factors[np.arange(codes.size) // block]).reshape(shape)
    config = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_storage": storage}
    return config, tensors, expected


def eight_bits(shape=SHAPE):
    codes = RANDOM.integers(-127, 128, shape).astype(np.int8)
    scales = RANDOM.uniform(1, 2, shape[0]).astype(np.float32)
    tensors = {"a.weight": codes, "a.SCB": scales, "a.weight_format": np.zeros((), np.uint8)}
    expected = codes * (scales[:, None] * np.float32(1 / 127))
    return {"quant_method": "bitsandbytes", "load_in_8bit": True}, tensors, expected


def fp8(strategy, shape=SHAPE, block=(16, 32), scales=ml_dtypes.bfloat16):
    """scales: the type that has the numbers of blocks' scales, which are float32 in the file."""
    codes = RANDOM.normal(scale=30, size=shape).astype(ml_dtypes.float8_e4m3fn)
    of_blocks = -(-shape[0] // block[0]), -(-shape[1] // block[1])
    sizes = {"tensor": (), "channel": (shape[0], 1), "block": of_blocks}
    scale = RANDOM.uniform(0.001, 0.002, sizes[strategy]).astype(scales).astype(np.float32)
    if strategy == "block":
        each = np.array([[scale[o // block[0], i // block[1]] for i in range(shape[1])] for o in range(shape[0])])
    else:
        each = np.broadcast_to(scale, shape)
    more = {"block_structure": [*block]} if strategy == "block" else {}
    weights = {"type": "float", "num_bits": 8, "strategy": strategy, "symmetric": True, **more}
    return compressed(weights, {"a.weight": codes, "a.weight_scale": scale}, codes.astype(np.float32) * each)
