"""State of the controller: the journal's rows, indexes over them, and the parts of an epoch.

The classes are data with short queries; `populations.controller.machine` changes them. Functions
outside the machine take only the part that they read.

`Indexes.apply` alone determines which rows update which index.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from arena.config import LearnerSetup
from arena.types import Digest, WeightsRef, is_bot
from populations.config.run_config import RunConfig
from populations.controller.indexes.alert_kinds import resumed
from populations.controller.indexes.opponent_pool import OpponentPools
from populations.controller.indexes.pbt_members import MemberIndex
from populations.controller.indexes.player_strengths import PendingMatches, StrengthIndex
from populations.controller.indexes.rated_pins import RatedPins
from populations.controller.indexes.training_queue import TrainingQueue
from populations.controller.state.epoch import Curves, Measured, Phase, Settings
from populations.controller.state.events import Now
from populations.controller.state.fits import Fits
from populations.controller.state.goals import StopGoals
from populations.controller.state.leases import (
    CLUSTER_LIVENESS_S,
    Crew,
    MatchTimes,
    Patience,
    make_slots,
)
from populations.controller.state.pauses import Blame
from populations.controller.state.transaction import Transaction
from populations.league.league import League
from populations.matchmaking.external_players import (
    ExternalPlayer,
    external_player_id,
    external_player_key,
)
from populations.matchmaking.make import make_matchmaker
from populations.pbt.make import make_exploit, make_explore
from populations.records import aggregates, rows
from populations.records.aggregates import Row
from populations.records.tables import Tables
from populations.storage.store import Retention
from populations.thinning.make import make_thinning


class ControllerState(Struct, kw_only=True):
    """Everything the controller knows.

    Durable are ``tables`` (equal to the journal after each commit) and ``league``, which reads
    them. The other parts are not durable and begin anew with each epoch.

    Attributes:
        settings: Configuration and rules that the run was started with.
        tables: The journal's rows.
        league: Players and results, as the rows have them.
        indexes: Indexes over the rows, for queries that are made often.
        fits: Fits of ratings.
        crew: Learners, their assignments, and the episodes in flight that they hold.
        phase: Phase of the epoch, and the reason why it ends.
        blame: Failures of assignments, whose fault they are, and the pause that they lead to.
        measured: Times of matches, alerts, and points of curves.
    """

    settings: Settings
    tables: Tables
    league: League
    indexes: Indexes
    fits: Fits
    crew: Crew
    phase: Phase
    blame: Blame
    measured: Measured

    def begin(self, now: Now) -> Transaction:
        """Return a new transaction; each row that is put into it updates the indexes at once."""
        self.tables.begin()
        return Transaction(
            tables=self.tables,
            index=self.indexes.apply,
            now=now,
            seed=self.settings.config.seed,
        )


def _patience(config: RunConfig) -> Patience:
    if config.launcher != "ray":
        return Patience()
    return Patience(liveness_s=CLUSTER_LIVENESS_S)


def _measured(
    settings: Settings, tables: Tables, phase: Phase, *, episode_length: float
) -> Measured:
    return Measured(
        settings=settings,
        tables=tables,
        phase=phase,
        match_times=MatchTimes(
            # Records count a match once for each seat, so their sum is divided by the seats.
            matches=sum(row.matches for row in tables.records.values()) / len(settings.setup.seats),
            seconds=tables.run.evaluation_s + tables.run.extra_evaluation_s,
        ),
        alerts=resumed(tables.alerts.values(), fail=settings.config.alerts.fail),
        curves=Curves({name: row.num_tallies for name, row in tables.ratings.items()}),
        # Shares of training and evaluation in this epoch are measured from these totals on.
        spent_before_s=(tables.run.training_s, tables.run.evaluation_s),
        episode_length=episode_length,
    )


def make_state(
    config: RunConfig,
    setup: LearnerSetup,
    tables: Tables,
    *,
    patience: Patience | None = None,
    initial_weights: dict[str, WeightsRef] | None = None,
    imported: Mapping[str, WeightsRef] | None = None,
    immigrants: Mapping[str, WeightsRef] | None = None,
    store: Digest | None = None,
    measured_length: float = 0.0,
    versions: Mapping[str, str] | None = None,
) -> ControllerState:
    """Return the controller of a run, from its configuration and its journal's rows."""
    directory = setup.launch_directory
    pbt = {name: config.pbt_of(name) for name in config.populations}
    settings = Settings(
        config=config,
        setup=setup,
        matchmaker=make_matchmaker(
            config.matchmaking, window=config.ghosts.window, launch_directory=directory
        ),
        external_players=external_players(config, imported or {}),
        exploit={name: make_exploit(one, launch_directory=directory) for name, one in pbt.items()},
        thinning=make_thinning(config.ghosts.thinning, config.ghosts, launch_directory=directory),
        explore={name: make_explore(one, launch_directory=directory) for name, one in pbt.items()},
        scheduled={name: section.scheduled for name, section in config.populations.items()},
        initial_weights=initial_weights or {},
        immigrants=immigrants or {},
        store=store,
        versions=versions or {},
    )
    league = _league(config, setup, tables)
    fits = Fits(league)
    crew = Crew(patience=patience or _patience(config), slots=make_slots(config))
    phase = Phase(crew=crew)
    return ControllerState(
        settings=settings,
        tables=tables,
        # League and indexes are computed from the rows, so they are not stored.
        league=league,
        indexes=Indexes(
            fits=fits,
            setup=setup,
            limit=config.stop.agent_steps_per_policy,
            retention=Retention(tables, config.checkpoints),
            goals=StopGoals(config.stop.player, repeats_games=setup.repeats_games),
        ),
        fits=fits,
        crew=crew,
        phase=phase,
        blame=Blame(
            patience=crew.patience,
            # In deterministic mode the duration of an assignment is not known.
            least_s=0.0 if config.deterministic else config.assignment.target_s,
        ),
        measured=_measured(settings, tables, phase, episode_length=measured_length),
    )


