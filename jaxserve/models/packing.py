"""Device: `Packing`: in which form each matrix of a model is kept on the devices."""

from dataclasses import dataclass, field

from pallas_kernels.block_forms.block_form import BlockForm
from pallas_kernels.qtensor import Scheme

Form = Scheme | BlockForm | tuple[BlockForm, ...]
"""Of a matrix; or of the parts of its rows, which are then apart."""


@dataclass(frozen=True, slots=True)
class Packing:
    """By the paths of leaves ("layers/full/qkv", "embed"); matrices without a form are dense.

    layers, ends: of the matrices of layers, and of embedding and head, that have no form of their own. decoded: names
    of the forms that the file has and the devices do not, for messages. reasons: why, by the paths of these leaves.
    """

    layers: Form | None = None
    ends: Form | None = None
    own: tuple[tuple[str, Form], ...] = ()
    decoded: str = field(default="", compare=False)
    reasons: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def of(self, path: str) -> Form | None:
        """The form of a leaf."""
        return dict(self.own).get(path, self.layers if path.startswith("layers/") else self.ends)

    @property
    def name(self) -> str:
        """The names of all forms, in alphabetical order."""
        names = set[str]()
        for form in (self.layers, self.ends, *(form for _, form in self.own)):
            names |= {part.name for part in (form if isinstance(form, tuple) else (form,)) if part is not None}
        return ", ".join(sorted(names))

    @property
    def has_coded_inputs(self) -> bool:
        """Whether products of layers multiply codes by codes."""
        return _has_coded_inputs(self.layers)

    @property
    def head_has_coded_inputs(self) -> bool:
        """The same of the head."""
        return _has_coded_inputs(self.ends)


DENSE = Packing()


def _has_coded_inputs(form: Form | None) -> bool:
    return isinstance(form, Scheme) and form.has_coded_inputs
