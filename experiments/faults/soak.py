"""Hours of bad luck in minutes: a Connect Four run whose processes are killed at random moments.

    python -m experiments.faults.soak --kills 200 --minutes 30      # progress on standard error
    python -m experiments.faults.soak --kills 6 --minutes 1 --json  # the figures as JSON
    python -m experiments.faults.soak --kills 100 --minutes 20 --small-bounds
    python -m experiments.faults.soak --kills 50 --minutes 15 --simulators
    python -m experiments.faults.soak --kills 50 --minutes 15 --ranks

With ``--small-bounds`` ghosts and games are thinned, results merged, details archived, and backups
made every few seconds. With ``--simulators`` each environment starts processes of its own, in other
sessions and as daemons, too (`experiments.faults.simulators`). With ``--ranks`` learners have two
processes, the second of which is killed, too, and most policies leave early (``pbt.share:
halving``).

Kills a learner, the controller, or both with SIGKILL; after each of these kills all that the killed
one has started must be gone within two seconds; after a controller's kill all of the directory is
verified, and another controller goes on. Learners write down what they sent and what was
acknowledged (`arena.learners.loop`), and in the end that is compared with the journal: whatever
was acknowledged is there once, as it was sent, and nothing is there that no learner sent. Memory
and descriptors are looked at all the time.

Exit code 1 if anything was lost, invented, damaged or left behind.
"""

from __future__ import annotations

import contextlib
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from arena.learners.loop import ACK_LOG
from experiments.faults.ack_logs import Comparison, compare
from experiments.faults.killing import (
    VICTIMS,
    KilledRun,
    Victim,
    counters,
    end_on_signals,
    killed_run,
)
from experiments.faults.leaks import Leaks, Slope
from experiments.faults.simulators import VARIABLE
from experiments.harness import parser_of, say_document
from populations.audit.verify import check_evolution
from populations.league.lineage import removed_generations
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

SMALL: tuple[str, ...] = (
    "environment.num_envs=64",
    "populations.player.network.hidden_sizes=[32]",
    "populations.player.hyperparameters.rollout_length=8",
    "populations.player.hyperparameters.num_minibatches=4",
    "assignment.agent_steps=2048",
    "ghosts.every_agent_steps=20000",
    "pbt.ready_agent_steps=10000",
    "pbt.warm_up_agent_steps=10000",
    "pbt.min_matches=20",
    "pbt.min_rating_gap=10",
    "pbt.reference=false",
    "evaluation.share=0.2",
    "metrics.sinks=[jsonl]",
    "stop.duration_s=null",
    "learners=2",
)
"""The preset's game and rules, with work that is short: so much more of it is interrupted."""

SMALL_BOUNDS: tuple[str, ...] = (
    "ghosts.every_agent_steps=2048",
    "ghosts.keep=16",
    "checkpoints.keep=1",
    "replays.keep=16",
    "journal.keep_detail_hours=0.005",
    "journal.backup_every_s=2",
    "metrics.rotate_mb=1",
    "metrics.keep_mb=2",
)
"""Bounds that a run reaches within a minute."""

SIMULATORS: tuple[str, ...] = (
    "environment.id=experiments.faults.simulators:connect_four",
    "environment.num_envs=4",
    "environment.num_env_workers=0",
    "assignment.agent_steps=512",
)
"""Environments that are made one by one, and start processes."""

RANKS: tuple[str, ...] = (
    "learner_cores=2",
    "populations.player.size=8",
    "pbt.share=halving",
    "pbt.initial=sampled",
)
"""Learners of two processes, and a population that halves twice."""

TIDYING = ("ghosts_thinned", "results_merged", "checkpoint_rows_removed", "generation_rows_removed")
"""Kinds of events that say what has left a run."""

