"""``run.yaml``: the resolved configuration of a run, the environment's facts, the versions."""

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
"""Changed file, until it takes the old one's place."""
_SPEC = TypeAdapter(EnvironmentSpec)
_PACE = TypeAdapter(Pace | None)


class _Document(Model):
    """The file's keys."""

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
    """Facts about a run that hold from its first moment on.

    Attributes:
        run: The run's id, a UUID.
        name: The preset or file that it was launched with.
        created: UTC, ISO 8601.
        launched_in: Directory that it was launched in, on the machine of the launch.
        launch_directory: First on ``sys.path`` where user code is looked for: no part of the file.
            What is read may import nothing (`NO_CODE`), until the user's word replaces it
            (`populations.config.trust`).
        init_from: The player that the policies started from.
        versions: Versions of the packages that matter, when the run was made.
        code: Digests of the code outside of installed packages that the run is made of, by module
            or package, when the run was made.
        config: Resolved.
        spec: The environment's facts.
        environment_measured: Pace at which sizes were chosen, and why; None: they were given.
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
        """Write the file; a reader finds the old one or the new one, whole.

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
        """Read the file.

        Raises:
            ConfigError: If there is none, or it is no run.yaml of this release.
        """
        try:
            data = read_regular(path, limit_bytes=MAX_BYTES)
        # A missing file is the user's mistake in the path, any other error the disk's.
        except FileNotFoundError as error:
            raise ConfigError(
                f"{path.parent} is no run directory: it has no {path.name}"
            ) from error
        except OSError as error:
            raise StorageError(f"cannot read {path}: {error.strerror}") from error
        content = read_document(data, name=str(path))
        version = content.get("format_version") if isinstance(content, dict) else None
        # The version is read before validation, which would report a newer file's unknown keys as
        # the user's mistakes.
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
        # Only the TypeAdapters raise it; `validate_document` has words of its own.
        except ValidationError as error:
            raise ConfigError(f"{path}: {'; '.join(broken_rules(error, of='spec'))}") from error
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"{path}: {error}") from error


def require_recorded(run_dir: Path, recorded: str) -> None:
    """Refuse a run.yaml that does not say what the journal has recorded of it.

    Args:
        run_dir: Run directory.
        recorded: Digest in the journal.

    Raises:
        ConfigError: If it is no YAML.
        StorageError: If it says something else.
    """
    # A resume that changes it commits the digest before the new file takes the old one's place.
    paths = [path for path in (run_dir / RUN_FILE, run_dir / NEXT) if path.exists()]
    if all(content_digest(path) != recorded for path in paths):
        raise StorageError(
            f"{run_dir / RUN_FILE} says something else than the journal has recorded of it: it is "
            "damaged, or was edited (`arena launch --resume KEY=VALUE` changes what may change)"
        )


def content_digest(path: Path) -> Digest:
    """Return the digest of all that a run.yaml says but the launch directory, which may move.

    Raises:
        ConfigError: If it is no YAML, or no file at all.
        StorageError: If it cannot be read.
    """
    try:
        with open_regular(path) as file:
            # One byte more than there may be, of which the reader says so.
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
    """Make the file of a new run, with a new id.

    Args:
        config: Resolved or not.
        spec: The environment's facts.
        name: The preset or file that the run was launched with.
        launch_directory: Directory that is searched first for user code.
        init_from: The player that the policies start from.
        pace: Figures of random play of the environment; None: it was not played.
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
    # Sizes have a default without play, a margin has none.
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
        # The environment's own versions come with its facts, from the process that inspected it.
        versions=installed(RECORDED_PACKAGES) | dict(spec.versions),
        config=resolved,
        spec=spec,
        environment_measured=pace,
        code=code,
    )
    # Needs the seats of the resolved run; the root has no part in a message's size.
    check_messages(resolved, learner_setup(run_file, root=Path()))
    return run_file


def learner_setup(run_file: RunFile, *, root: Path) -> LearnerSetup:
    """Return what a learner needs to know of a run whose store is at ``root``."""
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
        # The path is absolute, as environments and other code of users may change the working
        # directory.
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
        # The launcher tells each of its learners which one of several devices is its own.
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
    """Return the configuration with which a run goes on.

    Args:
        old: The run's file.
        config: Configuration as the user gave it, with the overrides in it; None: none given.
        overrides: ``KEY=VALUE``, applied to the run's own configuration where ``config`` is None.
        notify: Takes a sentence for each name that was read as another one.

    Returns:
        The resolved configuration, and what it changes.

    Raises:
        ResumeRefused: If other keys than those that may change differ; names them, their values,
            and the keys that may.
        ConfigError: If an override is wrong in itself.
    """
    # Configurations are compared as plain data, in which one value has one form.
    before = old.config.model_dump(mode="json")
    is_own = config is None
    if config is None:
        config = validate_config(overridden(before, overrides, notify=notify))
    # Sizes are kept before resolving, which would choose them anew where the file says auto.
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
    # A configuration that was given whole says of each population what is its own.
    if is_own and (followed := _followed(before, config, notify=notify)) is not config:
        new, changes = _changed(old, before, followed)
    if changes:
        check_messages(new, learner_setup(with_config(old, new), root=Path()))
    return new, changes


def imported_players(config: RunConfig) -> dict[int, str]:
    """Return the players of other runs that a configuration names, by their places."""
    return {i: name for i, name in enumerate(config.external_players) if not is_bot(name)}


def _changed(
    old: RunFile, before: Mapping[str, Json], config: RunConfig
) -> tuple[RunConfig, tuple[Change, ...]]:
    new = resolve_config(config, old.spec, launch_directory=old.launch_directory)
    compared = compare(before, new.model_dump(mode="json"))
    return new, tuple(change for change in compared if change.before != change.after)


def _followed(before: Mapping[str, Json], config: RunConfig, *, notify: Notify) -> RunConfig:
    """Let populations follow a change of the section ``pbt``, of which each has a whole copy.

    One whose value was another before has chosen it, and keeps it.
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
    """Return the same run, going on with another configuration.

    Args:
        run_file: The run's file.
        config: Configuration from now on.
        code: Digests of users' code as it is now; what the run has already stays as it was.
    """
    return replace(run_file, config=config, code={**code, **run_file.code})
