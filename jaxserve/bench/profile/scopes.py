"""Host: the named scopes of a compiled program: the part of the model that each instruction computes."""

import re
from dataclasses import dataclass

from jaxserve.runner.programs.hlo import read_hlo

# The names given to `jax.named_scope` in Device modules; norms have the names of their weights.
SCOPES = frozenset(
    "unpack counts embed attention_plan rope layers weights attn_norm qkv q_norm k_norm attention o post_attn_norm "
    "mlp_norm mlp post_mlp_norm final_norm sample head process draw logprobs propose draft fuse write_kv accept "
    "compact prompt_logprobs pooled output law hidden_norm copy_sinks adapters".split()
)
CONTAINERS = frozenset(("while", "conditional", "call"))  # each lasts as long as the instructions that it runs
OP_NAME = re.compile(r'op_name="([^"]*)"')


@dataclass(frozen=True, slots=True)
class ProgramScopes:
    """scopes: scope by name of instruction, "" for none. containers: names of the instructions in `CONTAINERS`."""

    module: str
    scopes: dict[str, str]
    containers: frozenset[str]


def read_scopes(text: str) -> ProgramScopes:
    """The scopes in XLA's text of an executable (`jax.stages.Compiled.as_text`).

    An instruction that XLA added, such as a copy, has no op_name: it gets the scope of the call of its computation.
    """
    program = read_hlo(text)
    names = {line.name: OP_NAME.search(line.line) for line in program.instructions}
    home = {line.name: name for name, lines in program.computations.items() for line in lines}
    callers = {called: line.name for line in program.instructions for called in line.called}

    def scope(name: str | None) -> str:
        while name is not None:
            if (found := names[name]) is not None:
                return scope_of(found[1])
            name = callers.get(home[name])
        return ""

    module = re.match(r"HloModule ([\w.-]+)", text)
    return ProgramScopes(
        module[1] if module else "",
        {name: scope(name) for name in names},
        frozenset(line.name for line in program.instructions if line.opcode in CONTAINERS),
    )


def scope_of(op_name: str) -> str:
    """The scopes in an instruction's name, outermost first: "layers/mlp" of "jit(step)/layers/while/body/mlp/mul"."""
    return "/".join(part for part in op_name.split("/")[:-1] if part in SCOPES)