STOP_S = 120.0
SHORTEST_S = 0.05
STUCK_S = 240.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Result of a soak; see the module.

    Attributes:
        seed: Seed of victims and moments.
        minutes: It took.
        kills: All.
        kills_by_victim: ``both`` is one kill.
        resumes: Controllers that went on where another one stood.
        epochs: Controllers that were started, by the journal.
        assignments_finished: Finished assignments in the journal.
        checkpoints_verified: Read back, every byte, over all looks at the directory.
        exploits: Exploits in the journal.
        exploits_half_done: Policies whose generation contradicts the journal; 0 if sound.
        faults: Faults by `arena verify`, after each controller's kill and at the end.
        quarantined: Policies that were blamed for kills; 0 if sound.
        retired: Policies that left, so that others train more.
        processes_left: 0; learners, their helpers, and what environments started.
        simulators: Simulators that ran just before the kills, all kills together.
        gone_after_s: The longest that learners outlived their controller.
        tallies: Tallies that learners know, beside the journal's.
        tidied: Number of events of each kind in `TIDYING`, and of archived ranges.
        games_verified: Evaluation games that were kept, over all looks at the directory.
        games_that_hold: Those of them that kept the weights of their players.
        slopes: Growth of memory and descriptors, by role.
    """

    seed: int
    minutes: float
    kills: int
    kills_by_victim: dict[Victim, int]
    resumes: int
    epochs: int
    assignments_finished: int
    checkpoints_verified: int
    exploits: int
    exploits_half_done: int
    faults: list[str]
    quarantined: int
    retired: int
    processes_left: int
    simulators: int
    gone_after_s: float
    tallies: Comparison
    tidied: dict[str, int]
    games_verified: int
    games_that_hold: int
    slopes: dict[str, Slope]

    @property
    def is_sound(self) -> bool:
        """Whether nothing was lost, invented, damaged or left behind."""
        return (
            not self.faults
            and not self.exploits_half_done
            and not self.processes_left
            and self.tallies.is_sound
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak, print, and return the exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument(
        "--minutes", type=float, default=30.0, help="minutes over which kills are spread"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--small-bounds", action="store_true", help="thin, merge, archive and back up all the time"
    )
    parser.add_argument(
        "--simulators", action="store_true", help="let environments start processes of their own"
    )
    parser.add_argument(
        "--ranks", action="store_true", help="learners of two processes, and policies that leave"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    end_on_signals()
    with tempfile.TemporaryDirectory(prefix="arena-soak-") as directory:
        figures = soak(
            Path(directory),
            kills=options.kills,
            minutes=options.minutes,
            seed=options.seed,
            overrides=(*SMALL, *(SMALL_BOUNDS if options.small_bounds else ())),
            with_simulators=options.simulators,
            with_ranks=options.ranks,
        )
    say_document({"schema": 1, **asdict(figures)}, as_json=options.json)
    return 0 if figures.is_sound else 1


def soak(
    directory: Path,
    *,
    kills: int,
    minutes: float,
    seed: int,
    overrides: Sequence[str] = SMALL,
    with_simulators: bool = False,
    with_ranks: bool = False,
) -> Figures:
    """Kill, resume and compare; ends with a clean stop."""
    rng = random.Random(seed)
    witness = directory / "witness"
    witness.mkdir()
    environment = {"ARENA_TESTING": "1", ACK_LOG: str(witness), "OMP_NUM_THREADS": "1"}
    if with_simulators:
        environment[VARIABLE] = str(directory)
    began_s = time.monotonic()
    with killed_run(directory, environment=environment) as run, Leaks(run) as leaks:
        if with_simulators:
            overrides = (*overrides, *SIMULATORS)
        victims = VICTIMS
        if with_ranks:
            overrides = (*overrides, *RANKS)
            victims = (*VICTIMS, "helper")
        run.start("connect_four", *overrides, f"seed={seed}")
        for number in range(kills):
            now_s = time.monotonic()
            left_s = began_s + 60.0 * minutes - now_s
            due_s = now_s + 2.0 * left_s / (kills - number) * rng.random()
            _await_progress(run)
            _pause(run, due_s - time.monotonic())
            victim = rng.choice(victims)
            run.kill(victim, rng)
            _say(run, number + 1, kills, victim)
        _await_progress(run)
        _stop(run)
        leaks.stop()
        return _figures(run, leaks, witness, seed=seed, minutes=_minutes_since(began_s))


def _await_progress(run: KilledRun) -> None:
    """Wait until one more assignment is committed: three kills during one blame its learner."""
    row = counters(run.run)
    goal = 1 if row is None else row.assignments_finished + 1
    if not run.await_finished(goal, timeout_s=STUCK_S):
        raise RuntimeError(f"the run ended by itself: {run.log.read_text()[-4000:]}")


def _pause(run: KilledRun, seconds: float) -> None:
    """Sleep until a random moment, which no condition can be waited for."""
    until_s = time.monotonic() + max(seconds, SHORTEST_S)
    while (left_s := until_s - time.monotonic()) > 0.0:
        time.sleep(min(left_s, 0.5))
        if run.is_over():
            raise RuntimeError(f"the run ended by itself: {run.log.read_text()[-4000:]}")


def _stop(run: KilledRun) -> None:
    """Stop a run as Ctrl-C does: with everything saved."""
    assert run.process is not None, "it was started"
    run.process.send_signal(signal.SIGINT)
    code = run.wait(timeout_s=STOP_S)
    if code != 130:
        raise RuntimeError(f"exit code {code} after SIGINT: {run.log.read_text()[-4000:]}")
    run.await_nobody()
    run.verify()


def _figures(run: KilledRun, leaks: Leaks, witness: Path, *, seed: int, minutes: float) -> Figures:
    with JournalReader(run.run / JOURNAL) as reader, reader.snapshot():
        tables = reader.load()
        assignments = reader.assignments()
        tallies = reader.tallies()
        quarantined = reader.events(kinds=["quarantined"])
        retired = reader.events(kinds=["retired"])
        tidied = reader.events(kinds=TIDYING)
        archives = [row for row in reader.archives() if row.file]
    return Figures(
        seed=seed,
        minutes=round(minutes, 1),
        kills=sum(run.num_kills.values()),
        kills_by_victim=run.num_kills,
        resumes=run.num_resumes,
        epochs=tables.run.epoch,
        assignments_finished=tables.run.assignments_finished,
        checkpoints_verified=run.num_verified,
        exploits=tables.run.exploits,
        exploits_half_done=len(list(check_evolution(tables, removed_generations(tidied)))),
        faults=run.faults,
        quarantined=len(quarantined),
        retired=len(retired),
        processes_left=len(run.left()),
        simulators=run.num_simulators,
        gone_after_s=round(run.slowest_s, 3),
        tallies=compare(witness, assignments, tallies),
        tidied={**Counter(event.kind for event in tidied), "archives": len(archives)},
        games_verified=run.num_games,
        games_that_hold=run.num_that_hold,
        slopes=leaks.slopes(),
    )


def _say(run: KilledRun, number: int, kills: int, victim: Victim) -> None:
    row = counters(run.run)
    done = row.assignments_finished if row is not None else 0
    faults = f", FAULTS {run.faults}" if run.faults else ""
    sys.stderr.write(f"{number}/{kills} killed {victim}; {done} assignments{faults}\n")
    with contextlib.suppress(OSError):
        sys.stderr.flush()


def _minutes_since(began_s: float) -> float:
    return (time.monotonic() - began_s) / 60.0


if __name__ == "__main__":
    sys.exit(main())
