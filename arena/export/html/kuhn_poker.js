// Kuhn poker for two, as arena/envs/batched/kuhn_poker.py has it: a pass, or a bet of 1 on an ante of 1.

const PASS = 0, BET = 1;

const GAME = {
  actions: ["pass", "bet"],
  sides: ["first", "second"],
  what: "pass or bet",
  across: 1,
  deck: 3,
  start: (cards) => startCards(cards.slice(0, 2)),
  legal: () => [true, true],
  step(position, action) {
    const bets = [...position.bets, action], shown = position.cards[0] > position.cards[1] ? 1 : -1;
    const ends = { "0,0": shown, "1,1": 2 * shown, "0,1,1": 2 * shown, "1,0": 1, "0,1,0": -1 };
    return withBet(position, action, { turn: bets.length % 2, won: ends[bets] ?? null });
  },
  // The agent (2), its card (3), and the bets (3 times 2).
  observe: ({ cards, bets, turn }) => oneHots(11, [turn, 2 + cards[turn], ...bets.map((bet, at) => 5 + 2 * at + bet)]),
  draw(position, person) {
    const paid = [0, 1].map((agent) => 1 + position.bets.filter((bet, at) => at % 2 === agent && bet === BET).length);
    const hands = handsOf(position, person, paid, (card) => ({ face: "JQK"[card], colour: CHAMPION.colours.INK }));
    return drawHands(hands, [`bets: ${position.bets.map((bet) => GAME.actions[bet]).join(", ") || "none"}`]);
  },
  order: [PASS, BET],
};
