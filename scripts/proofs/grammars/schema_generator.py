"""Made JSON schemas in the style of tool parameters, configuration files and answers of APIs, from a seed.

Each draws from the keywords of JSON Schema 2020-12 with the nesting, the annotations and the names that such schemas
have. Some keywords are drawn although engines often refuse them: coverage is measured, too.
"""

import random
from typing import Any

Schema = dict[str, Any]

STYLES = ("tool parameters", "configuration files", "answers of APIs")
NAMES = (
    "id name title description status kind type email url path query location city country language unit amount price "
    "currency quantity total count page limit offset sort order filter tags labels roles users items entries steps "
    "start_date end_date created_at updated_at timeout retries enabled verbose debug host port protocol region zone "
    "version author license repository scripts dependencies settings options profile address phone score rating weight "
    "width height color theme format encoding schedule interval owner group project priority message reason code data "
    "source target input output metadata annotations notes payload token session category summary"
).split()
WORDS = (
    "alpha beta gamma low medium high open closed pending done read write admin guest en fr de usd eur kg lb".split()
)
FORMATS = ("date", "date-time", "time", "uuid", "email", "ipv4", "hostname", "uri")
PATTERNS = (
    "^[a-z][a-z0-9-]{0,14}$",
    "^[A-Z]{3}$",
    r"^\d{4}-\d{2}$",
    r"^v?\d+\.\d+\.\d+$",
    "^#[0-9a-fA-F]{6}$",
    r"^\+?[0-9]{6,12}$",
    "^(low|medium|high)$",
    "^/[a-z0-9/_-]{1,20}$",
)
NUM_LEAVES = {"tool parameters": 5, "configuration files": 10, "answers of APIs": 12}


def generated(number: int) -> dict[str, Schema]:
    """So many schemas of each style, by name."""
    return {
        f"{style} {i}": _Generator(random.Random(f"{style} {i}"), style).schema()
        for style in STYLES
        for i in range(number)
    }


class _Generator:
    def __init__(self, rng: random.Random, style: str):
        self.rng, self.style, self.left = rng, style, NUM_LEAVES[style]
        self.definitions: dict[str, Schema] = {}

    def schema(self) -> Schema:
        whole: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} if self._is(0.4) else {}
        if self.style != "tool parameters" and self._is(0.5):
            self._define()
        whole |= {"title": self.rng.choice(NAMES).title()} if self._is(0.4) else {}
        if self.style == "answers of APIs" and self._is(0.3):
            return whole | {"type": "array", "items": self._object(1), **self._bounds("Items", 1, 4)} | self._defs()
        whole |= self._object(0)
        return whole | self._defs()

    def _defs(self) -> Schema:
        return {"$defs": self.definitions} if self.definitions else {}

    def _define(self) -> None:
        """A definition that others refer to; a tree refers to itself."""
        name = self.rng.choice(NAMES).title()
        if self._is(0.4):
            child = {"type": "array", "items": {"$ref": f"#/$defs/{name}"}, "maxItems": 2}
            properties = {"name": {"type": "string", "maxLength": 12}, "children": child}
            self.definitions[name] = {"type": "object", "properties": properties, "required": ["name"]}
        else:
            self.definitions[name] = self._object(2)

    def _object(self, depth: int) -> Schema:
        names = self.rng.sample(NAMES, self.rng.randint(1, 3 + 2 * (self.style != "tool parameters")))
        found: Schema = {"type": "object", "properties": {name: self._value(depth + 1) for name in names}}
        required = [name for name in names if self._is(0.6)]
        found |= {"required": required} if required or self._is(0.3) else {}
        roll = self.rng.random()
        if roll < 0.55:
            found["additionalProperties"] = False
        elif roll < 0.65:
            found["additionalProperties"] = self._leaf()
        elif roll < 0.7:
            found["patternProperties"] = {"^x-[a-z]{1,8}$": self._leaf()}
        if self._is(0.03):
            found["minProperties"] = 1
        if self._is(0.02):
            found["dependentRequired"] = {names[0]: [names[-1]]}
        return found

    def _value(self, depth: int) -> Schema:
        self.left -= 1
        roll = self.rng.random()
        if depth > 3 or self.left < 0 or roll < 0.6:
            found = self._leaf()
        elif roll < 0.72:
            found = self._object(depth)
        elif roll < 0.84:
            found = self._array(depth)
        elif roll < 0.88 and self.definitions:
            found = {"$ref": f"#/$defs/{self.rng.choice(list(self.definitions))}"}
        elif roll < 0.95:
            found = {self.rng.choice(("anyOf", "anyOf", "oneOf")): [self._leaf(), self._object(depth + 1)]}
        elif roll < 0.98:
            found = {"allOf": [self._object(depth + 1), {"required": []}]}
        else:
            found = {"type": "string", "not": {"enum": ["none"]}}
        return found | ({"description": f"The {self.rng.choice(NAMES)}."} if self._is(0.4) else {})

    def _array(self, depth: int) -> Schema:
        if self._is(0.15):
            return {"type": "array", "prefixItems": [self._leaf(), self._leaf()], "items": False, "minItems": 2}
        unique = {"uniqueItems": True} if self._is(0.08) else {}
        return {"type": "array", "items": self._value(depth + 1), **self._bounds("Items", 0, 5), **unique}

    def _leaf(self) -> Schema:
        rng = self.rng
        match rng.randrange(12):
            case 0 | 1:
                return {"type": "string", **self._bounds("Length", 0, 40)}
            case 2:
                return {"type": "string", "pattern": rng.choice(PATTERNS)}
            case 3:
                return {"type": "string", "format": rng.choice(FORMATS)}
            case 4 | 5:
                return {"enum": rng.sample(WORDS, rng.randint(1, 5)), **({"type": "string"} if self._is(0.7) else {})}
            case 6 | 7:
                return {"type": "integer", **self._range(int)} | ({"multipleOf": 5} if self._is(0.1) else {})
            case 8:
                return {"type": "number", **self._range(float)} | ({"multipleOf": 0.25} if self._is(0.1) else {})
            case 9:
                return {"type": "boolean", **({"default": False} if self._is(0.5) else {})}
            case 10:
                return {"type": [rng.choice(("string", "integer", "number")), "null"]}
            case _:
                return {"const": rng.choice([*WORDS, 1, None, True])}

    def _range(self, kind: type) -> Schema:
        low = self.rng.choice((0, 1, -100, 10))
        found: Schema = {"minimum" if self._is(0.8) else "exclusiveMinimum": kind(low)} if self._is(0.6) else {}
        return found | ({self.rng.choice(("maximum", "exclusiveMaximum")): kind(low + 250)} if self._is(0.5) else {})

    def _bounds(self, of: str, low: int, high: int) -> Schema:
        found = {f"min{of}": self.rng.randint(low, 2)} if self._is(0.3) else {}
        return found | ({f"max{of}": self.rng.randint(2, high)} if self._is(0.5) else {})

    def _is(self, p: float) -> bool:
        return self.rng.random() < p
