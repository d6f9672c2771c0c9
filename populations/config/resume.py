"""Changes at a resume: keys that may change, and differences of packages, code and environment.

Values are shown without parts that look like secrets, as other people may read messages and logs.

Tests: `tests/populations/config/resume/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import cast

from pydantic import TypeAdapter

from arena.bots.ids import parse_bot
from arena.environment_spec import EnvironmentSpec
from arena.learners.versions import Differences, differences, installed
from arena.rules import shown
from arena.types import is_bot
from populations.config.run_config import RunConfig
from populations.pbt.settings import PbtConfig
from populations.records.rows import Json

_SPEC = TypeAdapter(EnvironmentSpec)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Key with its values in two configurations, as plain data."""

    key: str
    before: Json
    after: Json


def other_versions(recorded: Mapping[str, str]) -> Differences:
    """Return packages whose installed version differs from the one that the run recorded."""
    return differences(recorded, installed(recorded))


def other_code(recorded: Mapping[str, str], code: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Return users' modules and packages whose source has changed, with both digests.

    Names in only one mapping are ignored: these follow from a changed configuration, or from
    modules that are not always imported.
    """
    return {
        name: (then, code[name])
        for name, then in recorded.items()
        if name in code and code[name] != then
    }


def other_facts(recorded: EnvironmentSpec, spec: EnvironmentSpec) -> list[str]:
    """Return a sentence for each fact in which an environment differs from the run's."""
    before, after = _facts(recorded), _facts(spec)
    # A run records the state's facts only if a critic reads the state.
    if recorded.state is None:
        del before["state"], after["state"]
    ours = cast("dict[str, Json]", before.pop("agent_specs"))
    theirs = cast("dict[str, Json]", after.pop("agent_specs"))
    # Added and removed agents are already reported by the list of agents.
    of_agents: dict[str, list[str]] = {}
    for agent in ours:
        for sentence in _differences(ours[agent], theirs.get(agent, ours[agent])):
            of_agents.setdefault(sentence, []).append(agent)
    return [
        *_differences(before, after),
        *(f"{sentence} (of {', '.join(agents)})" for sentence, agents in of_agents.items()),
    ]


def _facts(spec: EnvironmentSpec) -> dict[str, Json]:
    facts = _SPEC.dump_python(spec, mode="json")
    # Versions of packages are compared by `other_versions`.
    del facts["versions"]
    return cast("dict[str, Json]", facts)


def _differences(before: Json, after: Json) -> list[str]:
    return [
        f"{change.key} was {shown(change.before)} and is {shown(change.after)}"
        for change in compare(before, after)
        if change.before != change.after
    ]


def compare(before: Json, after: Json, *, path: tuple[str, ...] = ()) -> Iterator[Change]:
    """Yield each key of two configurations by its dotted path, including keys with equal values.

    Args:
        before: Configuration as plain data.
        after: Another configuration.
        path: Keys that lead to both.
    """
    if isinstance(before, Mapping) and isinstance(after, Mapping) and (before or after):
        # A key that one configuration lacks counts as null in it.
        for key in dict.fromkeys((*before, *after)):
            yield from compare(before.get(key), after.get(key), path=(*path, key))
    else:
        yield Change(key=".".join(path), before=before, after=after)


MAY_CHANGE = (
    "stop",
    "learners",
    "endpoint",
    "remote_learners",
    "store_endpoint",
    "device",
    "learner_cores",
    "learner_nice",
    "environment.num_env_workers",
    "launcher",
    "ray",
    "evaluation",
    "journal",
    "metrics",
    "alerts",
    "hooks",
    "pbt",
    "populations.*.pbt",
    "populations.*.search_space",
    "populations.*.hyperparameters",
    "ghosts",
    "checkpoints",
    "replays",
    "matchmaking",
)
"""Keys that a resume may change, including all keys below; * is a population's name."""

_KEPT = (
    "weights of players of other runs were copied when the run was made, by their places in "
    "matchmaking.bots and then evaluation.bots, so bots may only follow"
)
_MEMBERS = "the members of a population were made with the run"
_RESULTS = "all results and weights are about the environment that they were made in"
_OPEN = "assignments that are open were made with it"
_COPIED = "the weights of its players were copied when the run was made"
_BELOW = {
    "pbt.initial": _MEMBERS,
    "populations.*.pbt.initial": _MEMBERS,
    "pbt.immigration.from": _COPIED,
    "populations.*.pbt.immigration.from": _COPIED,
    "matchmaking.teammates": _OPEN,
    "evaluation.kwargs": _RESULTS,
    "evaluation.greedy": "results of sampled and of greedy play are never in one fit",
    "evaluation.random_openings": ("results with and without random openings are never in one fit"),
}
"""Reasons why some keys must not change, although a key above them may."""

_NOT_ANY_MORE = {
    "environment": _RESULTS,
    "populations.*.network": "weights fit one architecture",
    "populations.*.algorithm": "checkpoints belong to one algorithm",
    "populations.*.algorithm_settings": "policies of one run are compared under equal settings",
    "populations.*.schedule": "what is replayed was chosen at launch",
    "populations": _MEMBERS,
    "seed": "draws go on from it",
    "deterministic": "the run's order of work began with it",
    "payoffs": "results were folded with it",
    "roles": "policies were dealt their roles when the run was made",
    "assignment": _OPEN,
    "precision": "learners of one run compute alike",
}


def is_under(key: str, pattern: str) -> bool:
    """Return whether a dotted key matches a pattern, or is below a key that does."""
    # Compare a prefix of equal depth, as names of users in lower keys may have dots.
    depth = pattern.count(".") + 1
    return fnmatchcase(".".join(key.split(".")[:depth]), pattern)


def why_not(key: str, *, moves_players: bool = False) -> str | None:
    """Return the reason why a resume cannot change a key; None if it can.

    Args:
        key: Dotted path of the changed value.
        moves_players: Whether the list of players of other runs, or their order, would change.
    """
    if moves_players and any(is_under(key, f"{one}.bots") for one in ("matchmaking", "evaluation")):
        return _KEPT
    rules: tuple[Mapping[str, str | None], ...]
    rules = (_BELOW, dict.fromkeys(MAY_CHANGE), _NOT_ANY_MORE)
    found = (why for rule in rules for pattern, why in rule.items() if is_under(key, pattern))
    return next(found, "it was fixed when the run was made")


HIDDEN = "(not shown)"

_SECRET = re.compile(
    r"token|secret|passw|credential|authoriz|(api|access|private)_?key", re.IGNORECASE
)
_LOGIN = re.compile(r"(?<=://)[^/@\s]+(?=@)")


def without_secrets(value: Json, key: str = "") -> Json:
    """Return a setting without arguments of hooks' commands, values of secret names, and logins.

    Args:
        value: Plain data.
        key: Dotted key.
    """
    if isinstance(value, Mapping):
        return {
            name: without_secrets(one, f"{key}.{name}" if key else name)
            for name, one in value.items()
        }
    if isinstance(value, Sequence) and not isinstance(value, str):
        if key.startswith("hooks."):
            return [_program(hook) for hook in value]
        return [without_secrets(one, key) for one in value]
    if isinstance(value, str):
        return HIDDEN if _SECRET.search(key.rpartition(".")[2]) else _LOGIN.sub(HIDDEN, value)
    return value


def _program(hook: Json) -> Json:
    """Return a hook; of a command with arguments, only its program."""
    match hook:
        case [program, _, *_]:
            return [program, HIDDEN]
    return hook


def named_code(config: RunConfig) -> dict[str, str]:
    """Return a configuration's references to code by dotted key, without the environment's own."""
    # References to code have a colon; names of Arena's rules have none.
    return {key: name for key, name in _names(config) if ":" in name}


def _names(config: RunConfig) -> Iterator[tuple[str, str]]:
    """Yield each key that may refer to code, with its value."""
    if isinstance(config.environment.outcome, str):
        yield "environment.outcome", config.environment.outcome
    yield "matchmaking.kind", config.matchmaking.kind
    yield "ghosts.thinning", config.ghosts.thinning
    yield from _bots("evaluation.bots", *config.evaluation.bots)
    yield from _bots("matchmaking.bots", *config.matchmaking.bots)
    yield from _rules("pbt", config.pbt)
    for name, population in config.populations.items():
        key = f"populations.{name}"
        if population.player is not None:
            yield from _bots(f"{key}.player", population.player)
        yield f"{key}.algorithm", population.algorithm
        yield f"{key}.network.encoder", population.network.encoder
        if population.normalizer_warm_up is not None:
            yield from _bots(
                f"{key}.normalizer_warm_up.player", population.normalizer_warm_up.player
            )
        if population.pbt is not None:
            yield from _rules(f"{key}.pbt", population.pbt)
    for index, sink in enumerate(config.metrics.sinks):
        yield f"metrics.sinks[{index}]", sink
    for kind, hooks in config.hooks.by_kind.items():
        for index, hook in enumerate(hooks):
            # Hooks that are no texts are commands.
            if isinstance(hook, str):
                yield f"hooks.{kind}[{index}]", hook


def _bots(key: str, *players: str) -> Iterator[tuple[str, str]]:
    for index, player in enumerate(players):
        # Skip exports of other runs, which are weights, and `bot:random`, which is Arena's own.
        bot = parse_bot(player) if is_bot(player) else None
        if bot is not None:
            yield f"{key}[{index}]" if len(players) > 1 else key, bot.reference


def _rules(key: str, section: PbtConfig) -> Iterator[tuple[str, str]]:
    yield f"{key}.exploit", section.exploit
    yield f"{key}.explore", section.explore
