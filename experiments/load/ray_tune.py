"""Ray Tune's PBT with many trials of a trainable that does nothing: the other side of `beside_ray`.

    /tmp/ray-venv/bin/python experiments/load/ray_tune.py --trials 100 --at-once 8 --directory DIR

Runs in Ray's own environment, so it imports nothing of this project. One JSON document on standard
output. With ``--resume`` it restores the experiment that is there and stops at its first result.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

NAME = "experiment"
EXIT_MISSING = 2


def resident_mib() -> float:
    """Return the memory of this process: the driver, with scheduler and bookkeeping."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Stopwatch:
    """Counter of results that says stop some seconds after the first one."""

    def __init__(self, *, seconds: float) -> None:
        self.seconds = seconds
        self.began_s = time.monotonic()
        self.first_s: float | None = None
        self.num_results = 0
        self.waits_s: list[float] = []
        self.memory_mib = [resident_mib()]
        self.processor_s = 0.0

    def note(self, waited_s: float | None) -> None:
        """Note a result of a worker that had waited so long for its step."""
        now_s = time.monotonic()
        if self.first_s is None:
            self.first_s = now_s
            self.processor_s = time.process_time()
            self.memory_mib.append(resident_mib())
        self.num_results += 1
        if waited_s is not None:
            self.waits_s.append(waited_s)
        if now_s - self.first_s >= self.seconds and self.seconds >= 0.0:
            self.seconds = -1.0
            self.figures = self._figures(now_s)
            os.kill(os.getpid(), signal.SIGINT)  # Tune saves its state and ends

    def _figures(self, now_s: float) -> dict[str, float]:
        assert self.first_s is not None, "results have come in"
        elapsed_s = max(now_s - self.first_s, 1e-9)
        waits_s = sorted(self.waits_s) or [0.0]
        return {
            "first_result_s": self.first_s - self.began_s,
            "results": self.num_results,
            "results_per_s": (self.num_results - 1) / elapsed_s,
            "p50_ms": 1e3 * waits_s[len(waits_s) // 2],
            "p99_ms": 1e3 * waits_s[len(waits_s) * 99 // 100],
            "processor_ms_per_result": 1e3
            * (time.process_time() - self.processor_s)
            / max(self.num_results - 1, 1),
            "memory_mib": resident_mib(),
            "memory_at_start_mib": self.memory_mib[0],
        }


def make_trainable(tune: Any) -> Any:
    """Make a trainable whose step takes no time and whose checkpoint is a few bytes."""

    class Trivial(tune.Trainable):  # type: ignore[misc]
        ended_s: float | None = None

        def setup(self, config: dict[str, float]) -> None:
            self.rate, self.score = config["learning_rate"], 0.0

        def reset_config(self, new_config: dict[str, float]) -> bool:
            self.setup(new_config)
            return True

        def step(self) -> dict[str, float]:
            began_s = time.monotonic()
            self.score += self.rate * random.random()
            result = {"score": self.score}
            if self.ended_s is not None:
                result["waited_s"] = began_s - self.ended_s
            self.ended_s = time.monotonic()
            return result

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            Path(checkpoint_dir, "weights").write_text(repr(self.score))

        def load_checkpoint(self, checkpoint_dir: str) -> None:
            self.score = float(Path(checkpoint_dir, "weights").read_text())

    return Trivial


def make_tuner(tune: Any, arguments: argparse.Namespace, stopwatch: Stopwatch) -> Any:
    """Make a new experiment, or restore the one that is there."""

    class Counting(tune.Callback):  # type: ignore[misc]
        def on_trial_result(self, *positional: object, result: Any, **named: object) -> None:
            stopwatch.note(result.get("waited_s"))

    trainable = tune.with_resources(make_trainable(tune), {"cpu": 1})
    run_config = tune.RunConfig(
        name=NAME,
        storage_path=str(arguments.directory),
        callbacks=[Counting()],
        verbose=0,
        # All are kept: with a few, Tune would write the state of its experiment at every result.
        checkpoint_config=tune.CheckpointConfig(checkpoint_frequency=1),
    )
    if arguments.resume:
        tuner = tune.Tuner.restore(str(Path(arguments.directory, NAME)), trainable=trainable)
        # The callbacks of a restored experiment are those that were saved with it.
        tuner._local_tuner._run_config.callbacks = [Counting()]
        return tuner
    schedulers = importlib.import_module("ray.tune.schedulers")
    scheduler = schedulers.PopulationBasedTraining(
        time_attr="training_iteration",
        metric="score",
        mode="max",
        perturbation_interval=arguments.interval,
        hyperparam_mutations={"learning_rate": tune.loguniform(1e-5, 1e-2)},
    )
    return tune.Tuner(
        trainable,
        param_space={"learning_rate": tune.loguniform(1e-5, 1e-2)},
        tune_config=tune.TuneConfig(
            scheduler=scheduler, num_samples=arguments.trials, reuse_actors=True
        ),
        run_config=run_config,
    )


def main() -> None:
    """Read the arguments, run until there is enough to say, and say it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--at-once", type=int, default=8, help="trials that have a process")
    parser.add_argument("--interval", type=int, default=5, help="steps between PBT's decisions")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--resume", action="store_true")
    arguments = parser.parse_args()
    stopwatch = Stopwatch(seconds=0.0 if arguments.resume else arguments.seconds)
    try:
        ray, tune = importlib.import_module("ray"), importlib.import_module("ray.tune")
    except ImportError:
        sys.stderr.write(
            f"{sys.executable} has no Ray: make an environment of its own for it, "
            "pip install 'ray[tune]', and name its interpreter with --python\n"
        )
        sys.exit(EXIT_MISSING)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(
        num_cpus=arguments.at_once,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=200 * 2**20,
    )
    make_tuner(tune, arguments, stopwatch).fit()
    sys.stdout.write(json.dumps(stopwatch.figures) + "\n")


if __name__ == "__main__":
    main()
