"""A configuration for an environment that was looked at: what `arena envs check --write` writes.

Every number follows from a measurement, which a comment names. Sides and outcomes cannot be
measured: they are guessed, and the comment says so.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from arena.envs.checks.roles import kinds_of
from arena.envs.findings import some
from populations.views.texts import plain

if TYPE_CHECKING:
    from arena.environment_spec import AgentSpec
    from arena.envs.checks.check import EnvironmentReport
    from arena.envs.findings import Finding
    from arena.envs.probe.pace import Pace
    from arena.learners.smoke_training import SmokeTraining

DECISIONS = 4096
"""Decisions of a rollout, about: enough for a gradient's mean, few enough for many updates."""

MIN_ROLLOUT, USUAL_ROLLOUT, MAX_ROLLOUT = 16, 32, 256
"""Calls of step; the usual ones are the default's."""

TWIN_ENVS = 1024
"""Environments of a batched game, whose steps cost hardly more with more games."""

MANY_SIDES = 8
MINUTES = 10
READY_S = 30.0
"""Seconds of one core between two decisions about a policy; twice that until the first one."""

# Nothing larger was measured (`benchmarks/2026-11-27-2-cores-shares.md`).
LEAST_POLICIES, MOST_POLICIES = 2, 8
MAX_NAME = 28
NO_STRINGS = ("true", "false", "null")
"""Letters of a population's name, before a number."""
Line = tuple[str, str]
"""A line of YAML and its comment."""


_Batch = tuple[str, int]
"""Number of environments, as written, and the rollout length for it."""


def preset_text(
    report: EnvironmentReport,
    *,
    environment: Mapping[str, object],
    trial: SmokeTraining | None = None,
    problems: Sequence[Finding] = (),
    num_cores: int | None = None,
) -> str:
    """Return a YAML document that `arena launch` takes.

    Args:
        report: Findings about an environment.
        environment: Keys of the section that the user has set; they stay.
        trial: Trial training; None: not tried, and budgets are defaults.
        problems: Problems of the environment, which the document begins with.
        num_cores: Number of cores that it is for; None: those this process may use.
    """
    from populations.config.resolve import usable_cores

    spec, batch = report.spec, _batch(report, environment.get("num_envs"))
    lines: list[Line] = [("environment:", "")]
    lines += _environment(report, environment, batch=batch)
    populations, why = suggested_populations(report)
    sides = environment.get("sides") or suggested_sides(report)[0]
    # Policies of equal index that cooperate train at the same time.
    learns_together = isinstance(sides, Mapping) and len(sides) == 1
    num_sharing = 1 if learns_together else len(populations)
    size = _size(usable_cores() if num_cores is None else num_cores, num_sharing=num_sharing)
    lines += [("", ""), ("populations:", why)]
    for name, agents in populations.items():
        facts = spec.agent_specs[agents[0]]
        lines += _population(name, agents, facts, report=report, batch=batch, size=size)
    lines += [("", ""), *_budgets(trial)]
    head = (
        f"# {spec.id}, as arena envs check found it.\n"
        "# What is not here has its default: arena presets default shows every key.\n"
    )
    if problems:
        texts = [
            # Only the first line is kept: the others are from the user's code, and an error's text
            # may have characters that UTF-8 cannot encode.
            *(f"problem: {plain(finding.problem.splitlines()[0])}" for finding in problems),
            *(f"left out: {left}" for left in left_out(report)),
        ]
        head += "# Not ready to train; to be checked again when this is mended:\n"
        head += "".join(f"#   {text}\n" for text in texts)
    return head + "".join(_written(line, comment) for line, comment in lines)


def left_out(report: EnvironmentReport) -> Iterator[str]:
    """Yield what a configuration of an environment with problems does not say, and why."""
    if not report.measured.env_steps_per_s:
        yield (
            "what follows from random play (roles, sides, the outcome, lengths of episodes), which "
            "ended at a problem; defaults are in its place"
        )
    yield "budgets of ghosts and pbt, as nothing was trained; they have their defaults"


def _written(line: str, comment: str) -> str:
    if not comment:
        return f"{line}\n"
    return f"{line:<30}  # {comment}\n" if line else f"# {comment}\n"


