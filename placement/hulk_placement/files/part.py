"""What every document is made of: strict models, and figures that say their unit by the key they are given under.

A figure like a link's latency may be given in several units, by one key each (`rttMilliseconds`, `oneWaySeconds`). A
`Quantity` lists them: a part that has it is read in the base unit, and a figure is written under the first key by which
it comes back to the last bit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

API_VERSION: Final = "hulk.dev/files/v1"

Positive = Annotated[float, Field(gt=0)]
Amount = Annotated[float, Field(ge=0)]
MAX_COUNT = 1 << 30
"""Of anything that a document counts: a figure above is a slip, and would only take all memory."""

Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Number = Annotated[int, Field(ge=0, le=MAX_COUNT)]
Bytes = Annotated[int, Field(ge=0, le=1 << 50)]
Many = Annotated[int, Field(ge=1, le=1 << 20)]
"""Of things that are then written out one by one."""
Batch = Annotated[int, Field(ge=1, le=1 << 17)]
"""Sequences of a step: 131,072 are twice as many as BERT was trained with in 76 minutes (arXiv 1904.00962)."""
MOST_BLOCKS, MOST_LAYERS = 2000, 2048
"""Of a model, without and with embedding and head; the deepest that were trained have 1,000 (arXiv 2203.00555)."""
MOST_MACHINES, MOST_ACCELERATORS = 4096, 1 << 16
"""Of a topology, together."""
Buckets = Annotated[int, Field(ge=1, le=1 << 14)]
"""Buckets of gradients, each on its way by itself in a prediction: at most 16,384."""
NAME_PATTERN = r"^\S(.*\S)?$"
Name = Annotated[str, Field(max_length=253, pattern=NAME_PATTERN)]
"""Of a machine, a region, a layer: blanks inside, none around."""


@dataclass(frozen=True, slots=True)
class Either:
    """One thing that may be said under one of several keys; `required`: under one of them it must be."""

    name: str
    keys: tuple[str, ...]
    required: bool = False

    def check(self, given: Collection[str]) -> None:
        """ValueError where the keys that were given say it twice, or not although they must."""
        found = [key for key in self.keys if key in given]
        if len(found) > 1:
            raise ValueError(f"{self.name} is given more than once, by {' and '.join(found)}")
        if self.required and not found:
            raise ValueError(f"{self.name} is missing: give one of {', '.join(self.keys)}")

    def rule(self) -> dict[str, Any]:
        """The same as a JSON schema."""
        ways = [{"required": [key]} for key in self.keys]
        return {"oneOf": ways if self.required else [*ways, {"not": {"anyOf": ways}}]}


@dataclass(frozen=True, slots=True)
class Quantity:
    """One figure that may be given under one of several keys.

    `units`: the key, and the (factor, divisor) that turn its figure into the base unit, the friendliest first and the
    base unit, (1, 1), last. `required`: one of them must be there.
    """

    name: str
    units: Mapping[str, tuple[int, int]]
    required: bool = False

    @property
    def either(self) -> Either:
        """The keys."""
        return Either(self.name, tuple(self.units), self.required)

    def read(self, values: Mapping[str, float]) -> float | None:
        """The figure in the base unit, under whichever key it was given; None without it."""
        for key, (factor, divisor) in self.units.items():
            if key in values:
                return values[key] * factor / divisor
        return None

    def write(self, figure: float | None) -> dict[str, float]:
        """The key and the figure, so that `read` gives back the very same one; nothing for None.

        The first key whose figure is at least 1, else the first one that is exact.

        >>> Quantity("time", {"milliseconds": (1, 1000), "seconds": (1, 1)}).write(0.076)
        {'milliseconds': 76}
        """
        if figure is None:
            return {}
        shown = {key: plain(round(figure * divisor / factor, 6)) for key, (factor, divisor) in self.units.items()}
        exact = [key for key in shown if self.read({key: shown[key]}) == figure]
        readable = [key for key in exact if shown[key] >= 1] or exact
        return {readable[0]: shown[readable[0]]} if readable else {list(self.units)[-1]: plain(figure)}


def require_values(given: Mapping[str, Any]) -> None:
    """ValueError where a key that was given has no value."""
    nulls = [key for key, value in given.items() if value is None]
    if nulls:
        raise ValueError(f"{' and '.join(nulls)} without a value: write one, or leave the key out")


def plain(figure: float) -> float:
    """The same figure, without `.0` where it is a whole number that a float holds."""
    return int(figure) if figure == int(figure) and abs(figure) < 2**53 else figure


class Part(BaseModel):
    """A map in a document: frozen, camelCase keys, no others than those here, finite figures of the right type."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )
    QUANTITIES: ClassVar[tuple[Quantity, ...]] = ()
    EITHER: ClassVar[tuple[Either, ...]] = ()
    """What may be said in one of several ways."""

    def given(self) -> dict[str, Any]:
        """What the document says, by its keys."""
        return {to_camel(field): getattr(self, field) for field in self.model_fields_set}

    def figure(self, quantity: Quantity) -> float | None:
        """A quantity in its base unit; None where it was not given."""
        return quantity.read(self.given())

    @classmethod
    def _either(cls) -> tuple[Either, ...]:
        return (*(quantity.either for quantity in cls.QUANTITIES), *cls.EITHER)

    @model_validator(mode="after")
    def _given_once(self) -> Part:
        keys = self.given()
        require_values(keys)
        for either in self._either():
            either.check(keys)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The schema with the alternatives."""
        schema = handler(core)
        found = handler.resolve_ref_schema(schema)
        rules = [either.rule() for either in cls._either()]
        if rules:
            found["allOf"] = rules
        return schema


@dataclass(frozen=True, slots=True)
class OneOf:
    """Of a text in a model: it is one of `values`, which another room knows."""

    values: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._known, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return {"type": "string", "enum": list(self.values)}

    def _known(self, text: str) -> str:
        if text not in self.values:
            close = get_close_matches(text, self.values, n=1)
            suggestion = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"{text!r} is none of {', '.join(self.values)}{suggestion}")
        return text
