// Leduc poker for two, as arena/envs/batched/leduc_poker.py has it: six cards of three ranks, two
// rounds, a public card in the second.

const FOLD = 0, CALL = 1, RAISE = 2, RAISE_BY = [2, 4], MAX_RAISES = 2, PUBLIC = 2;

// The betting after all actions so far, of both agents.
function follow(bets) {
  const rounds = [[]], paid = [1, 1];
  let turn = 0, folded = null;
  for (const action of bets) {
    if (action === FOLD) {
      folded = turn;
      break;
    }
    // A call matches the larger payment, a raise adds to it.
    paid[turn] = Math.max(...paid) + (action === RAISE ? RAISE_BY[rounds.length - 1] : 0);
    const round = rounds[rounds.length - 1];
    round.push(action);
    turn = 1 - turn;
    // A call ends a round unless it opens it.
    if (action === CALL && round.length > 1) {
      rounds.push([]);
      turn = 0;
    }
  }
  return { rounds, paid, turn, folded };
}

// A pair beats everything, then the higher rank.
function strength(card, shared) {
  return Math.floor(card / 2) + (card >> 1 === shared >> 1 ? 3 : 0);
}

// What agent 0 wins; null: the game goes on.
function winnings(cards, { rounds, paid, folded }) {
  if (folded !== null) {
    return folded === 1 ? paid[1] : -paid[0];
  }
  const [mine, theirs] = [0, 1].map((agent) => strength(cards[agent], cards[PUBLIC]));
  return rounds.length > 2 ? paid[0] * Math.sign(mine - theirs) : null;
}

const GAME = {
  actions: ["fold", "call", "raise"],
  sides: ["first", "second"],
  what: "fold, call or raise",
  across: 1,
  deck: 6,
  start: (cards) => startCards(cards.slice(0, 3)),
  legal({ bets }) {
    const { rounds, paid, turn } = follow(bets), raises = rounds[rounds.length - 1].filter((bet) => bet === RAISE);
    return [paid[turn] < Math.max(...paid), true, raises.length < MAX_RAISES];
  },
  step(position, action) {
    const betting = follow([...position.bets, action]);
    return withBet(position, action, { turn: betting.turn, won: winnings(position.cards, betting) });
  },
  // The agent (2), its card (6), the public one (6), the bets (2 rounds of 4, call or raise).
  observe({ cards, bets, turn }) {
    const { rounds } = follow(bets), shared = rounds.length > 1 ? [8 + cards[PUBLIC]] : [];
    const placed = rounds.flatMap((round, number) => round.map((bet, at) => 14 + 2 * (4 * number + at) + Number(bet === RAISE)));
    return oneHots(30, [turn, 2 + cards[turn], ...shared, ...placed]);
  },
  draw(position, person) {
    const { rounds, paid } = follow(position.bets), { INK, RED } = CHAMPION.colours;
    const cardOf = (card) => ({ face: "JQK"[card >> 1], colour: card % 2 ? RED : INK });
    const hands = handsOf(position, person, paid, cardOf);
    hands.push(["public card", rounds.length > 1 ? cardOf(position.cards[PUBLIC]) : null]);
    const facts = rounds.filter((round) => round.length).map((round, number) =>
      `round ${number + 1}: ${round.map((bet) => GAME.actions[bet]).join(", ")}`);
    return drawHands(hands, facts);
  },
  order: [FOLD, CALL, RAISE],
};
