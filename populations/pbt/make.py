"""From the section ``pbt`` to the rules of a run, or of one population."""

from __future__ import annotations

from typing import cast, get_args

from arena.errors import ConfigError
from arena.resolve import resolve
from arena.users_code import users_code
from populations.config.sections import EXPLOIT_KINDS, EXPLORE_KINDS, PbtConfig
from populations.core import Exploit, Explore
from populations.pbt.exploit import (
    BinaryTournament,
    Gate,
    NoExploit,
    PredictedWin,
    SignificantlyBetter,
    Truncation,
)
from populations.pbt.explore import NoExplore, Perturb, Resample
from populations.pbt.model_based import ModelBased, SamplerKind
from populations.pbt.pb2 import Pb2
from populations.pbt.selection import Rule, Selection


def make_exploit(section: PbtConfig, *, launch_directory: str = "") -> Exploit:
    """Make the selection rule.

    Args:
        section: ``pbt``; a user's own class is called with it.
        launch_directory: Where a user's own class is looked for first; empty: where the process is.

    Raises:
        ConfigError: If there is no such kind, or the user's class cannot be had.
    """
    if ":" in section.exploit:
        return cast("Exploit", _users_own(section, section.exploit, launch_directory))
    if section.exploit == "none":
        return NoExploit()
    return Selection(
        rule=_make_rule(section),
        min_matches=section.min_matches,
        mutate_others=section.mutate_others,
    )


def make_explore(section: PbtConfig, *, launch_directory: str = "") -> Explore:
    """Make the exploration rule; arguments and errors are those of `make_exploit`."""
    if ":" in section.explore:
        return cast("Explore", _users_own(section, section.explore, launch_directory))
    perturb = Perturb(
        factors=section.perturb_factors,
        resample_probability=section.resample_probability,
        mutation_probability=section.mutation_probability,
        reset_probability=section.reset_probability,
    )
    match section.explore:
        case "perturb":
            return perturb
        case "resample":
            return Resample()
        case "none":
            return NoExplore()
        case "pb2":
            return Pb2(fallback=perturb)
    for kind in get_args(SamplerKind):
        if section.explore == kind:
            return ModelBased(sampler=kind, fallback=perturb)
    raise ConfigError(_no_such("explore", EXPLORE_KINDS, section.explore))


def _make_rule(section: PbtConfig) -> Rule:
    gate = Gate(min_rating_gap=section.min_rating_gap, confidence=section.confidence)
    match section.exploit:
        case "truncation":
            return Truncation(fraction=section.fraction, gate=gate)
        case "binary_tournament":
            return BinaryTournament(gate=gate)
        case "welch":
            return SignificantlyBetter(significance=section.significance)
        case "predicted_win":
            return PredictedWin(
                win_rate_threshold=section.win_rate_threshold, confidence=section.confidence
            )
    raise ConfigError(_no_such("exploit", EXPLOIT_KINDS, section.exploit))


def _users_own(section: PbtConfig, reference: str, launch_directory: str) -> object:
    make = resolve(reference, launch_directory=launch_directory)
    if not callable(make):
        raise ConfigError(f"pbt: {reference} is no class")
    with users_code(f"pbt: {reference}, when it was made,"):
        made: object = make(section)
    return made


def _no_such(key: str, kinds: tuple[str, ...], kind: str) -> str:
    return f"pbt.{key} must be one of {', '.join(kinds)}, or package.module:Class, got {kind!r}"
