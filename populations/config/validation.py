"""Checking plain data against a model, with messages for the person who wrote it.

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
"""Forms that a key takes, by its dotted path, where there are several."""

ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft(Generic[ModelT]):
    """A document that was checked: its valid part, and its faults.

    Attributes:
        model: Model of all that breaks no rule; None where too little is left.
        faults: A sentence for each.
        removed: Paths of the values that are wrong, or of keys that are not known.
    """

    model: ModelT | None
    faults: tuple[str, ...]
    removed: tuple[tuple[str, ...], ...]

    def require(self) -> ModelT:
        """Return the model, if nothing was wrong.

        Raises:
            ConfigError: Names every fault.
        """
        if self.faults or self.model is None:
            raise ConfigFaults(self.faults)
        return self.model


def validate_document(model: type[ModelT], document: object, *, hints: Hints) -> ModelT:
    """Check plain data (of YAML or JSON) strictly: text is no number, 2.5 is no count.

    Raises:
        ConfigError: Names, for every fault, the dotted key, the rule, the value, and for an unknown
            key the nearest known one.
    """
    return draft_document(model, document, hints=hints).require()


def draft_document(model: type[ModelT], document: object, *, hints: Hints) -> Draft[ModelT]:
    """Check as `validate_document` does, and go on without what is wrong.

    Raises:
        ConfigError: If the document is no mapping.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"a configuration must be a mapping of keys to values, got {document!r}")
    rest, messages, removed = document, list[str](), list[tuple[str, ...]]()
    # Pydantic looks at rules between keys only where each key by itself is right. So wrong values
    # are cut and the rest is checked again: one wrong number hides no other fault.
    while True:
        try:
            # The document is checked as JSON, because strict Python data would need tuples for
            # lists.
            valid = model.model_validate_json(json.dumps(rest), strict=True)
            return Draft(model=valid, faults=tuple(messages), removed=tuple(removed))
        except ConfigError as error:  # it ended the check: what else there is stays unknown
            return Draft(model=None, faults=(*messages, *faults_of(error)), removed=tuple(removed))
        except ValidationError as error:
            found = _by_path(rest, error)
        # A required key that was cut is missing the next time; its fault was told already.
        new = {path: faults for path, faults in found.items() if path not in removed}
        for path, faults in new.items():
            messages += _messages(model, rest, path, faults, hints=hints)
        # A fault that no cut can mend ends the loop, else it would be found for ever.
        cut = [path for path, faults in new.items() if path and all(map(_is_about_value, faults))]
        if len(cut) < len(found):
            return Draft(model=None, faults=tuple(messages), removed=(*removed, *cut))
        removed += cut
        rest = _without(rest, cut)


def _by_path(document: object, error: ValidationError) -> dict[tuple[str, ...], list[ErrorDetails]]:
    """Return faults by their place as the user wrote it: branches of a union have one."""
    found: dict[tuple[str, ...], list[ErrorDetails]] = {}
    for fault in error.errors():
        found.setdefault(_written_path(document, fault), []).append(fault)
    return found


def _is_about_value(fault: ErrorDetails) -> bool:
    """Return whether a fault goes with its value, unlike missing keys and rules between keys."""
    return fault["type"] != "missing" and not isinstance(_cause(fault), BrokenRules)


def _cause(fault: ErrorDetails) -> object:
    return (fault.get("ctx") or {}).get("error")


def _without(document: dict[str, Any], paths: Sequence[tuple[str, ...]]) -> dict[str, Any]:
    """Return a copy without the keys at some paths; a list goes whole."""
    rest: dict[str, Any] = copy.deepcopy(document)
    for path in paths:
        level: Any = rest
        # The whole list goes, because its other items would change places without one.
        for part in path[:-1]:
            if not isinstance(level.get(part), dict):
                level.pop(part, None)
                break
            level = level[part]
        else:
            level.pop(path[-1], None)
    return rest


def known_paths(model: type[BaseModel]) -> Iterator[tuple[str, ...]]:
    """Return every dotted key of a model; ``*`` stands for names that users choose."""
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute
        yield (name,)
        for inner, prefix in _inner_models(field.annotation):
            for path in known_paths(inner):
                yield (name, *prefix, *path)


def hyperparameter_path(name: str) -> tuple[str, ...] | None:
    """Return where a hyperparameter of PPO is written, by its name or another library's."""
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
    """Return the messages about the faults of one place."""
    dotted = ".".join(path)
    for key, forms in hints.items():
        # One sentence for all branches of a union: each would tell what it wanted.
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
    # "a number" says as much as "a number or a whole number".
    if NUMBER in rules:
        rules = [rule for rule in rules if not rule.startswith(WHOLE)]
    return [f"{dotted}: {with_value(' or '.join(rules), _value(document, path))}"]


def _written_path(document: object, fault: ErrorDetails) -> tuple[str, ...]:
    """Return the fault's place as the user wrote it: without the names of a union's branches."""
    level: Any = document
    path = []
    for part in fault["loc"]:
        is_key = isinstance(level, dict) and part in level
        is_item = isinstance(level, list) and isinstance(part, int) and part < len(level)
        if is_key or is_item:
            level = level[part]
            path.append(str(part))
    # A missing key is not in the document, so the walk could not follow it.
    if fault["type"] == "missing":
        path.append(str(fault["loc"][-1]))
    return tuple(path)


def _value(document: Any, path: Sequence[str]) -> object:  # noqa: ANN401  (plain data of any shape)
    for part in path:
        document = document[int(part) if isinstance(document, list) else part]
    return document


def _suggestion(model: type[BaseModel], path: tuple[str, ...]) -> str:
    """Name the nearest known key: a sibling, or the same word elsewhere in the configuration."""
    parent, key = path[:-1], path[-1]
    paths = list(known_paths(model))
    if (place := hyperparameter_path(key)) and ("populations",) in paths:
        return f"; did you mean {'.'.join(_filled(place, path))!r}?"
    # The right word in the wrong section is likelier than a misspelt one.
    elsewhere = [known for known in paths if known[-1] == key]
    siblings = [known for known in paths if _is_child(known, parent)]
    candidates = elsewhere if elsewhere else siblings
    if elsewhere:
        return nearest(".".join(path), [".".join(_filled(known, path)) for known in candidates])
    # Names are compared by the last word alone, and shown with the whole path.
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
    """Put the names a user wrote in the places of ``*``."""
    return tuple(
        path[index] if part == "*" and index < len(path) - 1 else part.replace("*", "<name>")
        for index, part in enumerate(known)
    )
