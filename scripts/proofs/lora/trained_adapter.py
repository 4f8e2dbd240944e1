"""Adapters that were trained, and adapters that PEFT wrote: texts change as those of their merged models do."""

import tempfile
from pathlib import Path
from typing import Any

from jaxserve import LoRARequest
from scripts.proofs.helpers.draft_configs import SMOLLM
from scripts.proofs.helpers.laws import Law
from scripts.proofs.helpers.stored_rows import ROOT
from scripts.proofs.lora.merged_equality import compare
from scripts.proofs.lora.merged_scores import MergedModel
from scripts.proofs.lora.proof_sizes import Sizes
from scripts.proofs.parity import read_goldens

TEXT = ROOT / "docs" / "glossary.md"
PEFT_FOLDERS = ROOT / "tests" / "goldens" / "adapters"
NUM_PROMPTS, NUM_TOKENS, MAX_PROMPT_LEN = 20, 48, 64
NUM_PEFT_TOKENS = 12
MOST_LOSS = 0.9
"""Of the last tenth of the steps, over that of the first."""


def trained(sizes: Sizes) -> list[Law]:
    """An adapter of q and v is trained, merged by `jaxserve merge-lora`, and served: the same texts."""
    from jaxserve import LLM
    from jaxserve.cli.main import main
    from scripts.lora.train_lora import train_lora

    with tempfile.TemporaryDirectory() as temporary:
        adapter, merged = Path(temporary) / "adapter", Path(temporary) / "merged"
        losses = train_lora(SMOLLM, [TEXT.read_text(encoding="utf-8")], adapter, steps=sizes.num_train_steps)
        command = ["merge-lora", SMOLLM, str(adapter), "--output", str(merged), "--dtype", "float32", "--quiet"]
        if main(command):
            raise SystemExit("jaxserve merge-lora failed")
        prompts = [prompt[:MAX_PROMPT_LEN] for prompt in read_goldens(SMOLLM)[0][:NUM_PROMPTS]]
        options = {"dtype": "float32", "quantization": "dense", "max_model_len": 128, "max_num_seqs": 20}
        llm = LLM(
            SMOLLM,
            **options,
            enable_lora=True,
            max_loras=1,
            num_pages=400,
            max_num_batched_tokens=256,
            buckets="20 256x20",
        )
        base = _generate(llm, prompts, None, NUM_TOKENS)
        found = _generate(llm, prompts, LoRARequest("trained", str(adapter)), NUM_TOKENS)
        del llm
        equality = compare(MergedModel(str(merged)), prompts, [None] * len(prompts), found)
    tenth = max(1, len(losses) // 10)
    num_changed = sum(_tokens(a) != _tokens(b) for a, b in zip(base, found, strict=True))
    return [
        ("loss of the last tenth of the steps over that of the first", sum(losses[-tenth:]) / sum(losses[:tenth]),
         None, MOST_LOSS),
        (f"texts that the adapter changes, of {len(prompts)}", num_changed, 1, None),
        *equality.laws("the model that `jaxserve merge-lora` wrote"),
    ]  # fmt: skip


def files_of_peft(sizes: Sizes) -> list[Law]:
    """Folders that PEFT wrote, of tiny models: their texts are those of the merged checkpoint."""
    from jaxserve import LLM
    from tests.support.adapters.random_adapters import merged, tiny
    from tests.support.golden_data import goldens

    laws = list[Law]()
    for folder in sorted(PEFT_FOLDERS.iterdir()):
        family = folder.name.partition("-")[0]
        prompt, request = goldens(family)[1].prompt, LoRARequest(folder.name, str(folder))
        with tempfile.TemporaryDirectory() as temporary:
            expected = merged(Path(temporary), tiny(family), request).greedy(prompt, NUM_PEFT_TOKENS)
        options = {"dtype": "float32", "max_model_len": 128, "max_num_seqs": 8, "max_num_batched_tokens": 32}
        llm = LLM(tiny(family), **options, enable_lora=True, max_lora_rank=64, num_pages=3000, buckets="8 32x8")
        (found,), (base,) = (_generate(llm, [prompt], each, NUM_PEFT_TOKENS) for each in (request, None))
        num_equal = next(
            (i for i, (a, b) in enumerate(zip(_tokens(found), expected, strict=False)) if a != b), NUM_PEFT_TOKENS
        )
        laws.append((f"{folder.name}: tokens of the merged model, of {NUM_PEFT_TOKENS}", num_equal,
                     NUM_PEFT_TOKENS, None))  # fmt: skip
        laws.append((f"{folder.name}: the text is not the base model's", _tokens(found) != _tokens(base), 1, None))
    return laws


def _generate(llm: Any, prompts: list[list[int]], adapter: LoRARequest | None, num_tokens: int) -> list[Any]:
    from jaxserve import SamplingParams

    params = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True, logprobs=0)
    return llm.generate(prompts, params, lora_request=adapter, use_tqdm=False)


def _tokens(output: Any) -> list[int]:
    return output.outputs[0].token_ids
