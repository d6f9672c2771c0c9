"""Rules that a configuration can name, and the settings that each rule reads.

A rule (of matchmaking, of selection, of exploring) lies in one module together with its settings
and its `RuleKind`; one line in the list of kinds makes it known. The section of the configuration
takes its keys from there, so a new rule touches no other code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar, cast

from pydantic import create_model

from arena.config import Model

SettingsT = TypeVar("SettingsT", bound=Model)
SectionT = TypeVar("SectionT", bound=Model)
RuleT = TypeVar("RuleT")
RuleT_co = TypeVar("RuleT_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RuleKind(Generic[SettingsT, RuleT_co]):
    """A rule that a configuration can name.

    Attributes:
        name: Word in the configuration.
        settings: Model of the keys that the rule reads, with bounds and defaults. It is most often
            the rule's own class, and `Model` for a rule without settings.
        make: Constructor of the rule from these settings.
        section: Section of the configuration that has these keys; empty if it is the section that
            names the rule.
        usual: Defaults of this rule for the section's own keys.
        unread: Keys of the section itself that this rule does not read.
    """

    name: str
    settings: type[SettingsT]
    make: Callable[[SettingsT], RuleT_co]
    section: str = ""
    usual: Mapping[str, float] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    def from_sections(self, own: Model, **others: Model) -> RuleT_co:
        """Make the rule from sections of the configuration.

        Args:
            own: Section that names the rule.
            others: Further sections that may have the rule's keys, by name.
        """
        # The section that names the rule may differ from the section with its keys (`window`).
        return self.make(
            read_settings(self.settings, others[self.section] if self.section else own)
        )


def itself(rule: SettingsT) -> SettingsT:
    """Return the settings unchanged: the constructor of a rule that is its own settings."""
    return rule


Kinds = Mapping[str, RuleKind[Any, Any]]
"""Rules by name."""


def by_name(*kinds: RuleKind[Any, RuleT]) -> Mapping[str, RuleKind[Any, RuleT]]:
    """Return rules by name, in the order given."""
    return {kind.name: kind for kind in kinds}


def read_settings(settings: type[SettingsT], section: Model) -> SettingsT:
    """Return the settings of a rule, with the values that a section has for their keys."""
    # The section has validated these values, so they are not validated again.
    values: dict[str, Any] = {name: getattr(section, name) for name in settings.model_fields}
    return cast(SettingsT, settings.model_construct(**values))


def with_settings(section: type[SectionT], *kinds: Kinds) -> type[SectionT]:
    """Return a class of section that has the keys of all rules in addition to its own."""
    # A rule with a section of its own has its keys there, and not in this section.
    settings = [kind.settings for some in kinds for kind in some.values() if not kind.section]
    # A class that another one extends is left out, as the subclass brings its keys. With both as
    # bases, Python could not find a method resolution order.
    bases = [
        one
        for one in dict.fromkeys(settings)
        if not any(one is not other and issubclass(other, one) for other in settings)
    ]
    # The section itself may extend a rule's settings, as PbtSection does (the fraction).
    bases = [one for one in bases if not issubclass(section, one)]
    made = create_model(
        section.__name__.replace("Section", "Config"),
        __base__=(section, *bases),
        __doc__=section.__doc__,
        __module__=section.__module__,
    )
    return cast(type[SectionT], made)


class Choice(NamedTuple):
    """Choice of a rule by a configuration.

    Attributes:
        key: Key that names the rule.
        kinds: Rules of Arena's that the key can name; it may also name a user's class.
        name: Value of the key.
        own_reads_section: Whether a user's class is made with the whole section, and so may read
            every key of it; if not, it is made with the section's ``options`` alone.
    """

    key: str
    kinds: Kinds
    name: str
    own_reads_section: bool = True

    @property
    def is_own(self) -> bool:
        """Return whether the rule is a user's class."""
        return self.name not in self.kinds

    def readers(self, setting: str) -> list[str]:
        """Return the rules that read a key; empty if no rule does, or if all rules do."""
        # A key of the section itself is read by all rules, except those that list it in `unread`.
        is_shared = any(setting in kind.unread for kind in self.kinds.values())
        return [
            name
            for name, kind in self.kinds.items()
            if setting in kind.settings.model_fields or (is_shared and setting not in kind.unread)
        ]


def unread_settings(
    section: Model,
    *,
    prefix: str,
    choices: Iterable[Choice],
    also_read: Collection[str] = (),
) -> list[str]:
    """Return a sentence for each key with an own value that no chosen rule reads.

    A key that all rules read never gets a sentence.

    Args:
        section: Section as the user wrote it.
        prefix: Dotted name of the section.
        choices: Rules that may read the section.
        also_read: Keys that other parts of the program read.
    """
    # Populations that choose the same rules count once.
    chosen = list({(one.key, one.name): one for one in choices}.values())
    if any(one.is_own and one.own_reads_section for one in chosen):
        return []
    faults = []
    # Only keys that the user has set can be useless.
    for setting in sorted(section.model_fields_set):
        value = getattr(section, setting)
        readers = {one.key: found for one in chosen if (found := one.readers(setting))}
        is_read = any(one.name in readers.get(one.key, ()) for one in chosen)
        default = type(section).model_fields[setting].get_default(call_default_factory=True)
        # A key at its default is accepted, because dumps of configurations have all keys.
        if setting in also_read or value == default or is_read or not readers:
            continue
        told = [f"where {key} is {' or '.join(names)}" for key, names in readers.items()]
        # If populations chose different rules for a key, the message names only the last one.
        names = {one.key: f"{one.key} is {one.name}" for one in chosen if one.key in readers}
        faults.append(
            f"{prefix}.{setting} is read only {' and '.join(told)}, got {value!r} where "
            f"{' and '.join(names.values())}; leave it out, or at its default {default!r}"
        )
        if any(one.is_own and one.key in readers for one in chosen):
            faults[-1] += f" (a class of your own reads {prefix}.options)"
    return faults
