"""The user's permission to import code that a file names.

A run.yaml or an export's card may come from anywhere, and may name code, which is imported only if
the user permits it. For a run.yaml, any of these is a permission, in this order:

1. The user launched or resumed this run on this machine. `record_launch` records that in a
directory of the user (`state_directory`), as nothing inside a run's directory can prove it.
2. The option ``--trust``.
3. A CONFIG on the same command line that names the same code with the same arguments.

The record covers the run, the code that it names and its arguments: after an edit of run.yaml a new
permission is needed, after a move of the run's directory none. The record also has the directory of
the code, so code from another directory cannot replace it. For a card, only ``--trust`` counts.

Tests: `tests/populations/config/test_trust.py`, `tests/tools/test_foreign_code.py`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from arena.environment_spec import EnvironmentSpec
from arena.errors import NotTrusted
from arena.files import replacing
from arena.resolve import NO_CODE, OWN, code_directory, given_code
from arena.types import BOT_PREFIX, Digest, canonical_digest
from populations.config.overrides import parse_override
from populations.config.run_config import RunConfig
from populations.config.run_file import RUN_FILE, RunFile

DATA = frozenset(
    {
        # Arguments of code that another key names.
        *("kwargs", "options", "algorithm_settings", "custom"),
        # Names of agents, sides and hyperparameters, which are never imported.
        *("agents", "possible_agents", "sides", "side", "info"),
        *("hyperparameters", "search_space", "reward_weights", "schedule"),
    }
)
"""Keys below which texts are data that is never imported, even if it looks like code.

Names of populations are chosen by the user, so such a name is not treated as one of these keys.
"""

POPULATIONS = "populations"

MAX_PATH_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Code that a document names.

    Attributes:
        key: Dotted path of the key.
        code: ``package.module:Name``, a bot, a command, or the address of a Ray cluster.
        arguments: Arguments of the code in the document; None if it has none.
    """

    key: str
    code: str
    arguments: object = None


def named_by(run_file: RunFile) -> tuple[Named, ...]:
    """Return the code that a run.yaml names, in the file's order; empty if it names none."""
    return tuple(_in_config(run_file.config, run_file.spec))


def names_in(document: object, *, key: str = "") -> Iterator[Named]:
    """Yield the code that plain data names: each text that could be imported, under any key.

    Args:
        document: Content of a file.
        key: Dotted path that leads to it.
    """
    match document:
        case Mapping():
            for name, value in document.items():
                path = f"{key}.{name}" if key else str(name)
                # A bot can be a key, as in a mapping of bots to shares.
                yield from names_in(str(name), key=key)
                if name not in DATA or key == POPULATIONS:
                    yield from names_in(value, key=path)
        case str() if is_code(document):
            yield Named(key=key, code=document)
        case list() | tuple():
            for value in document:
                yield from names_in(value, key=key)


def is_code(text: str) -> bool:
    """Return whether a text could be imported: ``package.module:Name``, or a bot of this form."""
    reference = text.removeprefix(BOT_PREFIX).partition("(")[0].strip()
    module, colon, name = reference.partition(":")
    parts = [*module.split("."), *name.split(".")]
    is_name = bool(colon) and all(part.isidentifier() for part in parts)
    # The names of OpenSpiel's games and of Arena's own code are closed lists, so they are safe.
    return is_name and module != "openspiel" and reference not in OWN