def _environment(
    report: EnvironmentReport, given: Mapping[str, object], *, batch: _Batch
) -> Iterator[Line]:
    measured = report.measured
    yield f"  id: {_yaml(report.spec.id)}", ""
    for key, value in given.items():
        if key not in ("id", "num_envs", "sides") and value:
            # Keys that the user has set are not guesses, so they have no reason.
            yield f"  {key}: {_yaml(value)}", ""
    speed = (
        f"{measured.env_steps_per_s:,.0f} environment steps/s of one core"
        if measured.env_steps_per_s
        else "its speed was not measured"
    )
    if report.twin is not None:
        speed += "; its native twin, which trains in its place, is faster"
    yield f"  num_envs: {batch[0]}", speed
    # Sides that the user has set need no reason.
    sides, why = (given["sides"], "") if given.get("sides") else suggested_sides(report)
    if sides is not None:
        yield f"  sides: {_yaml(sides)}", why
    elif why:
        yield "  sides: null", why
    if "outcome" not in given and measured.return_low is not None:
        yield (
            "  outcome: return",
            f"random play returned {measured.return_low:.4g} to {measured.return_high:.4g}; if "
            "winning is something else, say it here",
        )


def suggested_populations(report: EnvironmentReport) -> tuple[dict[str, tuple[str, ...]], str]:
    """Guess which agents share policies, and why: those with equal spaces and roles."""
    from populations.config.resolution import group_agents

    groups = group_agents(report.spec)
    # Roles follow behaviour in random play: spaces may be equal where tasks are not.
    role_of = {agent: role for role in report.measured.roles for agent in role.agents}
    found: dict[str, tuple[str, ...]] = {}
    reasons = []
    for name, agents in groups.items():
        # Roles are in order of first agents, so that equal reports give equal texts.
        roles = list(dict.fromkeys(role_of[agent] for agent in agents if agent in role_of))
        if len(roles) < 2:
            found[name] = agents
            continue
        reasons += [role.why for role in roles if role.why]
        for role in roles:
            members = tuple(agent for agent in agents if role_of.get(agent) is role)
            # The name is neither that of another group nor one given before.
            found[_population_name(members, taken=({*groups} - {name}) | {*found})] = members
    if not reasons:
        return found, "agents with equal spaces share policies"
    return found, (
        f"a guess: roles differ where spaces are equal ({'; '.join(reasons)}); one population for "
        "all of equal spaces would share policies"
    )


def _size(num_cores: int, *, num_sharing: int) -> Line:
    """Choose how many policies a population has: as many as cores can train until they are compared
    first, in a share of the run.
    """
    from ..launch.sizing import SEARCH_SHARE

    # size num_sharing 2 READY_S / num_cores = SEARCH_SHARE seconds of the run
    fitting = SEARCH_SHARE * 60.0 * MINUTES * num_cores / (2.0 * READY_S * num_sharing)
    size = max(LEAST_POLICIES, min(MOST_POLICIES, int(fitting)))
    cores = "1 core trains" if num_cores == 1 else f"{num_cores} cores train"
    bound = f"; more than {size} were not measured" if fitting > size else ""
    return f"    size: {size}", (
        f"{cores} {fitting:.0f} policies until they are compared, in a fifth of {MINUTES} minutes"
        f"{bound}"
    )


def _population_name(agents: Sequence[str], *, taken: Collection[str]) -> str:
    """Return a name for agents of one role: theirs without numbers."""
    stem = re.sub(r"[^a-z0-9_]", "_", next(iter(kinds_of(agents))).lower())
    name = stem if re.match(r"[a-z]", stem) else f"role_{stem}"
    name = name[:MAX_NAME]
    # len(taken) + 1 candidates: one of them is free.
    numbered = (f"{name}_{number}" for number in range(2, len(taken) + 3))
    return next(n for n in (name, *numbered) if n not in taken)


