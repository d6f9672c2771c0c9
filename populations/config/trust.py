"""The user's word for code that a file names.

A run.yaml or an export's card may come from anywhere, and may name code: it is imported only where
the user has said so. His word for a run.yaml is, in this order,

1. that he launched or resumed this run on this machine, which `record_launch` notes in a directory
   of his own (`state_directory`): nothing inside a run's directory can prove it;
2. ``--trust``;
3. a CONFIG on the same command line that names the same code with the same arguments.

What was recorded is the run, the code that it names and its arguments: a run.yaml that was edited
needs the word anew, a run's directory that was moved does not. The record also says where the code
is, so that nobody else's directory takes its place. For a card only ``--trust`` is one.

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
        # Arguments of code that is named beside them.
        *("kwargs", "options", "algorithm_settings", "custom"),
        # Names of agents, sides and hyperparameters.
        *("agents", "possible_agents", "sides", "side", "info"),
        *("hyperparameters", "search_space", "reward_weights", "schedule"),
    }
)
"""Keys below which texts are data: they are never imported, whatever they look like.

Populations are named by the user, so theirs are not among them.
"""

POPULATIONS = "populations"

MAX_PATH_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """Code that a document names.

    Attributes:
        key: Dotted path of the key.
        code: ``package.module:Name``, a bot, or a command; an address of a Ray cluster, too.
        arguments: Arguments that the document has for it.
    """

    key: str
    code: str
    arguments: object = None


def named_by(run_file: RunFile) -> tuple[Named, ...]:
    """Return the code that a run.yaml names, in its order; empty if there is none."""
    return tuple(_in_config(run_file.config, run_file.spec))


def names_in(document: object, *, key: str = "") -> Iterator[Named]:
    """Yield the code that plain data names: each text that could be imported, whatever its key.

    Args:
        document: Content of a file.
        key: Dotted path that leads to it.
    """
    match document:
        case Mapping():
            for name, value in document.items():
                path = f"{key}.{name}" if key else str(name)
                # A bot is a key where it has a share.
                yield from names_in(str(name), key=key)
                if name not in DATA or key == POPULATIONS:
                    yield from names_in(value, key=path)
        case str() if is_code(document):
            yield Named(key=key, code=document)
        case list() | tuple():
            for value in document:
                yield from names_in(value, key=key)


def is_code(text: str) -> bool:
    """Return whether a text could be imported: ``package.module:Name``, or a bot of that name."""
    reference = text.removeprefix(BOT_PREFIX).partition("(")[0].strip()
    module, colon, name = reference.partition(":")
    parts = [*module.split("."), *name.split(".")]
    is_name = bool(colon) and all(part.isidentifier() for part in parts)
    # OpenSpiel's games and Arena's own are closed lists.
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
    # A command is one thing, whatever its arguments look like.
    for kind, hooks in config.hooks.by_kind.items():
        for hook in hooks:
            said = hook if isinstance(hook, str) else " ".join(hook)
            yield Named(key=f"hooks.{kind}", code=said, arguments=list(hook))
    # Ray runs what it gets from a cluster.
    if config.launcher == "ray" and config.ray.address not in (None, "auto", "local"):
        yield Named(key="ray.address", code=str(config.ray.address))


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """The user's word for the code that a file names, or none.

    Attributes:
        launch_directory: Directory of the code that may be imported; `NO_CODE`: none may be.
        refusal: Sentence on the code that the file names, without the user's word.
    """

    launch_directory: str = NO_CODE
    refusal: str = ""

    def check(self, *texts: object) -> None:
        """Refuse code among texts of the file, if the user has not vouched for it.

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
    """Return the user's word for what a run.yaml names.

    Args:
        run_file: The file as it was read.
        run_dir: Directory of the run.
        trust: Whether the user has said ``--trust``.
        config: CONFIG that the user has given, which is his word for what it names.
    """
    recorded = recorded_launch(run_file)
    named = named_by(run_file)
    if recorded is not None:
        # Code that was moved since is where the user is; what the file says of it is not asked.
        is_gone = bool(named) and not os.path.isdir(recorded)
        where = code_directory() if is_gone or given_code() else recorded
        return Word(launch_directory=where)
    if trust:
        return Word(launch_directory=_find_code(named, run_file.launched_in, beside=run_dir))
    # The code that CONFIG names is where `launch CONFIG` would look for it.
    if config is not None and _covers(config, named, spec=run_file.spec):
        return Word(launch_directory=code_directory())
    return Word(refusal=_refusal(named, run_dir / RUN_FILE))


