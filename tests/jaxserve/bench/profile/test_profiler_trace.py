"""Operations and annotations are found in the traces of every platform's profiler."""

from jax.profiler import ProfileData

from jaxserve.bench.profile.profiler_trace import RunKey, from_profile
from jaxserve.bench.profile.timeline import Span

CPU = """
planes {
  name: "/host:CPU"
  event_metadata { key: 1 value { id: 1 name: "fusion.1" } }
  event_metadata { key: 2 value { id: 2 name: "end: fusion.1" } }
  event_metadata { key: 3 value { id: 3 name: "pack" } }
  event_metadata { key: 4 value { id: 4 name: "Handle inputs" } }
  stat_metadata { key: 1 value { id: 1 name: "hlo_op" } }
  stat_metadata { key: 2 value { id: 2 name: "hlo_module" } }
  stat_metadata { key: 3 value { id: 3 name: "program_id" } }
  stat_metadata { key: 4 value { id: 4 name: "run_id" } }
  stat_metadata { key: 5 value { id: 5 name: "_p" } }
  stat_metadata { key: 6 value { id: 6 name: "_c" } }
  lines {
    name: "python"
    events { metadata_id: 3 offset_ps: 1000 duration_ps: 2000 }
    events { metadata_id: 4 offset_ps: 1000 duration_ps: 2000 }
  }
  lines {
    name: "tf_XLAEigen/1"
    events {
      metadata_id: 1 offset_ps: 10000 duration_ps: 1000
      stats { metadata_id: 1 str_value: "fusion.1" }
      stats { metadata_id: 2 str_value: "jit_step" }
      stats { metadata_id: 3 uint64_value: 7 }
      stats { metadata_id: 4 uint64_value: 40 }
      stats { metadata_id: 5 uint64_value: 99 }
    }
  }
  lines {
    name: "tf_XLAEigen/2"
    events { metadata_id: 2 offset_ps: 50000 duration_ps: 1000 stats { metadata_id: 6 uint64_value: 99 } }
  }
}
"""
TPU = """
planes {
  name: "/device:TPU:0"
  event_metadata { key: 1 value { id: 1 name: "%fusion.1 = bf16[8] fusion(%p), kind=kLoop" } }
  lines { name: "XLA Ops" events { metadata_id: 1 offset_ps: 10000 duration_ps: 1000 } }
  lines { name: "Steps" events { metadata_id: 1 offset_ps: 10000 duration_ps: 1000 } }
}
"""


def test_an_operation_on_cpu_lasts_until_its_end_in_another_thread():
    trace = from_profile(ProfileData.from_text_proto(CPU), ["pack"])
    assert trace.runs == {RunKey("jit_step", 7, 40, "/host:CPU:"): [Span(10, 51, "fusion.1")]}
    assert trace.host == [Span(1, 3, "pack")]


def test_on_tpu_operations_are_the_events_of_one_line():
    (spans,) = from_profile(ProfileData.from_text_proto(TPU), []).runs.values()
    assert spans == [Span(10, 11, "fusion.1")]