def suggested_sides(report: EnvironmentReport) -> tuple[Mapping[str, list[str]] | None, str]:
    """Guess which agents win together, and why; None: each agent by itself."""
    agents, measured = report.spec.agents, report.measured
    if len(agents) == 1:
        return None, ""
    rewarded = measured.rewarded_share > 0.0
    # Equal rewards mean something only if some were paid: zeros are always equal.
    if rewarded and len(measured.same_rewards) == 1:
        return {"team": ["*"]}, "a guess: all agents always received the same reward"
    kinds = kinds_of(agents)
    # A single kind, or one kind for each agent, divides nothing.
    if 1 < len(kinds) < len(agents):
        together = [set(group) for group in measured.same_rewards]
        if rewarded and all(any(set(k) <= t for t in together) for k in kinds.values()):
            return _globbed(kinds, agents), "a guess: these always received the same rewards"
        if len(measured.roles) > 1:
            return _globbed(kinds, agents), "a guess: their roles differ; who wins together?"
        if len(agents) > MANY_SIDES:
            return _globbed(kinds, agents), "a guess, from their names; who wins together?"
    if len(agents) > MANY_SIDES:
        return None, (
            f"each of {len(agents)} agents by itself; for a team that wins together: "
            '{team: ["*"]}'
        )
    return None, "each agent by itself; who wins together is written {team: [agents]}"


def _globbed(groups: Mapping[str, Sequence[str]], agents: Sequence[str]) -> dict[str, list[str]]:
    return {name: _patterns(group, agents) for name, group in groups.items()}


def _patterns(group: Sequence[str], agents: Sequence[str]) -> list[str]:
    """Return a glob for a group if one matches exactly its agents; else all names."""
    # A single agent is written by name instead of "*".
    if len(group) == len(agents) > 1:
        return ["*"]
    (stem, *_) = kinds_of(group)
    glob = f"{stem}_*"
    # The pattern must not match agents of other groups.
    if len(group) > 1 and [a for a in agents if fnmatchcase(a, glob)] == list(group):
        return [glob]
    return list(group)


def _population(
    name: str,
    agents: Sequence[str],
    facts: AgentSpec,
    *,
    report: EnvironmentReport,
    batch: _Batch,
    size: Line,
) -> Iterator[Line]:
    yield f"  {name}:", ""
    yield f"    agents: {_yaml(_patterns(agents, report.spec.agents))}", ""
    yield size
    same = next((v for v in report.same_views if len({*v} & {*agents}) > 1), ())
    yield from _network(facts, same_view=same)
    yield "    hyperparameters:", ""
    decisions = _decisions_per_episode(report)
    # 1 / (1 - gamma) is the horizon in decisions: 100, 200 and 500.
    gamma = 0.99 if decisions is None or decisions < 100 else 0.995 if decisions < 400 else 0.998
    length = (
        ("no episode ended at random" if report.measured.env_steps_per_s else "a default")
        if decisions is None
        else f"{decisions:.0f} decisions of an agent in an episode, at random"
    )
    yield f"      gamma: {gamma}", length
    yield (
        f"      rollout_length: {batch[1]}",
        f"calls of step: with num_envs about {DECISIONS} decisions, as far as memory goes",
    )
    yield "      learning_rate: 3.0e-4", "PBT looks for better ones in search_space"
    yield "      entropy_coef: 0.01", ""


def _network(facts: AgentSpec, *, same_view: Sequence[str] = ()) -> Iterator[Line]:
    from arena.config import NetworkConfig
    from arena.networks.planes import convolved_parts
    from arena.spaces import ObservationLayout

    layout = ObservationLayout.from_json(facts.observation)
    convolved = convolved_parts(NetworkConfig(), layout)
    numbers = f"{layout.size} numbers"
    seen = (
        f"{numbers}; its pictures are convolved" if convolved else f"{numbers}; convolves nothing"
    )
    # Zeros and ones need no normalization.
    binary = all(
        leaf.kind != "Box" or ((leaf.low, leaf.high) == (0.0, 1.0) and leaf.dtype.kind in "iub")
        for leaf in layout.leaves
    )
    keys = ["encoder: auto", "hidden_sizes: [128, 128]"]
    if binary:
        keys.append("normalize_observations: false")
        seen += "; zeros and ones need no statistics"
    if same_view:
        keys.append("agent_id: true")
        seen += f"; {some(same_view)} see the same, so a policy is told which one it plays"
    yield f"    network: {{{', '.join(keys)}}}", seen


def _decisions_per_episode(report: EnvironmentReport) -> float | None:
    length = report.measured.mean_length
    if length is None:
        return None
    in_turns = report.spec.api == "aec"
    # A call of step is one agent's decision in AEC, else one decision of each agent.
    return length / len(report.spec.agents) if in_turns else length


