"""Device: `InputOrder`: codes are decoded in the order of their bytes, and the inputs are permuted to it.

A step's codes are decoded in slots. A slot has the codes at the same bits of both halves of each 32-bit word, which one
shift and one mask make two numbers of 16 bits. Of four bits there are four slots:

    word of 4 bytes    byte 3: b b a a    byte 2: d d c c    byte 1: b b a a    byte 0: d d c c    (a letter: 2 bits)
    slots              (shift 0, half 0): c of bytes 0 and 2     (0, 1): a of bytes 1 and 3
                       (shift 4, half 0): d of bytes 0 and 2     (4, 1): b of bytes 1 and 3

A piece is what 16 bytes give a slot: 8 of 16 consecutive inputs, which have one scale.
"""

from dataclasses import dataclass

from jaxtyping import Array, Float

from pallas_kernels.block_forms.block_form import BlockForm, Plane
from pallas_kernels.quant_matmul.last_step import in_steps

PIECE = 16
"""Inputs, and bytes of a row."""


@dataclass(frozen=True)
class InputOrder:
    """Of steps of so many inputs, whole blocks."""

    form: BlockForm
    inputs: int

    @property
    def slots(self) -> tuple[tuple[int, int], ...]:
        """Shift and half of each."""
        return tuple((shift, half) for shift in range(0, 8, self._base.bits) for half in (0, 1))

    @property
    def slot_inputs(self) -> int:
        return self.inputs // len(self.slots)

    @property
    def num_pieces(self) -> int:
        """Of a slot."""
        return 2 * self.slot_inputs // PIECE

    def permuted(self, x: Float[Array, "N I"]) -> Float[Array, "N K"]:
        """Each step's inputs slot by slot (`in_steps`)."""
        x = in_steps(x, self.inputs)
        base, (num_rows, num_inputs) = self._base, x.shape
        num_runs = self.inputs * base.bits // 8 // base.run
        by_word = x.reshape(num_rows, num_inputs // self.inputs, num_runs, 8 // base.bits, base.run // 4, 2, 2)
        return by_word.transpose(0, 1, 3, 6, 2, 4, 5).reshape(x.shape)

    def first_input(self, slot: int, piece: int) -> int:
        """Of the 16 inputs in the step of which a piece has every other one."""
        base, (shift, _) = self._base, self.slots[slot]
        run, byte = divmod(PIECE * piece, base.run)
        return (run * 8 + shift) * base.run // base.bits + byte

    def place(self, plane: Plane, first_input: int) -> tuple[int, int]:
        """Where a plane has the bits of such inputs: the number of 16 bytes in the step, and the shift in each byte."""
        runs, within = divmod(first_input, plane.run * 8 // plane.bits)
        shift, byte = divmod(within, plane.run)
        return (runs * plane.run + byte) // PIECE, shift * plane.bits

    @property
    def _base(self) -> Plane:
        return self.form.planes[0]
