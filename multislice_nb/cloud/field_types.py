"""Whether a request's values are of the types that its fields take: Python itself does not look."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

from multislice_nb._texts import did_you_mean
from multislice_nb.cloud.field_checks import Fault
from multislice_nb.errors import InvalidRequestError

if TYPE_CHECKING:
    from multislice_nb.cloud.request import QueuedResourceRequest

__all__ = ["are_texts", "refuse_unknown", "words", "wrong_types"]

_TAKEN: dict[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"),
    "str | None": ((str, NoneType), "a text"),
    "bool": ((bool,), "True or False"),
    "Mapping[str, str]": ((Mapping,), "a dictionary"),
    "str | Path | None": ((str, Path, NoneType), "its text, or its file as a Path"),
    "tuple[str, ...]": ((Collection,), "a list of texts"),
    "tuple[DataDisk, ...]": ((Collection,), "a list of DataDisk(source, mode)"),
}
"""By how a field is annotated; numbers and times have checks of their own."""
_READ_FROM_ANYTHING = {"accelerator_type", "type"}
"""Objects of `multislice_nb.tpu` say what they are as text."""


def wrong_types(request: QueuedResourceRequest) -> list[Fault]:
    """A fault for each value that its field does not take."""
    faults = []
    for name, one in request.__dataclass_fields__.items():
        types, wanted = _TAKEN.get(str(one.type), ((), ""))
        value = getattr(request, name)
        wrong = types and not isinstance(value, types)
        if str(one.type) == "tuple[str, ...]" and not wrong:
            wrong = not are_texts(value)
        if str(one.type) == "tuple[DataDisk, ...]" and not wrong:
            wrong = not all(_is_disk(disk) for disk in value)
        if wrong and name not in _READ_FROM_ANYTHING:
            faults.append(Fault(f"{name} cannot be {value!r}.", f"Give {wanted}."))
    return faults


def _is_disk(value: object) -> bool:
    """A `DataDisk`, or a dictionary of what one has."""
    if not isinstance(value, Mapping):
        value = {"source": getattr(value, "source", None), "mode": getattr(value, "mode", None)}
    known = "source" in value and set(value) <= {"source", "mode"}
    return known and all(isinstance(text, str) for text in value.values())


def are_texts(value: object) -> bool:
    """Whether it is a list of texts, or one text; what can be gone through once only is neither."""
    return isinstance(value, Collection) and all(isinstance(word, str) for word in value)


def words(value: str | Iterable[str]) -> tuple[str, ...]:
    """A list of texts, which may be written as one with commas."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return tuple(value)


def refuse_unknown(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse fields that a request does not have.

    Raises:
        InvalidRequestError: Names the first, and the nearest that there is.
    """
    fields = list(known)
    unknown = [name for name in given if name not in fields]
    if unknown:
        raise InvalidRequestError(
            f"A request has no field {unknown[0]}.",
            fix=did_you_mean(unknown[0], fields) or f"It has {', '.join(fields)}.",
        )