def _batch(report: EnvironmentReport, given: object) -> _Batch:
    """Choose the sizes of rollouts.

    Args:
        report: Findings about the environment.
        given: ``num_envs`` as the user has set it; None: not.
    """
    from populations.config.sizing import ROLLOUT_BYTES, Load, choose_num_envs, step_bytes

    spec = report.spec
    at_once = 1 if spec.api == "aec" else len(spec.agents)
    row_bytes = step_bytes(spec, spec.agents)
    # The number is the user's, else the batched twin's, else "auto", which is resolved at launch.
    written = given or (TWIN_ENVS if report.twin is not None else "auto")
    # Without a measured speed the rollout length has no other basis.
    if not report.measured.env_steps_per_s:
        return str(written), USUAL_ROLLOUT
    if isinstance(written, int):
        num_envs = written
    else:
        load = Load(
            decisions=at_once,
            rollout_length=USUAL_ROLLOUT,
            rollout_bytes=USUAL_ROLLOUT * row_bytes,
            num_learners=1,
            agent_steps=None,
        )
        # Launch will choose about the same number on such a machine; here it only sets the rollout
        # length.
        num_envs = choose_num_envs(_pace(report), load)
    # T = decisions / (B * decisions per step)
    steps = max(MIN_ROLLOUT, min(MAX_ROLLOUT, DECISIONS // (num_envs * at_once)))
    # The length is rounded to a power of two, as batch sizes are.
    rollout_length = 2 ** round(math.log2(steps))
    # Memory is the harder bound, so the length may go below MIN_ROLLOUT.
    while rollout_length > 8 and num_envs * rollout_length * row_bytes > ROLLOUT_BYTES:
        rollout_length //= 2
    return str(written), rollout_length


def _pace(report: EnvironmentReport) -> Pace:
    """Return the pace measured here; memory's limit shows at launch."""
    from arena.envs.probe.pace import Pace

    measured = report.measured
    return Pace(
        episode_length=measured.mean_length or max(measured.calls, 1),
        is_lower_bound=measured.mean_length is None,
        # The speed must not be 0, which it is if time ran out before a step was measured.
        step_s=1.0 / max(measured.env_steps_per_s, 1e-3),
        env_bytes=0,
        is_batched=report.twin is not None,
        machine_bytes=sys.maxsize,
    )


def _budgets(trial: SmokeTraining | None) -> Iterator[Line]:
    speed = trial.agent_steps_per_s if trial is not None else 0.0
    if speed:
        yield "ghosts:", f"it trained on {speed:,.0f} agent steps/s on one core"
        yield f"  every_agent_steps: {_round(speed * 15)}", "a quarter of a minute of one core"
    yield "pbt:", ""
    yield "  share: halving", "compared, the worse half leaves, until as many train as learners do"
    yield "  initial: sampled", "drawn from search_space; same: close to the values above"
    if speed:
        ready = _round(speed * READY_S)
        yield f"  ready_agent_steps: {ready}", "half a minute between decisions about a policy"
        yield f"  warm_up_agent_steps: {2 * ready}", ""
    yield "", ""
    yield "evaluation: {share: 0.1}", "of learners' time; alone moves ratings"
    yield "", ""
    yield (
        f"stop: {{duration_s: {60 * MINUTES}, agent_steps_per_policy: null}}",
        f"{MINUTES} minutes, as a first look",
    )


def _round(number: float) -> int:
    """Round to one digit, 1000 at least."""
    if number < 1000:
        return 1000
    unit = 10 ** (len(str(int(number))) - 1)
    # One digit is kept, because the measurement is not more precise.
    return int(round(number / unit) * unit)


def _yaml(value: object) -> str:
    """Write a value on one line: JSON is YAML."""
    return json.dumps(value) if not isinstance(value, str) else _name(value)


def _name(value: str) -> str:
    # Ids and references need no quotes as YAML strings; `true` and `null` would not be strings.
    is_plain = re.fullmatch(r"[a-z][\w/.-]*(:[\w.]+)?", value) and value not in NO_STRINGS
    return value if is_plain else json.dumps(value)
