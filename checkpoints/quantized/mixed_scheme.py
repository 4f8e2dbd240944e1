"""Host: `MixedScheme`: weights of a model that are quantized in different ways, which their tensors tell apart."""

from dataclasses import dataclass

from checkpoints.formats.tensor_file import ColumnFile, TensorInfo
from checkpoints.quantized.quantized_weight import Misfit, QuantizedWeight, Scheme


@dataclass(frozen=True, slots=True)
class MixedScheme:
    """schemes: those that the configuration names. Its patterns of names are not read: a weight is of the one scheme
    that its tensors fit by their types and shapes."""

    schemes: tuple[Scheme, ...]

    def has_codes(self, info: TensorInfo) -> bool:
        """See `Scheme`."""
        return any(scheme.has_codes(info) for scheme in self.schemes)

    def weight(self, file: ColumnFile, name: str) -> QuantizedWeight:
        """See `Scheme`. Codes that have a byte each are the same with any number of bits: the first that fits."""
        codes, found, misfits = file.tensors[name], list[QuantizedWeight](), list[str]()
        for scheme in self.schemes:
            if scheme.has_codes(codes):
                try:
                    found.append(scheme.weight(file, name))
                except Misfit as misfit:
                    misfits.append(str(misfit))
        if not found:
            raise Misfit(", or ".join(misfits))
        if len(found) > 1 and codes.dtype != "I8":
            raise Misfit(f"{name} fits {len(found)} of the configuration's forms of weights, of which it must fit one")
        return found[0]
