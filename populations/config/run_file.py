"""``run.yaml``: resolved configuration of a run, facts about the environment, and versions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import cast

from pydantic import TypeAdapter, ValidationError

from arena.config import LearnerSetup, Model, PopulationSetup
from arena.environment_spec import EnvironmentSpec
from arena.envs.probe.pace import Pace
from arena.errors import ConfigError
from arena.files import NotRegular, open_regular, read_regular
from arena.learners.versions import RECORDED_PACKAGES, installed
from arena.matches.seating import make_seats
from arena.matches.teammates import seats_per_agent
from arena.processes.machine_memory import machine_bytes
from arena.resolve import NO_CODE
from arena.rules import broken_rules, shown
from arena.types import Digest, canonical_digest, is_bot
from populations.config.message_sizes import check_messages
from populations.config.overrides import Notify, apply_values, overridden
from populations.config.resolve import resolve_config
from populations.config.resume import MAY_CHANGE, Change, compare, why_not
from populations.config.run_config import RunConfig, ignore_notice, validate_config
from populations.config.sizing import check_rollout_memory, explain, needs_margin, with_sizes_of
from populations.config.validation import validate_document
from populations.errors import ResumeRefused, StorageError
from populations.records.rows import Json
from populations.yaml_documents import MAX_BYTES, read_document, write_document

FORMAT_VERSION = 1
RUN_FILE = "run.yaml"
NEXT = f"{RUN_FILE}.next"
"""Name of a changed file before it replaces the old one."""
_SPEC = TypeAdapter(EnvironmentSpec)
_PACE = TypeAdapter(Pace | None)


class _Document(Model):
    """Keys of the file."""

    format_version: int
    run: str
    name: str
    created: str
    launch_directory: str
    init_from: str | None
    versions: dict[str, str]
    config: dict[str, object]
    spec: dict[str, object]
    environment_measured: dict[str, object] | None
    code: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """Content of ``run.yaml``: facts about a run that are fixed at its launch.

    Attributes:
        run: Id of the run, a UUID.
        name: Preset or file with which the run was launched.
        created: Time of the launch in UTC, ISO 8601.
        launched_in: Directory in which the run was launched, on the machine of the launch.
        launch_directory: Directory that is searched first for user code; not in the file. It is
            `NO_CODE`, which forbids imports, until the user has permitted them
            (`populations.config.trust`).
        init_from: Player from which the policies started; None if they started at random.
        versions: Versions of recorded packages at the launch.
        code: Digests of user code outside of installed packages at the launch, by module or
            package.
        config: Resolved configuration.
        spec: Facts about the environment.
        environment_measured: Measurements by which sizes were chosen, and the reason; None if the
            user gave all sizes.
    """

    run: str
    name: str
    created: str
    launched_in: str
    launch_directory: str = field(default=NO_CODE, compare=False)
    init_from: str | None = None
    versions: Mapping[str, str]
    config: RunConfig
    spec: EnvironmentSpec
    environment_measured: Pace | None = None
    code: Mapping[str, str] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Write the file atomically: a reader finds the old content or the new one.

        Raises:
            StorageError: If the disk is full or read-only.
        """
        document = {
            "format_version": FORMAT_VERSION,
            "run": self.run,
            "name": self.name,
            "created": self.created,
            "launch_directory": self.launched_in,
            "init_from": self.init_from,
            "versions": dict(self.versions),
            "code": dict(self.code),
            "config": self.config.model_dump(mode="json"),
            "spec": _SPEC.dump_python(self.spec, mode="json"),
            "environment_measured": _PACE.dump_python(self.environment_measured, mode="json"),
        }
        try:
            write_document(document, path)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path) -> RunFile:
        """Read a run.yaml.

        Raises:
            ConfigError: If there is no file, or it is not a run.yaml of this release.
        """
        try:
            data = read_regular(path, limit_bytes=MAX_BYTES)
        # A missing file is a mistake of the user in the path; other errors come from the disk.
        except FileNotFoundError as error:
            raise ConfigError(
                f"{path.parent} is no run directory: it has no {path.name}"
            ) from error
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from error
        content = read_document(data, name=str(path))
        version = content.get("format_version") if isinstance(content, dict) else None
        # Check the version before validation, which would report unknown keys of a newer file as
        # mistakes of the user.
        if isinstance(version, int) and version > FORMAT_VERSION:
            raise ConfigError(
                f"{path}: format version {version}; this release reads {FORMAT_VERSION}: upgrade "
                "arena-league"
            )
        try:
            document = validate_document(_Document, content, hints={})
            if document.format_version != FORMAT_VERSION:
                raise ConfigError(
                    f"format_version must be {FORMAT_VERSION}, got {document.format_version}"
                )
            return cls(
                run=document.run,
                name=document.name,
                created=document.created,
                launched_in=document.launch_directory,
                init_from=document.init_from,
                versions=document.versions,
                config=validate_config(document.config),
                spec=_SPEC.validate_python(document.spec),
                environment_measured=_PACE.validate_python(document.environment_measured),
                code=document.code,
            )
        # Only the TypeAdapters raise this; `validate_document` raises a ConfigError.
        except ValidationError as error:
            raise ConfigError(f"{path}: {'; '.join(broken_rules(error, of='spec'))}") from error
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from error


