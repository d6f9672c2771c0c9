"""Validation of plain data by a model, with messages for the user who wrote the data.

Tests: `tests/populations/config/test_run_config.py`, `tests/tools/launch/test_preflight.py`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from arena.errors import BrokenRules, ConfigError, ConfigFaults, faults_of
from arena.learning.hyperparameters import PpoHyperparameters
from arena.rules import NUMBER, WHOLE, broken_rule, nearest, shown, told, with_value
from populations.config.overrides import ALIASES

Hints = Mapping[str, str]
"""Allowed forms of a key in words, by its dotted path, for keys with several forms."""

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Generic[ModelT]):
    """Result of validating a document: its valid part, and its faults.

    Attributes:
        model: Model of the valid part; None if the rest is not enough for one.
        faults: A sentence for each fault.
        removed: Paths of invalid values and unknown keys.
    """

    model: ModelT | None
    faults: tuple[str, ...]
    removed: tuple[tuple[str, ...], ...]

    def require(self) -> ModelT:
        """Return the model if the document has no fault.

        Raises:
            ConfigError: Names every fault.
        """
        if self.faults or self.model is None:
            raise ConfigFaults(self.faults)
        return self.model


def validate_document(model: type[ModelT], document: object, *, hints: Hints) -> ModelT:
    """Validate plain data (of YAML or JSON) strictly: text is no number, 2.5 is no count.

    Raises:
        ConfigError: Names, for every fault, the dotted key, the rule, the value, and for an unknown
            key the nearest known one.
    """
    return draft_document(model, document, hints=hints).require()


def draft_document(model: type[ModelT], document: object, *, hints: Hints) -> Draft[ModelT]:
    """Validate like `validate_document`, but collect all faults and leave out invalid values.

    Raises:
        ConfigError: If the document is no mapping.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"a configuration must be a mapping of keys to values, got {document!r}")
    rest, messages, removed = document, list[str](), list[tuple[str, ...]]()
    # Pydantic checks rules between keys only if each key is valid by itself. So remove invalid
    # values and check the rest again, in order that one invalid number hides no other fault.
    while True:
        try:
            # Check the document as JSON, because a strict check of Python data would refuse lists
            # in the place of tuples.
            valid = model.model_validate_json(json.dumps(rest), strict=True)
            return Draft(model=valid, faults=tuple(messages), removed=tuple(removed))
        except ConfigError as error:  # This error ended the check.
            return Draft(model=None, faults=(*messages, *faults_of(error)), removed=tuple(removed))
        except ValidationError as error:
            found = _by_path(rest, error)
        # A required key that was removed is missing in the next round; skip that second fault.
        new = {path: faults for path, faults in found.items() if path not in removed}
        for path, faults in new.items():
            messages += _messages(model, rest, path, faults, hints=hints)
        # A fault that removing a value cannot fix ends the loop, which would otherwise not end.
        cut = [path for path, faults in new.items() if path and all(map(_is_about_value, faults))]
        if len(cut) < len(found):
            return Draft(model=None, faults=tuple(messages), removed=(*removed, *cut))
        removed += cut
        rest = _without(rest, cut)


def _by_path(document: object, error: ValidationError) -> dict[tuple[str, ...], list[ErrorDetails]]:
    """Return faults by path in the user's document, so that branches of a union share a path."""
    found: dict[tuple[str, ...], list[ErrorDetails]] = {}
    for fault in error.errors():
        found.setdefault(_written_path(document, fault), []).append(fault)
    return found


def _is_about_value(fault: ErrorDetails) -> bool:
    """Return whether removing the value removes a fault, unlike a missing key or rule of keys."""
    return fault["type"] != "missing" and not isinstance(_cause(fault), BrokenRules)


def _cause(fault: ErrorDetails) -> object:
    return (fault.get("ctx") or {}).get("error")


