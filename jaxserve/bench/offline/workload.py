"""Host: `Workload`: the requests of a benchmark: random token ids of ragged lengths, or the prompts of a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jaxserve.bench.lengths import LengthRange
from jaxserve.bench.offline.prompt_file import read_prompt_file
from jaxserve.core.errors import RequestError
from jaxserve.core.options.lora_request import LoRARequest
from jaxserve.core.options.sampling_params import SamplingParams
from jaxserve.core.outputs import RequestOutput
from jaxserve.engine.inputs.prompt import token_ids
from jaxserve.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Workload:
    """Prompts as token ids, which arrive at once in this order, and the number of tokens that each generates.

    lora_requests: the adapter of each; None: no request has one.
    """

    prompts: list[list[int]]
    output_lens: list[int]
    lora_requests: list[LoRARequest] | None = None

    @property
    def num_input_tokens(self) -> int:
        return sum(len(prompt) for prompt in self.prompts)

    @property
    def num_output_tokens(self) -> int:
        return sum(self.output_lens)

    def params(self) -> list[SamplingParams]:
        """Greedy sampling of exactly `output_lens` tokens: end tokens are ignored."""
        return [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in self.output_lens]

    def check_fits(self, max_model_len: int) -> None:
        """Raises `RequestError` where a request is longer than the context."""
        for i, (prompt, output_len) in enumerate(zip(self.prompts, self.output_lens, strict=True)):
            if len(prompt) + output_len > max_model_len:
                raise RequestError(
                    f"prompt {i} has {len(prompt)} tokens and {output_len} to generate, more than the context of "
                    f"{max_model_len}: lower --input-len or --output-len, or raise --max-model-len",
                    "input_len",
                )

    def check_complete(self, outputs: Sequence[RequestOutput]) -> None:
        """Raises `RuntimeError` where an output has not its full length: the rates would be wrong."""
        for i, (output, output_len) in enumerate(zip(outputs, self.output_lens, strict=True)):
            completion = output.outputs[0]
            if len(completion.token_ids) != output_len:
                raise RuntimeError(
                    f"request {i} ended with {completion.finish_reason!r} after {len(completion.token_ids)} tokens of "
                    f"{output_len}"
                )


@dataclass(frozen=True, slots=True)
class RandomWorkload:
    """Lengths depend on the seed, token ids also on the pass, so no pass hits the prefix cache of an earlier one."""

    num_prompts: int
    input_len: LengthRange
    output_len: LengthRange
    vocab_size: int
    seed: int

    def of_pass(self, number: int) -> Workload:
        lens = np.random.default_rng([self.seed, 0])
        input_lens, output_lens = (draw(lens, r, self.num_prompts) for r in (self.input_len, self.output_len))
        ids = np.random.default_rng([self.seed, 1, number])
        return Workload([ids.integers(0, self.vocab_size, n).tolist() for n in input_lens], output_lens)


@dataclass(frozen=True, slots=True)
class FileWorkload:
    """The same requests in every pass."""

    workload: Workload

    def of_pass(self, number: int) -> Workload:
        return self.workload


def draw(rng: np.random.Generator, lengths: LengthRange, count: int) -> list[int]:
    """`count` lengths from the range."""
    return rng.integers(lengths.low, lengths.high, count, endpoint=True).tolist()


def read_workload(
    path: Path, tokenizer: Tokenizer | None, *, num_prompts: int | None, output_len: LengthRange | None, seed: int
) -> FileWorkload:
    """The first `num_prompts` requests of a file, or all; see `prompt_file`.

    Missing output lengths are drawn from the range `output_len`, by default 16:256.
    """
    read = read_prompt_file(path, num_prompts)
    lens = [n for _, n in read]
    if output_len is not None and None not in lens:
        raise RequestError(f"every line of {path} has its output_len: leave out --output-len", "output_len")
    drawn = draw(np.random.default_rng([seed, 0]), output_len or LengthRange(16, 256), len(read))
    prompts = [prompt for prompt, _ in read]
    if tokenizer is None and any(prompt.token_ids is None for prompt in prompts):
        raise RequestError(f"{path} holds text and the model has no tokenizer: add --tokenizer FOLDER", "tokenizer")
    output_lens = [given or random for given, random in zip(lens, drawn, strict=True)]
    return FileWorkload(Workload(list(map(list, token_ids(prompts, tokenizer))), output_lens))
