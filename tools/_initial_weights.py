"""``arena launch --init-from``: another run's weights as the start of this one's policies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._players import PolicyWeights, resolve_player

if TYPE_CHECKING:
    from populations.run_file import RunFile


def find_initial_weights(run_file: RunFile, player: str) -> dict[str, dict[str, bytes]]:
    """Files with the weights that policies start from, by population.

    A player with weights for some of the populations is enough: the others start afresh.

    Raises:
        ConfigError: If the player has no weights that fit: other spaces, agents or architecture.
    """
    from arena.errors import ConfigError

    found = resolve_player(player)
    if found.game is not None and found.game.spec.agent_specs != run_file.spec.agent_specs:
        raise ConfigError(f"--init-from {player}: its observation and action spaces are others")
    files = {}
    for name, population in run_file.config.populations.items():
        policy = found.policies.get(name)
        if policy is None:
            continue
        for what, theirs, ours in (
            ("agents", policy.agents, population.agents),
            ("network", policy.network, population.network),
        ):
            if theirs != ours:
                raise ConfigError(
                    f"--init-from {player}: {what} of population {name} must be equal, "
                    f"it has {theirs}, this run {ours}"
                )
        files[name] = _files(run_file, policy)
    if not files:
        raise ConfigError(
            f"--init-from {player}: it has no weights for {', '.join(run_file.config.populations)}"
        )
    return files


def _files(run_file: RunFile, policy: PolicyWeights) -> dict[str, bytes]:
    from arena import __version__
    from arena.checkpoints.files import encode_manifest, file_records
    from arena.checkpoints.manifest import MANIFEST, WEIGHTS, Manifest
    from arena.checkpoints.tensors import serialize

    weights = {WEIGHTS: serialize(policy.tensors)}
    manifest = Manifest(
        policy=policy.player,
        generation=0,
        agent_steps=0,
        learner_updates=0,
        hyperparameters={},
        parent=None,
        donor=None,
        environment_digest=run_file.spec.digest,
        population_agents=policy.agents,
        network=policy.network,
        files=file_records(weights),
        arena_version=__version__,
        created=run_file.created,
    )
    return {**weights, MANIFEST: encode_manifest(manifest)}
