"""Device: block forms whose inputs are in an order of their own, such as GPTQ's act-order (Frantar et al., arXiv
2210.17323): those of a group are then any inputs, which were brought together when the codes were packed."""

from dataclasses import replace

from pallas_kernels.block_forms.block_form import BlockForm

SUFFIX = " in any order"


def with_order(form: BlockForm) -> BlockForm:
    """The same blocks of inputs in another order."""
    return replace(form, name=form.name + SUFFIX, has_order=True)


def without_order(form: BlockForm) -> BlockForm:
    """The form of the blocks."""
    return replace(form, name=form.name.removesuffix(SUFFIX), has_order=False)
