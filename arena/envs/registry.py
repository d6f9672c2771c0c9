"""Look-up of environments by id.

An id is one of PettingZoo's registry (``classic/connect_four-v3``), one of mpe2 or magent2
(``mpe2/simple_spread_v3``, also written ``mpe/...`` and ``-v3``), or ``package.module:factory``.

Tests: `tests/arena/envs/batched/test_games.py`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, cast

from arena.environment_spec import EnvironmentSpec
from arena.errors import ConfigError, EnvironmentUnavailable
from arena.resolve import in_file, put_first_on_path, resolve
from arena.users_code import chain_of, message_of, pass_interrupt

Api = Literal["aec", "parallel"]

FAMILY_ID = re.compile(r"(?P<family>mpe|magent)2?/(?P<name>\w+?)[-_]v(?P<version>\d+)")
MPE_NAMES = (
    "collect_treasure_v1",
    "simple_v3",
    "simple_adversary_v3",
    "simple_crypto_v3",
    "simple_formation_v1",
    "simple_line_v1",
    "simple_push_v3",
    "simple_reference_v3",
    "simple_speaker_listener_v4",
    "simple_spread_v3",
    "simple_tag_v3",
    "simple_world_comm_v3",
)
MAGENT_NAMES = (
    "adversarial_pursuit_v4",
    "battle_v4",
    "battlefield_v5",
    "combined_arms_v6",
    "gather_v5",
    "tiger_deer_v4",
)

# Twins are given by name, because importing a game would import torch.
TWINS: Mapping[str, str] = {
    "classic/connect_four-v3": "arena.envs.batched.connect_four:ConnectFour",
    "classic/rps-v2": "arena.envs.batched.rock_paper_scissors:RockPaperScissors",
    "classic/tictactoe-v3": "arena.envs.batched.tictactoe:TicTacToe",
    "openspiel:kuhn_poker": "arena.envs.batched.kuhn_poker:KuhnPoker",
    "openspiel:leduc_poker": "arena.envs.batched.leduc_poker:LeducPoker",
}
"""Twin of an original's canonical id, as ``package.module:Class``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Package whose environments are not in PettingZoo's registry.

    Attributes:
        package: Package's name, and the first part of its ids.
        modules: Package with one module for each environment.
        names: Names of environments, for suggestions only; other names are looked up as well.
    """

    package: str
    modules: str
    names: tuple[str, ...]


FAMILIES = {
    "mpe": Family(package="mpe2", modules="mpe2", names=MPE_NAMES),
    "magent": Family(package="magent2", modules="magent2.environments", names=MAGENT_NAMES),
}
"""Families by the beginning of an id, without the 2. Their environments have both APIs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownEnvironment:
    """Line of ``arena envs list``.

    Attributes:
        id: Id for `make_environment`.
        package: Package that defines it.
        apis: Available forms; the first one is used.
        installed: Whether it can be imported here.
        install: Command that installs its requirements.
    """

    id: str
    package: str
    apis: tuple[Api, ...]
    installed: bool
    install: str


def make_environment(
    environment_id: str, *, kwargs: Mapping[str, object], api: Api, launch_directory: str
) -> Any:  # noqa: ANN401  (PettingZoo's two classes have no common one)
    """Make one environment.

    Args:
        environment_id: See the module.
        kwargs: Arguments of its factory.
        api: Form to make.
        launch_directory: Directory put first on ``sys.path``.

    Returns:
        A ``pettingzoo.AECEnv`` or ``pettingzoo.ParallelEnv``, whose agents are named by text.

    Raises:
        EnvironmentUnavailable: If there is no such id, or a package is missing.
        ConfigError: If its factory fails, or makes something else.
    """
    env = _call_factory(environment_id, kwargs=kwargs, api=api, launch_directory=launch_directory)
    made = _api_of(env, environment_id=environment_id)
    if made != api:
        raise ConfigError(f"environment.id {environment_id} makes {made} environments, not {api}")
    # The import is here, because the module imports PettingZoo.
    from arena.envs.pettingzoo.text_names import with_text_names

    return with_text_names(env, environment_id=environment_id)


def make_of_spec(spec: EnvironmentSpec, *, launch_directory: str) -> Any:  # noqa: ANN401
    """Make one environment as `make_environment` does, from its spec."""
    return make_environment(
        spec.id, kwargs=spec.kwargs, api=spec.api, launch_directory=launch_directory
    )


def native_api(environment_id: str, *, kwargs: Mapping[str, object], launch_directory: str) -> Api:
    """Return the form in which an environment is used: parallel if available, else turn by turn.

    The form of ``package.module:factory`` is known only after one call.

    Raises:
        EnvironmentUnavailable: If there is no such id, or a package is missing.
        ConfigError: If its factory fails.
    """
    if ":" not in environment_id:
        return _apis(environment_id)[0]
    # A factory has one API, so the argument `api` is ignored.
    env = _call_factory(environment_id, kwargs=kwargs, api="aec", launch_directory=launch_directory)
    api = _api_of(env, environment_id=environment_id)
    # Only the API was needed here; errors of `close` are reported where the environment is used.
    with suppress(Exception):
        env.close()
    return api


