"""Host: what a chat template reads of messages, and the texts that it looks for, found in its syntax tree."""

from collections.abc import Iterator

from jinja2 import nodes

ARGUMENTS = "arguments"


def message_fields(tree: nodes.Template) -> frozenset[str]:
    """The fields of messages that the template reads: `message.name`, `message["name"]` or `message.get("name")`.

    Followed are variables that hold messages: loops over `messages`, assignments and arguments of macros.
    """
    holders = _holders(tree)
    return frozenset(name for base, name in _reads(tree) if _root(base) in holders)


def variables(tree: nodes.Template) -> frozenset[str]:
    """The names of variables that the template reads."""
    return frozenset(name.name for name in tree.find_all(nodes.Name) if name.ctx == "load")


def joins_arguments(tree: nodes.Template) -> bool:
    """Whether the template writes the arguments of a tool call as text: joined to others or alone, without a filter.

    DeepSeek's do. Templates that ask first whether arguments are text or an object take either.
    """
    tests = [test.node for test in tree.find_all(nodes.Test) if test.name in ("string", "mapping")]
    if any(_field(node) == ARGUMENTS for node in tests):
        return False
    pairs = [pair for kind in (nodes.Add, nodes.Concat, nodes.Output) for pair in tree.find_all(kind)]
    return any(_field(part) == ARGUMENTS for pair in pairs for part in pair.iter_child_nodes())


def compared_constants(tree: nodes.Template) -> frozenset[str]:
    """The texts that the template compares anything with, roles among them."""
    return frozenset(text for comparison in tree.find_all(nodes.Compare) for text in constants(comparison))


def constants(tree: nodes.Node) -> frozenset[str]:
    """The texts in expressions."""
    return frozenset(text for constant in tree.find_all(nodes.Const) if (text := _text(constant)) is not None)


def _field(node: nodes.Node) -> str | None:
    """The field that an expression reads."""
    if isinstance(node, nodes.Getattr):
        return node.attr
    return _text(node.arg) if isinstance(node, nodes.Getitem) else None


def _reads(tree: nodes.Template) -> Iterator[tuple[nodes.Node, str]]:
    called = {id(call.node) for call in tree.find_all(nodes.Call)}
    for read in tree.find_all(nodes.Getattr):
        if id(read) not in called:
            yield read.node, read.attr
    for read in tree.find_all(nodes.Getitem):
        if (name := _text(read.arg)) is not None:
            yield read.node, name
    for call in tree.find_all(nodes.Call):
        if not isinstance(call.node, nodes.Getattr) or call.node.attr != "get" or not call.args:
            continue
        if (name := _text(call.args[0])) is not None:
            yield call.node.node, name


def _holders(tree: nodes.Template) -> set[str]:
    """Names of variables that hold messages, lists of them included."""
    moves = [*_moves(tree)]
    holders, size = {"messages"}, 0
    while size < len(holders):
        size = len(holders)
        holders.update(target for target, source in moves if source in holders)
    return holders


def _moves(tree: nodes.Template) -> Iterator[tuple[str, str | None]]:
    """(variable, the variable that its value comes from)."""
    for loop in tree.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name):
            yield loop.target.name, _root(loop.iter)
    for assignment in tree.find_all(nodes.Assign):
        if isinstance(assignment.target, nodes.Name):
            yield assignment.target.name, _root(assignment.node)
    macros = {macro.name: macro for macro in tree.find_all(nodes.Macro)}
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Name) and (macro := macros.get(call.node.name)):
            for parameter, argument in zip(macro.args, call.args, strict=False):
                yield parameter.name, _root(argument)


def _root(node: nodes.Node | None) -> str | None:
    """The variable of which an expression is the value, an item, a part or a filtered list."""
    while isinstance(node, nodes.Filter) or (isinstance(node, nodes.Getitem) and _text(node.arg) is None):
        node = node.node
    return node.name if isinstance(node, nodes.Name) else None


def _text(node: nodes.Node) -> str | None:
    return node.value if isinstance(node, nodes.Const) and isinstance(node.value, str) else None