def word_for_card(document: Mapping[str, object], path: Path, *, trust: bool) -> Word:
    """Return the user's word for what an export's card names.

    Args:
        document: Its environment's ``id`` and ``outcome``, and its network's ``encoder``.
        path: Path of the card.
        trust: Whether the user has said ``--trust``.
    """
    named = tuple(names_in(document))
    if trust:
        return Word(launch_directory=_find_code(named, None, beside=path.parent))
    return Word(refusal=_refusal(named, path))


def trusted(
    run_file: RunFile, run_dir: Path, *, trust: bool, config: RunConfig | None = None
) -> RunFile:
    """Return a run.yaml with the directory of the code that it may import; arguments are those of
    `word_for_run`.

    Raises:
        NotTrusted: If it names code that the user has not vouched for.
    """
    word = word_for_run(run_file, run_dir, trust=trust, config=config)
    if word.launch_directory == NO_CODE and named_by(run_file):
        raise NotTrusted(word.refusal)
    return replace(run_file, launch_directory=word.launch_directory)


def with_own(run_file: RunFile, overrides: Sequence[str]) -> RunFile:
    """Return a trusted run.yaml, with a place for what ``KEY=VALUE`` names: the user's word, too.

    Args:
        run_file: As `trusted` returns it.
        overrides: ``KEY=VALUE`` of the command line.
    """
    given = [parse_override(override) for override in overrides]
    names_some = any(
        path[0] == "hooks" or any(names_in(value, key=".".join(path))) for path, value in given
    )
    # A run that names no code has no directory of code, wherever it is from.
    if run_file.launch_directory == NO_CODE and names_some:
        return replace(run_file, launch_directory=code_directory())
    return run_file


def _covers(config: RunConfig, named: Collection[Named], *, spec: EnvironmentSpec) -> bool:
    """Return whether a configuration names each code, with the same arguments."""
    environment, kwargs = config.environment, config.kwargs_of_matches
    # The specification is what an inspection of CONFIG's environment would give.
    own = replace(spec, id=environment.id, kwargs=kwargs, lessons=config.lessons)
    # Uses are compared by code, because a resolved run.yaml has sections that CONFIG leaves out.
    given = [(one.code, one.arguments) for one in _in_config(config, own)]
    return all((one.code, one.arguments) in given for one in named)


def _refusal(named: Sequence[Named], path: Path) -> str:
    """Return the sentence about a file that names code without the user's word."""
    # One that stands at several keys is told once.
    keys = {one.code: [other.key for other in named if other.code == one.code] for one in named}
    names = ", ".join(f"{code} ({', '.join(keys[code])})" for code in keys)
    return (
        f"{path} names code: {names}. It would run with all rights of yours, and neither did you "
        "launch this here nor say that it may: look at it, then add --trust (from Python "
        "trust=True)"
    )


def _find_code(named: Collection[Named], first: str | None, *, beside: Path) -> str:
    """Return the directory of code that the user has vouched for.

    That is ``--code``; without it the launch directory where it has one of the modules, else the
    current directory or one that a run's directory is in: after a copy to another machine the code
    is beside it.

    Args:
        named: Code.
        first: Launch directory, which may be another machine's.
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
    """Return the directory of what Arena keeps for this user; None: there is no home."""
    home = os.environ.get("XDG_STATE_HOME", "")
    if home.startswith("/"):
        return Path(home) / "arena"
    try:
        return Path.home() / ".local" / "state" / "arena"
    except RuntimeError:
        return None


def record_launch(run_file: RunFile) -> str | None:
    """Note that the user has launched a run here, and where its code is.

    Returns:
        The reason for which it cannot be noted; None: it was, or the run names no code, of which
            nothing need be known.
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
    """Return where the code of a run is that this user has launched here; None: he has not."""
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
    """Refuse what another user could have written.

    Raises:
        PermissionError: If it is not this user's alone.
    """
    others = stat.S_IWGRP | stat.S_IWOTH
    is_kind = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
    if found.st_uid != os.geteuid() or found.st_mode & others or not is_kind:
        raise PermissionError


def _digest(run_file: RunFile) -> Digest:
    """Return the digest of what a launch vouches for: the run, its code and all arguments."""
    named = [[one.key, one.code, one.arguments] for one in named_by(run_file)]
    settings = {
        name: population.algorithm_settings
        for name, population in run_file.config.populations.items()
        if is_code(population.algorithm)
    }
    return canonical_digest([run_file.run, named, settings])