def canonical_id(environment_id: str) -> str:
    """Return the canonical form of an id: with its version, ``mpe2/`` before mpe2's.

    Raises:
        EnvironmentUnavailable: If there is no such id.
    """
    if ":" in environment_id:
        return environment_id
    found = FAMILY_ID.fullmatch(environment_id)
    if found is not None:
        package = FAMILIES[found["family"]].package
        # Modules of these packages are named with _v.
        return f"{package}/{found['name']}_v{found['version']}"
    return cast(str, _registered(environment_id)[0].id)


def known_environments() -> list[KnownEnvironment]:
    """Return all environments with a registered id; import each to test whether that works."""
    pettingzoo = _pettingzoo()
    known = [
        KnownEnvironment(
            id=name,
            package="pettingzoo",
            apis=_apis(name),
            installed=_importable(spec.entry_point.partition(":")[0]),
            install=_install_extra(spec.namespace),
        )
        for name, spec in pettingzoo.aec_registry.items()
    ]
    known += [
        KnownEnvironment(
            id=f"{family.package}/{name}",
            package=family.package,
            apis=("parallel", "aec"),
            installed=_importable(f"{family.modules}.{name}"),
            install=_install_line(f"{family.package}/{name}", family.package),
        )
        for family in FAMILIES.values()
        for name in family.names
    ]
    return sorted(known, key=lambda environment: environment.id)


def home_module(environment_id: str) -> str:
    """Return the module that defines an environment."""
    if ":" in environment_id:
        return environment_id.partition(":")[0]
    name = canonical_id(environment_id)
    family = _family(name)
    if family is not None:
        return _module(name, family)
    return cast(str, _registered(name)[0].entry_point.partition(":")[0])


def _pettingzoo() -> Any:  # noqa: ANN401  (a module without types)
    # The variable is set before pygame can open a window; a driver that the user chose is kept.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    return importlib.import_module("pettingzoo")


def _call_factory(
    environment_id: str, *, kwargs: Mapping[str, object], api: Api, launch_directory: str
) -> Any:  # noqa: ANN401
    _pettingzoo()
    put_first_on_path(launch_directory)
    factory = _factory(environment_id, api=api, launch_directory=launch_directory)
    try:
        # The caller checks the made environment, with a better message than the factory's
        # warnings.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*was expected to be an instance of.*")
            # As an error this warning would end the process; it comes from Box2D's SWIG wrapper.
            warnings.filterwarnings("ignore", message="builtin type .* has no __module__ attribute")
            env = factory(**kwargs)
    except BaseException as error:
        pass_interrupt(error)
        missing = _missing_module(error)
        if missing is not None:
            raise _needs(environment_id, missing) from error
        # A factory may raise anything, and its arguments are the user's.
        raise ConfigError(
            f"environment.id {environment_id} with kwargs {dict(kwargs)} cannot be made: "
            f"{message_of(error)}"
        ) from error
    # This call is outside the try, because an error in it is Arena's, not the factory's.
    _drop_picture(env, kwargs=kwargs)
    return env


def _drop_picture(env: Any, *, kwargs: Mapping[str, object]) -> None:  # noqa: ANN401
    """Free the 2 MB canvas of each mpe2 environment that will not render."""
    # Wrappers forward reading of attributes, but not setting.
    innermost: Any = getattr(env, "unwrapped", None)
    if type(innermost).__module__.startswith("mpe2.") and kwargs.get("render_mode") is None:
        innermost.screen = None


def _factory(environment_id: str, *, api: Api, launch_directory: str) -> Callable[..., Any]:
    if ":" in environment_id:
        return _referred(environment_id, launch_directory=launch_directory)
    family = _family(environment_id)
    if family is not None:
        return _family_factory(canonical_id(environment_id), family, api=api)
    specs = {spec_api: spec for spec, spec_api in _registrations(environment_id)}
    if api not in specs:
        raise ConfigError(f"environment.id {environment_id} has no {api} form")
    pettingzoo = _pettingzoo()
    return lambda **kwargs: pettingzoo.make(api, specs[api], **kwargs)


def _referred(environment_id: str, *, launch_directory: str) -> Callable[..., Any]:
    try:
        factory = resolve(environment_id, launch_directory=launch_directory)
    except ConfigError as error:
        # `resolve` raises its ConfigError from the import's own error.
        missing = _missing_module(error.__cause__)
        if missing is None:
            raise
        raise _needs(environment_id, missing) from error
    if not callable(factory):
        raise ConfigError(f"environment.id {environment_id} must name a factory, got {factory!r}")
    return cast("Callable[..., Any]", factory)