def _without(document: dict[str, Any], paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return a copy without the values at some paths; a list with such a value is removed whole."""
    rest: dict[str, Any] = copy.deepcopy(document)
    for path in paths:
        level: Any = rest
        # Remove the whole list, because without one item the others would change their indices.
        for part in path[:-1]:
            if not isinstance(level.get(part), dict):
                level.pop(part, None)
                break
            level = level[part]
        else:
            level.pop(path[-1], None)
    return rest


def known_paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Yield the path of every key of a model; ``*`` stands for a name that users choose."""
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        yield (name,)
        for inner, prefix in _inner_models(field.annotation):
            for path in known_paths(inner):
                yield (name, *prefix, *path)


def hyperparameter_path(name: str) -> tuple[str, ...] | None:
    """Return the path of a PPO hyperparameter by its name or alias; None if it is no such name."""
    real = ALIASES.get(name, name)
    if real not in PpoHyperparameters.model_fields:
        return None
    return ("populations", "*", "hyperparameters", real)


def _inner_models(annotation: object) -> Iterator[tuple[type[BaseModel], tuple[str, ...]]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, ()
        return
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is dict:
        for inner, prefix in _inner_models(arguments[1]):
            yield inner, ("*", *prefix)
    elif origin in (Union, UnionType):
        for argument in arguments:
            yield from _inner_models(argument)
    elif origin is Annotated:
        yield from _inner_models(arguments[0])


def _messages(
    model: type[BaseModel],
    document: object,
    path: tuple[str, ...],
    faults: Sequence[ErrorDetails],
    *,
    hints: Hints,
) -> list[str]:
    """Return the messages about the faults at one path."""
    dotted = ".".join(path)
    for key, forms in hints.items():
        # Write one sentence for a union, as each of its branches would give a message.
        if dotted == key or dotted.startswith(f"{key}."):
            return [f"{key} must be {forms}, got {shown(_value(document, key.split('.')))}"]
    first = faults[0]
    cause = _cause(first)
    if isinstance(cause, BrokenRules):
        return list(cause.faults)
    if first["type"] == "extra_forbidden":
        return [f"unknown key {dotted} (= {shown(first['input'])}){_suggestion(model, path)}"]
    if first["type"] == "missing":
        return [told(dotted, first)]
    rules = list(dict.fromkeys(broken_rule(fault) for fault in faults))
    # "a number" includes "a whole number", so leave out the second.
    if NUMBER in rules:
        rules = [rule for rule in rules if not rule.startswith(WHOLE)]
    return [f"{dotted}: {with_value(' or '.join(rules), _value(document, path))}"]


def _written_path(document: object, fault: ErrorDetails) -> tuple[str, ...]:
    """Return a fault's path in the user's document, without the names of a union's branches."""
    level: Any = document
    path = []
    for part in fault["loc"]:
        is_key = isinstance(level, dict) and part in level
        is_item = isinstance(level, list) and isinstance(part, int) and part < len(level)
        if is_key or is_item:
            level = level[part]
            path.append(str(part))
    # A missing key is not in the document, so the loop has not added it.
    if fault["type"] == "missing":
        path.append(str(fault["loc"][-1]))
    return tuple(path)


def _value(document: Any, path: Sequence[str]) -> object:  # noqa: ANN401  (plain data of any shape)
    for part in path:
        document = document[int(part) if isinstance(document, list) else part]
    return document


def _suggestion(model: type[BaseModel], path: tuple[str, ...]) -> str:
    """Return a hint with the nearest known key: the same word in another section, or a sibling."""
    parent, key = path[:-1], path[-1]
    paths = list(known_paths(model))
    if (place := hyperparameter_path(key)) and ("populations",) in paths:
        return f"; did you mean {'.'.join(_filled(place, path))!r}?"
    # A correct word in the wrong section is more likely than a misspelt word.
    elsewhere = [known for known in paths if known[-1] == key]
    siblings = [known for known in paths if _is_child(known, parent)]
    candidates = elsewhere if elsewhere else siblings
    if elsewhere:
        return nearest(".".join(path), [".".join(_filled(known, path)) for known in candidates])
    # Compare only the last word of each path, but show the whole path.
    names = {known[-1]: ".".join((*parent, known[-1])) for known in candidates}
    hint = nearest(key, names)
    for name, dotted in names.items():
        hint = hint.replace(repr(name), repr(dotted))
    return hint


def _is_child(known: tuple[str, ...], parent: tuple[str, ...]) -> bool:
    return len(known) == len(parent) + 1 and all(
        pattern in ("*", part) for pattern, part in zip(known, parent, strict=False)
    )


def _filled(known: tuple[str, ...], path: tuple[str, ...]) -> tuple[str, ...]:
    """Return a known path with each ``*`` replaced by the name in the user's path."""
    return tuple(
        path[index] if part == "*" and index < len(path) - 1 else part.replace("*", "<name>")
        for index, part in enumerate(known)
    )
