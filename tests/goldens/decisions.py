"""Decision logs: what a controller decides in simulated leagues, event by event.

    python -m tests.goldens.decisions                    # compare all with what is stored
    python -m tests.goldens.decisions roles turns        # some
    python -m tests.goldens.decisions --make roles       # store anew, after a fault was mended

A log has a line for each message that is sent and each event that is committed, and the JSON of
standings, status and payoff after every hundredth event. Where two logs part, the first lines that
differ are printed, key by key, with the lines before them.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count, zip_longest
from pathlib import Path
from typing import Any, ClassVar, Literal

import yaml
from msgspec import structs

from arena.config import Model
from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.wire.messages import Evaluate, Failed, Train
from populations.config.run_config import RunConfig, load_config, validate_config
from populations.config.run_file import RunFile, learner_setup, new_run_file
from populations.controller.state.events import Command
from populations.controller.state.state import ControllerState, make_state
from populations.records.aggregates import Row
from populations.simulation.environment import simulated_config, simulated_run
from populations.simulation.league import default_model
from populations.simulation.learner import SimulatedLearner
from populations.simulation.world import World, make_learner, make_tables, start
from populations.storage.journal import Journal
from tests.goldens.forms import Document, events_of, messages_of, views_of

HERE = Path(__file__).parent
STORED = HERE / "decisions"
VIEWS_EVERY = 100
SLOW = {"agent_steps_per_s": 1000.0, "matches_per_s": 500.0}
"""Speeds of the learners of small games: an assignment takes half a second."""

CHUNK_S = 0.1
"""Simulated seconds between two looks at the number of events."""

TOLERANCE = 1e-6
"""Relative difference of numbers, which come from fits."""


class Painter:
    """An algorithm with choices that are text, true and false, as far as a controller knows it."""

    class Hyperparameters(Model):
        """Those of the worlds with choices."""

        learning_rate: float = 1e-3
        greedy: bool = False

    class Settings(Model):
        """Settings, which PBT changes there."""

        CHANGEABLE: ClassVar[tuple[str, ...]] = ("colour", "is_fast", "depth")
        colour: Literal["red", "green", "blue"] = "red"
        is_fast: bool = True
        depth: int = 2


@cache
def worlds() -> dict[str, Document]:
    """Read the worlds by name."""
    document = yaml.safe_load((HERE / "worlds.yaml").read_text(encoding="utf8"))
    found = {}
    for name, world in document["worlds"].items():
        config = merged(document["base"], world.get("config", {}))
        game = document["games"][world["game"]] if "game" in world else None
        found[name] = {**world, "game": game, "config": config}
    return found


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> Document:
    """Lay a document over another; populations are replaced as a whole."""
    both = {**below, **above}
    for key in below.keys() & above.keys():
        if key != "populations" and isinstance(below[key], dict) and isinstance(above[key], dict):
            both[key] = merged(below[key], above[key])
    return both


def run_of(world: Document) -> RunFile:
    """Return the run file of a world."""
    if world["game"] is None:
        config = simulated_config(load_config(world["preset"], ["seed=7", "learners=2"]))
        return simulated_run(config)
    config = validate_config(world["config"])
    spec = _spec(world["game"], config)
    made = new_run_file(config, spec, name="golden", launch_directory=".")
    # The run's id is fixed, because a new one is random.
    return replace(made, run="golden")


def _spec(game: Document, config: RunConfig) -> EnvironmentSpec:
    def agent(size: int) -> AgentSpec:
        box = {"kind": "Box", "shape": [size], "dtype": "float32", "low": None, "high": None}
        action: Document = {"kind": "Discrete", "n": 3, "start": 0}
        return AgentSpec(observation=box, action=action, mask=None)

    return EnvironmentSpec(
        id=config.environment.id,
        kwargs=config.kwargs_of_matches,
        api=game["api"],
        agents=tuple(game["agents"]),
        agent_specs={name: agent(size) for name, size in game["agents"].items()},
        lessons=config.lessons,
    )


@dataclass(slots=True)
class _Logged(World):
    """A simulated league that notes what is decided."""

    note: Callable[[Document], None] = lambda document: None

    def carry_out(self, command: Command) -> None:
        for document in messages_of([command]):
            self.note(document)
        # `super()` fails here, because dataclasses with slots are created a second time.
        World.carry_out(self, command)


@dataclass(slots=True)
class _Log:
    """A log in the making, with the journal that its views are read from."""

    run_file: RunFile
    run_dir: Path
    journal: Journal
    lines: list[Document] = field(default_factory=list)
    num_events: int = 0

    def watch(self, rows: Sequence[Row]) -> None:
        """Commit rows, and note the events among them."""
        self.journal.commit(rows)
        for document in events_of(rows):
            self.lines.append(document)
            self.num_events += 1
            if self.num_events % VIEWS_EVERY == 0:
                path = self.run_dir / "journal.db"
                self.lines.append(views_of(self.run_dir, self.run_file, path))


def play(world: Document, run_dir: Path) -> list[Document]:
    """Play a world, and return its log.

    Args:
        world: Entry of `worlds`.
        run_dir: Empty directory for its journal.
    """
    run_file = run_of(world)
    tables = make_tables(run_file)
    rows: list[Row] = [tables.run, *tables.policies.values(), *tables.generations.values()]
    path = run_dir / "journal.db"
    setup = learner_setup(run_file, root=Path("/nowhere"))
    speeds = {} if world["game"] is None else SLOW
    learner = make_learner(setup, run_file.config, default_model(run_file.config), **speeds)
    with Journal.create(path, rows) as journal:
        log = _Log(run_file=run_file, run_dir=run_dir, journal=journal)
        resumes = [*world.get("resumes", ()), world["events"]]
        now_s = 0.0
        for epoch, end in enumerate(resumes):
            if epoch:
                log.lines.append({"resumed": epoch})
                tables = journal.load()
                # The logs are of controllers that did not store the announced champion.
                for name, row in tables.ratings.items():
                    tables.ratings[name] = structs.replace(row, champion_player=None)
            state = make_state(run_file.config, setup, tables)
            now_s = _go_on(world, log, state, learner, until=end, now_s=now_s)
    return log.lines


def _go_on(
    world: Document,
    log: _Log,
    state: ControllerState,
    learner: SimulatedLearner,
    *,
    until: int,
    now_s: float,
) -> float:
    league = _Logged(state=state, setup=learner.setup, learner=learner, now_s=now_s)
    league.watch, league.note = log.watch, log.lines.append
    if "faults" in world:
        league.fault = _faults(world["faults"])
    start(league)
    while not league.over and log.num_events < until:
        league.play(CHUNK_S)
    return league.now_s


def _faults(faults: Document) -> Callable[[int, Train | Evaluate, float], str | Failed | None]:
    numbers = count(1)

    def fault(slot: int, message: Train | Evaluate, now_s: float) -> str | None:
        del message, now_s
        if slot != faults["slot"] or (number := next(numbers)) % faults["every"]:
            return None
        return str(faults["kinds"][number // faults["every"] % len(faults["kinds"])])

    return fault


def differences(
    stored: object, found: object, place: str = "", sides: Sequence[str] = ("stored", "found")
) -> Iterator[str]:
    """Yield where two documents differ, one line each."""
    if isinstance(stored, dict) and isinstance(found, dict):
        for key in dict.fromkeys([*stored, *found]):
            if key not in stored or key not in found:
                side, value = (
                    (sides[0], stored.get(key)) if key in stored else (sides[1], found[key])
                )
                yield f"{place}.{key}: only {side}: {json.dumps(value)[:200]}"
            else:
                yield from differences(stored[key], found[key], f"{place}.{key}", sides)
    elif isinstance(stored, list) and isinstance(found, list):
        for index, pair in enumerate(zip(stored, found, strict=False)):
            yield from differences(*pair, f"{place}[{index}]", sides)
        both = min(len(stored), len(found))
        for side, values in zip(sides, (stored, found), strict=True):
            for index, value in enumerate(values[both:], start=both):
                yield f"{place}[{index}]: only {side}: {json.dumps(value)[:200]}"
    elif not same(stored, found):
        shown = [
            f"{side} {json.dumps(one)[:200]}"
            for side, one in zip(sides, (stored, found), strict=True)
        ]
        yield f"{place}: {shown[0]}, {shown[1]}"


def same(stored: object, found: object) -> bool:
    """Return whether two plain values are equal, numbers but for their last digits."""
    if isinstance(stored, float) and isinstance(found, float | int):
        return math.isclose(stored, found, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return type(stored) is type(found) and stored == found


def parting(stored: Sequence[Document], found: Sequence[Document]) -> list[str]:
    """Explain the first line in which two logs part; nothing where they do not."""
    for at, (one, other) in enumerate(zip_longest(stored, found)):
        lines = list(differences(one, other))
        if lines:
            before = [f"  {json.dumps(line)[:160]}" for line in stored[max(0, at - 3) : at]]
            head = (
                f"parts at line {at + 1} of {len(stored)} stored and {len(found)} found; before it:"
            )
            return [head, *before, *(f"  {line}" for line in lines[:20])]
    return []


def read(name: str) -> list[Document]:
    """Read a stored log."""
    text = lzma.decompress((STORED / f"{name}.jsonl.xz").read_bytes()).decode()
    return [json.loads(line) for line in text.splitlines()]


def played(name: str) -> list[Document]:
    """Play a world of `worlds` now."""
    with tempfile.TemporaryDirectory() as scratch:
        # The round trip through JSON makes keys text, as in a file.
        lines = play(worlds()[name], Path(scratch))
    return [json.loads(json.dumps(line)) for line in lines]


def main(argv: Sequence[str] | None = None) -> None:
    """Compare logs with the stored ones, or store them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--make", action="store_true", help="store what is decided now")
    options = parser.parse_args(argv)
    known = worlds()
    if unknown := set(options.names) - known.keys():
        parser.error(f"worlds are {', '.join(known)}, got {', '.join(sorted(unknown))}")
    parted = False
    for name in options.names or known:
        found = played(name)
        path = STORED / f"{name}.jsonl.xz"
        explained = parting(read(name) if path.exists() else [], found)
        # A log that differs only in its last digits is not rewritten.
        if options.make and explained:
            text = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in found)
            path.write_bytes(lzma.compress(text.encode()))
        parted |= bool(explained) and not options.make
        what = "equal" if not explained else "stored" if options.make else "parted"
        sys.stdout.write("\n".join([f"{name}: {what}", *explained]))
        sys.stdout.write("\n")
        sys.stdout.flush()
    if parted:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