def _family(environment_id: str) -> Family | None:
    found = FAMILY_ID.fullmatch(environment_id)
    return None if found is None else FAMILIES[found["family"]]


def _module(canonical: str, family: Family) -> str:
    return f"{family.modules}.{canonical.partition('/')[2]}"


def _family_factory(canonical: str, family: Family, *, api: Api) -> Callable[..., Any]:
    name = _module(canonical, family)
    try:
        # magent2 imports a renderer in a way that PettingZoo itself warns about.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(family.package)
            module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        # If the id's own module is missing, there is no such environment; otherwise a package is
        # missing.
        if error.name == name:
            raise _unknown(canonical) from error
        raise _needs(canonical, error.name or family.package) from error
    return cast("Callable[..., Any]", module.env if api == "aec" else module.parallel_env)


def _apis(environment_id: str) -> tuple[Api, ...]:
    if _family(environment_id) is not None:
        return ("parallel", "aec")
    return tuple(api for _, api in _registrations(environment_id))


def _registered(environment_id: str) -> tuple[Any, Api]:
    return _registrations(environment_id)[0]


def _registrations(environment_id: str) -> list[tuple[Any, Api]]:
    """Return PettingZoo's specs of an id, the parallel form first."""
    pettingzoo = _pettingzoo()
    exceptions = importlib.import_module("pettingzoo.env_registry.exceptions")
    found: list[tuple[Any, Api]] = []
    apis: tuple[Api, ...] = ("parallel", "aec")
    for api in apis:
        try:
            found.append((pettingzoo.spec(api, environment_id), api))
        except exceptions.PettingZooRegistryError:
            continue
    if not found:
        raise _unknown(environment_id)
    return found


def _unknown(environment_id: str) -> EnvironmentUnavailable:
    known = list(_pettingzoo().aec_registry)
    known += [f"{family.package}/{name}" for family in FAMILIES.values() for name in family.names]
    # PettingZoo's ids end with -v, those of mpe2 and magent2 with _v, so both are normalized.
    normalized = re.sub(r"_v(?=\d+$)", "-v", environment_id)
    near = dict.fromkeys(
        difflib.get_close_matches(environment_id, known, n=2, cutoff=0.5)
        + difflib.get_close_matches(normalized, known, n=2, cutoff=0.5)
    )
    hint = f"; nearest: {', '.join(near)}" if near else ""
    if reference := in_file(environment_id):
        hint = f"; that of a file is {reference}, as its class or factory is called"
    return EnvironmentUnavailable(
        f"environment.id: there is no environment {environment_id!r}{hint}. "
        "Ids: arena envs list, or package.module:factory"
    )


def _missing_module(error: BaseException | None) -> str | None:
    """Return the module that an import did not find, from the chain of errors."""
    for one in chain_of(error):
        if isinstance(one, ModuleNotFoundError) and one.name:
            return one.name
    return None


def _needs(environment_id: str, missing: str) -> EnvironmentUnavailable:
    return EnvironmentUnavailable(
        f"environment.id {environment_id} needs the module {missing!r}, which is not there: "
        f"{_install_line(environment_id, missing)}"
    )


def _install_line(environment_id: str, missing: str) -> str:
    package = missing.partition(".")[0]
    for family in FAMILIES.values():
        # A module of a family may lack another package, which is installed with the family's own.
        if family.package in (package, environment_id.partition("/")[0]):
            return f"pip install {family.package}"
    if ":" not in environment_id:
        return _install_extra(environment_id.partition("/")[0])
    home = environment_id.split(".")
    # For an id such as pettingzoo.classic.rps.rps:env, the second part is the extra.
    if home[0] == "pettingzoo" and len(home) > 1 and package != "pettingzoo":
        return _install_extra(home[1].partition(":")[0])
    return f"pip install {package} (or start where {package} is: that directory is searched first)"


def _install_extra(namespace: str) -> str:
    # The extra is PettingZoo's, not Arena's, so it works from a clone and from a wheel.
    return f"pip install 'pettingzoo[{namespace}]'"


def _importable(module: str) -> bool:
    # Some environments (knights_archers_zombies) change this setting for the whole process.
    writes_no_bytecode = sys.dont_write_bytecode
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(module)
    # magent2 loads its library by ctypes, whose error is an OSError.
    except (ImportError, OSError):
        return False
    finally:
        sys.dont_write_bytecode = writes_no_bytecode
    return True


def _api_of(env: object, *, environment_id: str) -> Api:
    pettingzoo = _pettingzoo()
    if isinstance(env, pettingzoo.ParallelEnv):
        return "parallel"
    if isinstance(env, pettingzoo.AECEnv):
        return "aec"
    raise ConfigError(
        f"environment.id {environment_id} must make a pettingzoo.AECEnv or ParallelEnv, got "
        f"{type(env).__name__}"
    )