def _in_config(config: RunConfig, spec: EnvironmentSpec) -> Iterator[Named]:
    """Yield the code of a configuration and of an environment's facts, with its arguments."""
    arguments: dict[str, object] = {
        "environment.id": [config.kwargs_of_matches, list(config.lessons)],
        "spec.id": [dict(spec.kwargs), [dict(lesson) for lesson in spec.lessons]],
        "matchmaking.kind": config.matchmaking.options,
    }
    document = config.model_dump(mode="json", exclude={"hooks"})
    for named in (*names_in(document), *names_in(spec.id, key="spec.id")):
        yield replace(named, arguments=arguments.get(named.key))
    # The whole command counts as code, with all arguments, even if these are no code.
    for kind, hooks in config.hooks.by_kind.items():
        for hook in hooks:
            said = hook if isinstance(hook, str) else " ".join(hook)
            yield Named(key=f"hooks.{kind}", code=said, arguments=list(hook))
    # A Ray cluster can send code to this process, so its address counts as code.
    if config.launcher == "ray" and config.ray.address not in (None, "auto", "local"):
        yield Named(key="ray.address", code=str(config.ray.address))


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """Permission of the user to import the code that a file names, or its refusal.

    Attributes:
        launch_directory: Directory of the code that may be imported; `NO_CODE` if none may be.
        refusal: Message about the code that must not be imported; empty with a permission.
    """

    launch_directory: str = NO_CODE
    refusal: str = ""

    def check(self, *texts: object) -> None:
        """Refuse code among texts of the file if the user has not permitted it.

        Raises:
            NotTrusted: Names all code of the file, and the option to add.
        """
        if self.launch_directory == NO_CODE and any(
            isinstance(text, str) and is_code(text) for text in texts
        ):
            raise NotTrusted(self.refusal)


def word_for_run(
    run_file: RunFile, run_dir: Path, *, trust: bool, config: RunConfig | None = None
) -> Word:
    """Return the user's permission for the code that a run.yaml names.

    Args:
        run_file: Content of the file as read.
        run_dir: Directory of the run.
        trust: Whether the user gave ``--trust``.
        config: CONFIG of the command line, which permits the code that it names; None if none.
    """
    recorded = recorded_launch(run_file)
    named = named_by(run_file)
    if recorded is not None:
        # If the recorded directory was removed, search the user's current directory, and never the
        # directory that the file names.
        is_gone = bool(named) and not os.path.isdir(recorded)
        where = code_directory() if is_gone or given_code() else recorded
        return Word(launch_directory=where)
    if trust:
        return Word(launch_directory=_find_code(named, run_file.launched_in, beside=run_dir))
    # Code that CONFIG names is found where `launch CONFIG` would look for it.
    if config is not None and _covers(config, named, spec=run_file.spec):
        return Word(launch_directory=code_directory())
    return Word(refusal=_refusal(named, run_dir / RUN_FILE))


def word_for_card(document: Mapping[str, object], path: Path, *, trust: bool) -> Word:
    """Return the user's permission for the code that an export's card names.

    Args:
        document: The card's environment ``id`` and ``outcome``, and its network's ``encoder``.
        path: Path of the card.
        trust: Whether the user gave ``--trust``.
    """
    named = tuple(names_in(document))
    if trust:
        return Word(launch_directory=_find_code(named, None, beside=path.parent))
    return Word(refusal=_refusal(named, path))


def trusted(
    run_file: RunFile, run_dir: Path, *, trust: bool, config: RunConfig | None = None
) -> RunFile:
    """Return a run.yaml with the directory of the code that it may import.

    The arguments are those of `word_for_run`.

    Raises:
        NotTrusted: If it names code that the user has not permitted.
    """
    word = word_for_run(run_file, run_dir, trust=trust, config=config)
    if word.launch_directory == NO_CODE and named_by(run_file):
        raise NotTrusted(word.refusal)
    return replace(run_file, launch_directory=word.launch_directory)


def with_own(run_file: RunFile, overrides: Sequence[str]) -> RunFile:
    """Return a trusted run.yaml with a directory for code that overrides name.

    An override on the command line is a permission, too.

    Args:
        run_file: Result of `trusted`.
        overrides: ``KEY=VALUE`` of the command line.
    """
    given = [parse_override(override) for override in overrides]
    names_some = any(
        path[0] == "hooks" or any(names_in(value, key=".".join(path))) for path, value in given
    )
    # A run that names no code has no directory of code yet, so the overrides need one.
    if run_file.launch_directory == NO_CODE and names_some:
        return replace(run_file, launch_directory=code_directory())
    return run_file