def external_players(
    config: RunConfig, weights: Mapping[str, WeightsRef]
) -> dict[str, tuple[ExternalPlayer, ...]]:
    """Return the external players (bots and imported policies) by population that they play for.

    Args:
        config: Configuration that names them. Bots play for every population.
        weights: Weights of the imported policies, by `external_player_key`.
    """
    found: dict[str, tuple[ExternalPlayer, ...]] = {}
    for population, section in config.populations.items():
        external = []
        # A population's ``player`` has all of its agents, so no other one plays them in training.
        only = section.player
        shares = config.matchmaking.bots if only is None else {only: 1.0}
        for index, name in enumerate(config.external_players):
            share = shares.get(name, 0.0)
            is_rated = name in (only, *config.evaluation.bots)
            own = weights.get(external_player_key(index, population))
            if (share or is_rated) and (own is not None or is_bot(name)):
                player = external_player_id(name)
                external.append(
                    ExternalPlayer(player=player, share=share, weights=own, is_rated=is_rated)
                )
        found[population] = tuple(external)
    return found


def _league(config: RunConfig, setup: LearnerSetup, tables: Tables) -> League:
    return League(
        tables,
        seats=setup.seats,
        half_life_matches=config.payoffs.half_life_matches,
        mixes_teammates=bool(setup.agent_seats),
        repeats_games=setup.repeats_games,
    )


class Indexes:
    """Indexes over the journal's rows, for queries that are made often; updated as rows change.

    Attributes:
        fits: Fits of ratings.
        league: Players and results.
        tables: The journal's rows.
        retention: Which rows need which checkpoints.
        opponent_pools: Possible opponents of each population, in columns.
        training_queue: Policies in the order in which they train next, least trained first.
        members: Policies with the measurements that PBT compares.
        strengths: Ratings of players and their uncertainty.
        pending_matches: Evaluation matches that ratings do not cover yet.
        goals: Measurements that goals of ``stop`` need.
        rated_pins: Checkpoints that are retained because of their rating.
    """

    def __init__(
        self,
        *,
        fits: Fits,
        setup: LearnerSetup,
        limit: int | None,
        retention: Retention,
        goals: StopGoals,
    ) -> None:
        """Build the indexes from the rows in the tables, which a resumed run has from the start.

        Args:
            fits: Fits of ratings.
            setup: Setup of learners.
            limit: Agent steps at which a policy stops training; None: there is no limit.
            retention: Which rows need which checkpoints.
            goals: Measurements that goals of ``stop`` need.
        """
        self.fits = fits
        self.league = fits.league
        self.tables = fits.league.tables
        self.retention = retention
        self.opponent_pools = OpponentPools(self.tables)
        self.training_queue = TrainingQueue(self.tables, limit=limit)
        self.members = MemberIndex(self.league)
        self.strengths = StrengthIndex(self.league)
        self.pending_matches = PendingMatches(
            seats=setup.seats,
            ranked=setup.ranked_populations,
            checkpoints=self.tables.checkpoints,
        )
        self.goals = goals
        self.rated_pins = RatedPins()
        # The previous epoch may have left evaluations open.
        for row in self.tables.assignments.values():
            self._apply_evaluation(row)

    def apply(self, row: Row) -> None:
        """Update every index over the journal's rows by a row that was put into the tables.

        Nothing else updates them, so this lists which index depends on which rows. Results are
        missing: `League.add_tally` puts those of a tally into the tables and the league itself.
        """
        match row:
            case rows.PolicyRow():
                self.opponent_pools.apply(row)
                self.training_queue.apply(row)
                self.members.apply(row)
                self.strengths.apply(row)
                self.retention.apply(row)
            case rows.CheckpointRow():
                # A cached standing whose search ended at these weights may now reach their parent.
                self.league.forget_standing(row.weights_digest)
                self.retention.apply(row)
            case rows.GhostRow():
                self.opponent_pools.apply(row)
                self.strengths.apply(row)
                self.retention.apply(row)
            case rows.GameRow():
                self.retention.apply(row)
            case rows.AssignmentRow():
                self.training_queue.apply(row)
                self.goals.add_assignment(row)
                self._apply_evaluation(row)
                self.retention.apply(row)
            case aggregates.RecordRow():
                self.members.apply(row)
                self.retention.apply(row)
            case rows.TallyRow():
                self.goals.add_tally(row, self.league.checkpoints)
            case rows.Deletion(row=(rows.GhostRow() | rows.GameRow()) as gone):
                self.retention.release(gone)
            case rows.Deletion(row=rows.CheckpointRow()):
                self.pending_matches.forget_lines()
            case _:
                pass  # the league makes rows of pairs; `Fits.end` takes ratings with their spreads

    def _apply_evaluation(self, row: rows.AssignmentRow) -> None:
        num_tallies = self.tables.num_tallies
        self.pending_matches.apply(row, num_tallies=num_tallies, estimate=self.fits.estimate)
