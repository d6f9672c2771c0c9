"""Construction of the rules of a run, or of one population, from the section ``pbt``."""

from __future__ import annotations

from typing import cast

from arena.errors import ConfigError
from arena.resolve import resolve
from arena.users_code import users_code
from populations.core import Exploit, Explore
from populations.pbt.kinds import EXPLOITS, EXPLORES
from populations.pbt.selection import Rule, Selection
from populations.pbt.settings import PbtConfig


def make_exploit(section: PbtConfig, *, launch_directory: str = "") -> Exploit:
    """Make the selection rule.

    Args:
        section: Section ``pbt``; a user's own class is called with it.
        launch_directory: Directory that is searched first for a user's own class; empty: the
            working directory.

    Raises:
        ConfigError: If the user's class cannot be imported or made.
    """
    # Only a reference to a user's class, ``package.module:Class``, has a colon.
    if ":" in section.exploit:
        return cast("Exploit", _users_own(section, section.exploit, launch_directory))
    rule = EXPLOITS[section.exploit].from_sections(section)
    # `none` decides by itself and needs no ranking; all others name donors.
    if not isinstance(rule, Rule):
        return rule
    return Selection(
        rule=rule, min_matches=section.min_matches, mutate_others=section.mutate_others
    )


def make_explore(section: PbtConfig, *, launch_directory: str = "") -> Explore:
    """Make the exploration rule; arguments and errors are those of `make_exploit`."""
    if ":" in section.explore:
        return cast("Explore", _users_own(section, section.explore, launch_directory))
    return EXPLORES[section.explore].from_sections(section)


def _users_own(section: PbtConfig, reference: str, launch_directory: str) -> object:
    make = resolve(reference, launch_directory=launch_directory)
    if not callable(make):
        raise ConfigError(f"pbt: {reference} is no class")
    # An error raised by the user's class must name that class, not this module.
    with users_code(f"pbt: {reference}, when it was made,"):
        made: object = make(section)
    return made
