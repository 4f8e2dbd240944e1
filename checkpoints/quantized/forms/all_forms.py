"""Host: the forms in which `jaxserve quantize` writes weights, by name."""

from checkpoints.quantized.forms.fp8_form import Fp8Form
from checkpoints.quantized.forms.gptq_form import GptqForm
from checkpoints.quantized.forms.group_form import GroupForm
from checkpoints.quantized.forms.int_form import IntForm
from checkpoints.quantized.forms.nf4_form import CalibratedNf4Form, Nf4Form
from checkpoints.quantized.forms.written_form import WrittenForm

FORMS: dict[str, WrittenForm] = {
    "int8": IntForm(),
    "w8a8": IntForm(has_coded_inputs=True),
    "fp8": Fp8Form(),
    **{f"int4-g{group_len}": GroupForm(group_len) for group_len in (32, 64, 128)},
    "nf4": Nf4Form(),
    # AWQ's scales are folded into the weights before; which codes are best for those, GPTQ finds.
    **{f"{name}-g{group_len}": GptqForm(group_len) for name in ("awq", "gptq") for group_len in (32, 64, 128)},
}

CALIBRATED_FORMS: dict[str, WrittenForm] = {"nf4": CalibratedNf4Form()}
"""Of schemes that may do without calibration, those with it."""


def form_of(scheme: str, *, is_calibrated: bool) -> WrittenForm:
    """is_calibrated: by sums over inputs."""
    return CALIBRATED_FORMS.get(scheme, FORMS[scheme]) if is_calibrated else FORMS[scheme]