def require_recorded(run_dir: Path, recorded: str) -> None:
    """Refuse a run.yaml whose content differs from the digest in the journal.

    Args:
        run_dir: Run directory.
        recorded: Digest in the journal.

    Raises:
        ConfigError: If the file is not YAML.
        StorageError: If its content differs.
    """
    # A resume that changes the file commits the new digest before the new file replaces the old
    # one, so after a kill the content may be in the new file.
    paths = [path for path in (run_dir / RUN_FILE, run_dir / NEXT) if path.exists()]
    if all(content_digest(path) != recorded for path in paths):
        raise StorageError(
            f"{run_dir / RUN_FILE} says something else than the journal has recorded of it: it is "
            "damaged, or was edited (`arena launch --resume KEY=VALUE` changes what may change)"
        )


def content_digest(path: Path) -> Digest:
    """Return the digest of a run.yaml's content without the launch directory, which may change.

    Raises:
        ConfigError: If the file is not YAML, or not a regular file.
        StorageError: If it cannot be read.
    """
    try:
        with open_regular(path) as file:
            # Read one byte more than is allowed, so that `read_document` refuses a file that is too
            # long.
            content = read_document(file.read(MAX_BYTES + 1), name=str(path))
    except NotRegular as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    if isinstance(content, dict):
        content = {key: value for key, value in content.items() if key != "launch_directory"}
    return canonical_digest(content)


def new_run_file(
    config: RunConfig,
    spec: EnvironmentSpec,
    *,
    name: str,
    launch_directory: str,
    init_from: str | None = None,
    pace: Pace | None = None,
    code: Mapping[str, str] = MappingProxyType({}),
) -> RunFile:
    """Return the run.yaml of a new run, with a new id.

    Args:
        config: Configuration, resolved or not.
        spec: Facts about the environment.
        name: Preset or file with which the run was launched.
        launch_directory: Directory that is searched first for user code.
        init_from: Player from which the policies start; None if they start at random.
        pace: Measurements of random play; None if the environment was not played.
        code: Digests of users' code.

    Raises:
        ConfigError: If configuration and environment do not fit.
    """
    if spec.lessons != config.lessons:
        raise ConfigError(
            "environment.curriculum and evaluation.kwargs must be what was inspected, "
            f"{len(spec.lessons)} lessons, got {len(config.lessons)}"
        )
    resolved = resolve_config(config, spec, launch_directory=launch_directory, pace=pace)
    check_rollout_memory(resolved, spec, machine_bytes=machine_bytes())
    # Without random play, sizes have defaults but a margin has none.
    if needs_margin(resolved):
        raise ConfigError(
            "environment.outcome.margin must be a number where nobody has played the environment, "
            "got 'auto'"
        )
    if pace is not None:
        pace = replace(pace, reason=explain(resolved, spec, pace=pace))
    run_file = RunFile(
        run=str(uuid.uuid4()),
        name=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        launched_in=launch_directory,
        launch_directory=launch_directory,
        init_from=init_from,
        # Versions of the environment's packages come from the process that inspected it.
        versions=installed(RECORDED_PACKAGES) | dict(spec.versions),
        config=resolved,
        spec=spec,
        environment_measured=pace,
        code=code,
    )
    # The check needs the seats of the resolved run; the root does not affect the sizes of messages.
    check_messages(resolved, learner_setup(run_file, root=Path()))
    return run_file


