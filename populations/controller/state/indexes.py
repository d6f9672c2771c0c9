"""All indexes over the journal's rows, and which rows feed which of them."""

from __future__ import annotations

from arena.config import LearnerSetup
from populations.controller.indexes.opponent_pool import OpponentPools
from populations.controller.indexes.pbt_members import MemberIndex
from populations.controller.indexes.pending_evaluations import PendingMatches
from populations.controller.indexes.player_strengths import StrengthIndex
from populations.controller.indexes.rated_pins import RatedPins
from populations.controller.indexes.stop_goals import StopGoals
from populations.controller.indexes.training_queue import TrainingQueue
from populations.controller.state.fits import Fits
from populations.records import aggregates, rows
from populations.records.aggregates import Row
from populations.storage.retention import Retention


class Indexes:
    """Answers to hot questions, kept as rows change. They begin with the rows of a resume.

    Attributes:
        fits: Fits of ratings.
        league: Players and results.
        tables: The journal's rows.
        retention: Which checkpoints are needed by what; a fold of the rows too.
        opponent_pools: Possible opponents, in columns.
        training_queue: Policies by how little they have trained.
        members: Policies as PBT sees them.
        strengths: Ratings of players and how sure they are.
        pending_matches: Evaluation matches that ratings do not cover.
        goals: Measurements that goals of ``stop`` ask for.
        rated_pins: Checkpoints that stay because of their rating.
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
        """Begin with the rows of a resume.

        Args:
            fits: Fits of ratings.
            setup: Setup of learners.
            limit: Agent steps from which on no policy trains; None: there is no end.
            retention: Which checkpoints are needed by what.
            goals: Measurements that goals of ``stop`` ask for.
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
        # Evaluations that the epoch before has left open.
        for row in self.tables.assignments.values():
            self._apply_evaluation(row)

    def apply(self, row: Row) -> None:
        """Feed every index over the journal's rows with a row that was put into the tables.

        Nothing else feeds them, so this is the list of what depends on which rows. Results are not
        on it: the league puts those of tallies into the tables itself (`League.add_tally`).
        """
        match row:
            case rows.PolicyRow():
                self.opponent_pools.apply(row)
                self.training_queue.apply(row)
                self.members.apply(row)
                self.strengths.apply(row)
                self.retention.apply(row)
            case rows.CheckpointRow():
                # Walks for a standing that ended here may now go on to its parent.
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
                pass  # the league makes pairs; ratings come with spreads that no row has

    def _apply_evaluation(self, row: rows.AssignmentRow) -> None:
        num_tallies = self.tables.num_tallies
        self.pending_matches.apply(row, num_tallies=num_tallies, estimate=self.fits.estimate)
