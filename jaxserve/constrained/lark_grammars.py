"""Host: context-free grammars of requests as Lark for llguidance: read as Lark or GBNF, and what is refused."""

import json
import re

from jaxserve.constrained.json_schema_rules import SchemaError

GBNF_RULE = re.compile(r"^\s*[A-Za-z][\w-]*\s*::=", re.MULTILINE)
# Strings, comments and regular expressions of Lark, in the order in which they are recognized.
QUOTED = re.compile(r'"(?:\\.|[^"\\\n])*"|(?:\#|//)[^\n]*|/(?:\\.|[^/\\])+/', re.DOTALL)
ATTRIBUTES = re.compile(r"^[ \t]*!?[_?]?[a-z][\w-]*\[([^\]]*)\]", re.MULTILINE)
REFUSED_ATTRIBUTES = {
    "stop": "takes tokens back: write the end into the grammar, or use suffix or lazy",
    "max_tokens": "cannot be taken back: bound the expression itself, as in /[^\\n]{1,200}/",
    "temperature": "is an option of requests",
}


def lark_from(text: str) -> str:
    """Lark of a grammar in Lark or GBNF. It is GBNF where a line begins with `name ::=`, which Lark does not have."""
    if GBNF_RULE.search(text):
        return _lark_from_gbnf(text)
    _check_lark(text)
    return text


def quoted(text: str) -> str:
    """A string of Lark, which is one of JSON, but that llguidance refuses a DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check_lark(text: str) -> None:
    bare = QUOTED.sub(" ", text)
    if "<" in bare:
        name = bare[bare.index("<") :].split(maxsplit=1)[0][:80]
        raise SchemaError(f"special tokens such as {name} are not part of texts: name none in a grammar")
    for attributes in ATTRIBUTES.findall(bare):
        for name, reason in REFUSED_ATTRIBUTES.items():
            if re.search(rf"\b{name}\b", attributes):
                raise SchemaError(f"the attribute {name} {reason}")


def _lark_from_gbnf(text: str) -> str:
    from llguidance.gbnf_to_lark import gbnf_to_lark

    try:
        return gbnf_to_lark(text)
    except Exception as error:  # that parser raises errors of any kind
        raise SchemaError(f"not a GBNF grammar: {error or type(error).__name__}"[:500]) from None