def learner_setup(run_file: RunFile, *, root: Path) -> LearnerSetup:
    """Return the setup that learners of a run get, with checkpoints below ``root``."""
    config = run_file.config
    populations = {
        name: PopulationSetup(
            agents=population.agents or (),
            network=population.network,
            algorithm=population.algorithm,
            algorithm_settings=population.algorithm_settings,
            normalizer_warm_up=population.normalizer_warm_up,
        )
        for name, population in config.populations.items()
    }
    warm_ups = (population.normalizer_warm_up for population in config.populations.values())
    seats = make_seats(
        agents=run_file.spec.agents, sides=config.sides, populations=config.agents_of
    )
    return LearnerSetup(
        run=run_file.run,
        # The path must be absolute, because users' code may change the working directory.
        root=str(root.absolute()),
        launch_directory=run_file.launch_directory,
        environment=config.environment,
        spec=run_file.spec,
        sides=config.sides,
        seats=seats,
        populations=populations,
        bots=tuple(
            dict.fromkeys(
                (
                    *filter(is_bot, config.external_players),
                    *(warm_up.player for warm_up in warm_ups if warm_up is not None),
                )
            )
        ),
        agent_seats=seats_per_agent(seats) if config.matchmaking.teammates != "same" else (),
        greedy_matches=config.evaluation.greedy,
        match_openings=config.evaluation.random_openings,
        success_return=config.stop.success_return,
        # This is a default: if there are several devices, the launcher assigns one to each learner.
        device=config.devices[0],
        precision=config.precision,
        cores=1 if config.learner_cores == "auto" else config.learner_cores,
    )


def check_resume(
    old: RunFile,
    *,
    config: RunConfig | None,
    overrides: Sequence[str] = (),
    notify: Notify = ignore_notice,
) -> tuple[RunConfig, tuple[Change, ...]]:
    """Return the configuration with which a resumed run continues.

    Args:
        old: Content of the run's run.yaml.
        config: Configuration that the user has given, with overrides applied; None if none.
        overrides: ``KEY=VALUE``, applied to the run's own configuration if ``config`` is None.
        notify: Function that is called with a sentence about each alias.

    Returns:
        The resolved configuration, and its changes.

    Raises:
        ResumeRefused: If keys differ that must not change; the message names them, their values,
            and the keys that may change.
        ConfigError: If an override is invalid in itself.
    """
    # Compare configurations as plain data, in which equal values have equal forms.
    before = old.config.model_dump(mode="json")
    is_own = config is None
    if config is None:
        config = validate_config(overridden(before, overrides, notify=notify))
    # Copy the sizes before resolving, which would otherwise choose new ones for ``auto``.
    config = with_sizes_of(config, old.config)
    new, changes = _changed(old, before, config)
    moves_players = imported_players(old.config) != imported_players(new)
    refused = [
        f"{change.key} is {shown(change.before)} in this run and cannot become "
        f"{shown(change.after)} ({reason})"
        for change in changes
        if (reason := why_not(change.key, moves_players=moves_players)) is not None
    ]
    if refused:
        raise ResumeRefused(
            f"{'; '.join(refused)}: only {', '.join(MAY_CHANGE)} may change at a resume; a new run "
            "takes anything, and --init-from its weights from this one"
        )
    # A complete configuration from the user already has the settings of each population.
    if is_own and (followed := _followed(before, config, notify=notify)) is not config:
        new, changes = _changed(old, before, followed)
    if changes:
        check_messages(new, learner_setup(with_config(old, new), root=Path()))
    return new, changes


def imported_players(config: RunConfig) -> dict[int, str]:
    """Return the players of other runs in a configuration, by position in `external_players`."""
    return {i: name for i, name in enumerate(config.external_players) if not is_bot(name)}


def _changed(
    old: RunFile, before: Mapping[str, Json], config: RunConfig
) -> tuple[RunConfig, tuple[Change, ...]]:
    new = resolve_config(config, old.spec, launch_directory=old.launch_directory)
    compared = compare(before, new.model_dump(mode="json"))
    return new, tuple(change for change in compared if change.before != change.after)


def _followed(before: Mapping[str, Json], config: RunConfig, *, notify: Notify) -> RunConfig:
    """Apply changes of the section ``pbt`` to the populations, which each have a complete copy.

    A population whose value differed from the section before has its own value and keeps it.
    """
    after = config.model_dump(mode="json")
    values: list[tuple[tuple[str, ...], object]] = []
    for change in compare(before["pbt"], after["pbt"]):
        for name in config.learning if change.before != change.after else ():
            path = ("populations", name, "pbt", *change.key.split("."))
            own = _at(before, path)
            if own == change.before and own == _at(after, path):
                values.append((path, change.after))
            elif own != change.before:
                notify(f"{'.'.join(path)} is its own, and stays {shown(own)}")
    return validate_config(apply_values(after, values)) if values else config


def _at(document: Json, path: Sequence[str]) -> Json:
    for part in path:
        document = cast("Mapping[str, Json]", document)[part]
    return document


def with_config(
    run_file: RunFile, config: RunConfig, *, code: Mapping[str, str] = MappingProxyType({})
) -> RunFile:
    """Return the run.yaml of the same run with a new configuration.

    Args:
        run_file: Content of the run's run.yaml.
        config: New configuration.
        code: Present digests of users' code; digests that the run has recorded are not replaced.
    """
    return replace(run_file, config=config, code={**code, **run_file.code})
