"""How much a run of the proof computes; by default what its claim says."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """num_adapters to num_tokens: of the one batch. num_way: of each other way. num_churned: adapters of the load;
    num_requests: of each of its turns. num_turns: of all that is measured in turns."""

    num_adapters: int = 64
    num_prompts: int = 100
    num_tokens: int = 64
    num_way_adapters: int = 8
    num_way_prompts: int = 40
    num_way_tokens: int = 48
    num_small_pages: int = 60
    num_train_steps: int = 200
    num_churned: int = 2000
    num_requests: int = 256
    num_turns: int = 6
