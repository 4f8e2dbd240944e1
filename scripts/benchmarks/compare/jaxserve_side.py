"""One round of jaxserve: an untimed warm-up workload, then the timed one, with statistics of its steps.

python -m scripts.benchmarks.compare.jaxserve_side SPEC.json RESULT.json
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from jaxserve import LLM
from jaxserve.bench.offline import offline_report, pass_summaries
from jaxserve.bench.offline.measure import measure
from jaxserve.bench.offline.workload import Workload


@dataclass(frozen=True)
class TwoWorkloads:
    warm_up: Workload
    timed: Workload

    def of_pass(self, number: int) -> Workload:
        return self.timed if number else self.warm_up


def main(spec_file: str, result_file: str) -> None:
    spec = json.loads(Path(spec_file).read_text())
    llm = LLM(spec["gguf"], dtype=spec["dtype"], **{"quantization": "dense"} | spec["options"])
    workloads = TwoWorkloads(Workload(**spec["warm_up"]), Workload(**spec["timed"]))
    measured = measure(llm, workloads, warm_up="pass", repeats=1)
    result = pass_summaries.throughput(measured.passes)
    say(f"{result['duration']:.1f} s, {result['output_throughput']:.1f} tokens/s")
    record = offline_report.record(llm, {}, result, measured)
    tokens = [output.outputs[0].token_ids for output in measured.passes[0].outputs]
    Path(result_file).write_text(json.dumps(record | {"tokens": tokens}))


def say(line: str) -> None:
    print(f"  jaxserve: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
