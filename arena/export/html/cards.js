// What games of cards and bets share: two agents, whose cards are dealt at the start, hidden or not.

// What the average of a hint is in.
const UNIT = " chips";

function startCards(cards) {
  return { cards, bets: [], turn: 0, outcome: null };
}

// Zero-sum: what agent 0 wins, agent 1 loses.
function withBet(position, action, { turn, won }) {
  const bets = [...position.bets, action];
  return { cards: position.cards, bets, turn, outcome: won === null ? null : [won, 0 - won] };
}

// A row of zeros, with ones at some places.
function oneHots(size, places) {
  const row = Array(size).fill(0);
  places.forEach((at) => { row[at] = 1; });
  return row;
}

// Hands below each other, of a name and a card: a face, its colour, or null where it lies face down.
function drawHands(hands, facts) {
  const { BLUE, INK } = CHAMPION.colours;
  const drawn = hands.map(([name, card], at) => `<g transform="translate(14 ${88 * at})">
    <text class="name left" y="16">${name}</text>
    <rect y="24" width="42" height="56" rx="4" fill="${card ? "#ffffff" : BLUE}" stroke="${INK}"/>
    ${card ? `<text x="21" y="58" text-anchor="middle" font-size="18" fill="${card.colour}">${card.face}</text>` : ""}
  </g>`);
  const below = facts.map((fact, at) => `<text class="name left" x="14" y="${88 * hands.length + 18 + 22 * at}">${fact}</text>`);
  return {
    width: 360,
    height: 88 * hands.length + 22 * facts.length + 8,
    shapes: drawn.join("") + below.join(""),
    label: [...hands.map(([name, card]) => `${name}, ${card ? card.face : "face down"}`), ...facts].join("; "),
  };
}

// The hands of both agents, the person's first; the other's is shown at the end.
function handsOf(position, person, paid, cardOf) {
  return [person, 1 - person].map((agent) => [
    `${agent === person ? "you" : "the other"}: paid ${paid[agent]}`,
    agent === person || position.outcome ? cardOf(position.cards[agent]) : null,
  ]);
}