def _covers(config: RunConfig, named: Collection[Named], *, spec: EnvironmentSpec) -> bool:
    """Return whether a configuration names every code in ``named``, with the same arguments."""
    environment, kwargs = config.environment, config.kwargs_of_matches
    # Make the specification that an inspection of CONFIG's environment would return.
    own = replace(spec, id=environment.id, kwargs=kwargs, lessons=config.lessons)
    # Compare without keys, because a resolved run.yaml has sections that CONFIG leaves out.
    given = [(one.code, one.arguments) for one in _in_config(config, own)]
    return all((one.code, one.arguments) in given for one in named)


def _refusal(named: Sequence[Named], path: Path) -> str:
    """Return the message about a file that names code without the user's permission."""
    # Code at several keys is named once, with all of its keys.
    keys = {one.code: [other.key for other in named if other.code == one.code] for one in named}
    names = ", ".join(f"{code} ({', '.join(keys[code])})" for code in keys)
    return (
        f"{path} names code: {names}. It would run with all rights of yours, and neither did you "
        "launch this here nor say that it may: look at it, then add --trust (from Python "
        "trust=True)"
    )


def _find_code(named: Collection[Named], first: str | None, *, beside: Path) -> str:
    """Return the directory of code that the user has permitted.

    It is that of ``--code``. Without this option, it is the first of these that has one of the
    modules: the launch directory, the current directory, and two parents of the run's directory, as
    a run is often copied to another machine together with its code.

    Args:
        named: Code to find.
        first: Launch directory, perhaps of another machine; None if unknown.
        beside: Directory of the run or export.
    """
    if given := given_code():
        return given
    tops = {one.code.removeprefix(BOT_PREFIX).partition(":")[0].split(".")[0] for one in named}
    parents = beside.resolve().parents[:2]
    places = [*([first] if first else []), str(Path.cwd()), *map(str, parents)]
    for place in places:
        if any(_has(Path(place), top) for top in tops):
            return str(Path(place).resolve())
    return next(place for place in places if Path(place).is_dir())


def _has(directory: Path, top: str) -> bool:
    return (directory / f"{top}.py").is_file() or (directory / top).is_dir()


def state_directory() -> Path | None:
    """Return the directory of Arena's state for this user; None if the user has no home."""
    home = os.environ.get("XDG_STATE_HOME", "")
    if home.startswith("/"):
        return Path(home) / "arena"
    try:
        return Path.home() / ".local" / "state" / "arena"
    except RuntimeError:
        return None


def record_launch(run_file: RunFile) -> str | None:
    """Record that the user has launched a run on this machine, and the directory of its code.

    Returns:
        The reason why it cannot be recorded; None if it was, or if the run names no code and
        needs no record.
    """
    if not named_by(run_file):
        return None
    home = state_directory()
    if home is None:
        return "there is no home directory"
    path = home / "launched" / _digest(run_file)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replacing(path, mode=0o600) as file:
            file.write(os.fsencode(run_file.launch_directory))
    except OSError as error:
        return f"{path.parent}: {error.strerror}"
    return None


def recorded_launch(run_file: RunFile) -> str | None:
    """Return the code directory of a run that this user has launched here; None if not launched."""
    home = state_directory()
    if home is None:
        return None
    path = home / "launched" / _digest(run_file)
    with contextlib.suppress(OSError):
        _check_own(os.stat(path.parent))
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            _check_own(os.fstat(descriptor))
            return os.fsdecode(file.read(MAX_PATH_BYTES)) or None
    return None


def _check_own(found: os.stat_result) -> None:
    """Refuse a file or directory that another user could have written.

    Raises:
        PermissionError: If this user is not the owner, or others may write to it.
    """
    others = stat.S_IWGRP | stat.S_IWOTH
    is_kind = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    if found.st_uid != os.geteuid() or found.st_mode & others or not is_kind:
        raise PermissionError


def _digest(run_file: RunFile) -> Digest:
    """Return the digest of what a launch permits: the run, its code and all arguments."""
    named = [[one.key, one.code, one.arguments] for one in named_by(run_file)]
    settings = {
        name: population.algorithm_settings
        for name, population in run_file.config.populations.items()
        if is_code(population.algorithm)
    }
    return canonical_digest([run_file.run, named, settings])
