"""What happens to adapters that are in use, that cannot be read, and that share a prompt."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from jaxserve import LoRARequest
from scripts.proofs.helpers.draft_configs import SMOLLM
from scripts.proofs.helpers.laws import Law
from scripts.proofs.lora.proof_sizes import Sizes
from tests.support.adapters.random_adapters import tiny, write_random_adapter

NUM_ADAPTERS, NUM_TOKENS = 20, 24
PROMPT = list(range(100, 164))
BUCKETS = {"max_num_batched_tokens": 128, "buckets": "8 128x8"}


def adapter_laws(sizes: Sizes) -> list[Law]:
    with tempfile.TemporaryDirectory() as folder:
        return _in_use_and_cached(Path(folder) / "of SmolLM2") + _unreadable(Path(folder) / "tiny")


def _in_use_and_cached(folder: Path) -> list[Law]:
    from jaxserve import LLM

    adapters = [write_random_adapter(folder / f"a{i}", SMOLLM, 8, i, ("q", "v")) for i in range(NUM_ADAPTERS)]
    options = {"dtype": "float32", "quantization": "dense", "max_model_len": 128, "max_num_seqs": 8}
    llm = LLM(SMOLLM, **options, enable_lora=True, max_loras=4, max_lora_rank=8, num_pages=1000, **BUCKETS)
    first, again = (sum(_cached(llm, adapter) for adapter in adapters) for _ in range(2))
    laws: list[Law] = [
        (f"cached tokens of a prompt that {NUM_ADAPTERS} adapters have read, each for the first time", first, None, 0),
        ("control: cached tokens where each reads it again", again, NUM_ADAPTERS * 48, None),
    ]
    return laws + _refused_evictions(llm, adapters) + _unloaded(llm, adapters)


def _refused_evictions(llm: Any, adapters: list[LoRARequest]) -> list[Law]:
    """Four texts use all places; nothing can be evicted, and a fifth adapter has no place, until they end."""
    from jaxserve import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=60, ignore_eos=True)
    streams = [llm.stream(PROMPT[:20], params, lora_request=adapter) for adapter in adapters[:4]]
    for stream in streams:
        next(stream)
    places = llm.parts.engine.scheduler.state.adapters
    before = dict(places.places)
    has_place = places.has_place(llm.load_adapter(adapters[4]))
    try:
        places.evict(1)
        is_refused = False
    except KeyError:
        is_refused = True
    is_unchanged = places.places == before
    for stream in streams:
        for _ in stream:
            pass
    has_place_later = places.has_place(llm.load_adapter(adapters[4]))
    return [
        ("a place for a fifth adapter while four places are in use", has_place, None, 0),
        ("an eviction then is refused, and changes nothing", is_refused and is_unchanged, 1, None),
        ("a place for it once they have ended", has_place_later, 1, None),
    ]


def _unloaded(llm: Any, adapters: list[LoRARequest]) -> list[Law]:
    """An adapter is unloaded, and another one gets its name, in the middle of a text."""
    from jaxserve import SamplingParams

    params, name = SamplingParams(temperature=0, max_tokens=NUM_TOKENS, ignore_eos=True), adapters[0].lora_name
    expected = [
        llm.generate([PROMPT[:24]], params, lora_request=adapter, use_tqdm=False)[0].outputs[0].token_ids
        for adapter in adapters[:2]
    ]
    stream = llm.stream(PROMPT[:24], params, lora_request=adapters[0])
    tokens = list(next(stream).outputs[0].token_ids)
    llm.unload_adapter(name)
    other = LoRARequest(name, adapters[1].lora_path)
    renamed = llm.generate([PROMPT[:24]], params, lora_request=other, use_tqdm=False)[0].outputs[0].token_ids
    for piece in stream:
        tokens += piece.outputs[0].token_ids
    return [
        ("a text whose adapter is unloaded meanwhile is what it was", tokens == expected[0], 1, None),
        ("a text by the other adapter that got its name is the other's", renamed == expected[1], 1, None),
        ("control: the two differ", expected[0] != expected[1], 1, None),
    ]


def _unreadable(folder: Path) -> list[Law]:
    """Two adapters fit into host memory, so the others are read again; the files of one are gone, of one replaced."""
    from jaxserve import LLM, SamplingParams

    model = tiny("llama3")
    adapters = [write_random_adapter(folder / f"t{i}", model, 8, i) for i in range(6)]
    options = {"dtype": "float32", "max_model_len": 128, "max_num_seqs": 8, "max_num_batched_tokens": 32}
    llm = LLM(model, **options, enable_lora=True, max_loras=2, max_cpu_loras=2, num_pages=300, buckets="8 32x8")
    params, prompts = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True), [[5, 6, 7, 8]] * 12

    def run() -> list[tuple[list[int], str | None]]:
        outputs = llm.generate(prompts, params, lora_request=adapters * 2, use_tqdm=False)
        return [(output.outputs[0].token_ids, output.outputs[0].finish_reason) for output in outputs]

    expected = run()
    shutil.rmtree(adapters[0].lora_path)
    write_random_adapter(folder / "t1", model, 8, 100)
    llm.generate(prompts[:2], params, lora_request=adapters[4:], use_tqdm=False)  # these take the host memory
    found = run()
    bad, good = [found[i] for i in (0, 1, 6, 7)], [i for i in range(12) if i % 6 > 1]
    return [
        ("requests whose adapter's files are gone or others, of 4: finish reason error",
         sum(reason == "error" for _, reason in bad), 4, None),
        ("texts of the other requests in that batch that are as before, of 8",
         sum(found[i] == expected[i] for i in good), 8, None),
        ("pages referenced afterwards", llm.parts.engine.scheduler.state.pool.num_referenced, None, 0),
    ]  # fmt: skip


def _cached(llm: Any, adapter: LoRARequest) -> int:
    from jaxserve import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=1)
    return llm.generate([PROMPT], params, lora_request=adapter, use_tqdm=False)[0].num_cached_tokens
