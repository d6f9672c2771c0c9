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
        fits: Fits of ratings, whose league has the rows.
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
        self, *, fits: Fits, setup: LearnerSetup, retention: Retention, goals: StopGoals
    ) -> None:
        self.fits = fits
        self._league = fits.league
        self._tables = fits.league.tables
        self.retention = retention
        self.opponent_pools = OpponentPools()
        self.training_queue = TrainingQueue()
        self.members = MemberIndex()
        self.strengths = StrengthIndex()
        self.pending_matches = PendingMatches(
            seats=setup.seats,
            ranked=setup.ranked_populations,
            checkpoints=self._tables.checkpoints,
        )
        self.goals = goals
        self.rated_pins = RatedPins()
        # Evaluations that the epoch before has left open.
        for row in self._tables.assignments.values():
            self._apply_evaluation(row)

    def apply(self, row: Row) -> None:
        """Feed every index over the journal's rows with a row that was put into the tables.

        Nothing else feeds them, so this is the list of what depends on which rows. Results are not
        on it: the league puts those of tallies into the tables itself (`League.add_tally`).
        """
        match row:
            case rows.PolicyRow():
                self.opponent_pools.apply(row, self._tables)
                self.training_queue.apply(row, self._tables)
                self.members.apply(row)
                self.strengths.apply(row, teams=self._league.teams)
                self.retention.apply(row)
            case rows.CheckpointRow():
                # Walks for a standing that ended here may now go on to its parent.
                self._league.forget_standing(row.weights_digest)
                self.retention.apply(row)
            case rows.GhostRow():
                self.opponent_pools.apply(row, self._tables)
                self.strengths.apply(row, teams=self._league.teams)
                self.retention.apply(row)
            case rows.GameRow():
                self.retention.apply(row)
            case rows.AssignmentRow():
                self.training_queue.apply(row, self._tables)
                self.goals.add_assignment(row)
                self._apply_evaluation(row)
                self.retention.apply(row)
            case aggregates.RecordRow():
                self.members.apply(row)
                self.retention.apply(row)
            case rows.TallyRow():
                self.goals.add_tally(row, self._league.checkpoints)
            case rows.Deletion(row=(rows.GhostRow() | rows.GameRow()) as gone):
                self.retention.release(gone)
            case rows.Deletion(row=rows.CheckpointRow()):
                self.pending_matches.forget_lines()
            case _:
                pass  # the league makes pairs; ratings come with spreads that no row has

    def _apply_evaluation(self, row: rows.AssignmentRow) -> None:
        num_tallies = self._tables.num_tallies
        self.pending_matches.apply(row, num_tallies=num_tallies, estimate=self.fits.estimate)
