// A person against the champion. CHAMPION is what page.py writes; GAME is the game's own file.

const CHAMPION = JSON.parse(document.getElementById("champion").textContent);
for (const network of Object.values(CHAMPION.networks)) {
  network.weights = decodeWeights(network.weights);
}
// The weakest player first: the last one is the champion, who gives hints.
const PLAYERS = CHAMPION.players.map((player) => ({ ...player, network: CHAMPION.networks[player.network] }));
const CHAMPION_LEVEL = PLAYERS.length - 1;
const THINKING_MS = 350;

const at = (id) => document.getElementById(id);
const side = at("side"), level = at("level");
// Positions since the start of the game, what was said last, and the champion's move to come.
let game = [], hint = null, timer = 0;

const now = () => game[game.length - 1];
const person = () => Number(side.value);
const opponent = () => PLAYERS[Number(level.value)];
const them = () => (Number(level.value) === CHAMPION_LEVEL ? "The champion" : `Level ${Number(level.value) + 1}`);
const isMine = () => !now().outcome && now().turn === person();

function make(tag, fields, ...children) {
  const made = Object.assign(document.createElement(tag), fields);
  made.append(...children);
  return made;
}

function shuffled(count) {
  const cards = Array.from({ length: count }, (_, card) => card);
  for (let last = count - 1; last > 0; last--) {
    const other = Math.floor(Math.random() * (last + 1));
    [cards[last], cards[other]] = [cards[other], cards[last]];
  }
  return cards;
}

function begin() {
  game = [GAME.start(shuffled(GAME.deck || 0))];
  at("opponent").textContent = `Against ${them().toLowerCase()}: ${opponent().name}, rated ${opponent().rating}${opponent().temperature ? "" : "; it plays its likeliest move"}`;
  go(`A new game: you are ${GAME.sides[person()]}.`, `: choose ${GAME.what}`);
}

// Shows the position; where the champion is on turn, it moves soon.
function go(said, how = "") {
  clearTimeout(timer);
  hint = null;
  const { outcome } = now();
  if (outcome) {
    show(`${said} ${ending(outcome[person()])}`);
  } else if (isMine()) {
    show(`${said} Your move${how}.`);
  } else {
    show(`${said} ${them()} thinks.`);
    // What a game begins with stays to be read.
    timer = setTimeout(answer, THINKING_MS, game.length === 1 ? `${said} ` : "");
  }
}

function ending(won) {
  const by = Math.abs(won) === 1 ? "" : ` ${Math.abs(won)}`;
  return won > 0 ? `You win${by}.` : won < 0 ? `You lose${by}.` : "A draw.";
}

function answer(said) {
  const { network, temperature } = opponent(), position = now();
  const { logits } = judge(network, GAME.observe(position));
  const action = draw(probabilities(logits, GAME.legal(position), temperature));
  game.push(GAME.step(position, action));
  go(`${said}${them()}: ${GAME.actions[action]}.`);
}

function play(action) {
  if (!isMine()) {
    return;
  }
  if (GAME.legal(now())[action]) {
    game.push(GAME.step(now(), action));
    go(`You: ${GAME.actions[action]}.`);
  } else {
    at("said").textContent = `You cannot play ${GAME.actions[action]} now. Your move.`;
  }
}

// Back to the person's last decision before this one.
function undo() {
  const earlier = game.slice(0, -1).findLastIndex((position) => position.turn === person());
  if (earlier >= 0) {
    game = game.slice(0, earlier + 1);
    go("Taken back.");
  }
}

function ask() {
  if (!isMine()) {
    return;
  }
  const { logits, value } = judge(PLAYERS[CHAMPION_LEVEL].network, GAME.observe(now()));
  hint = probabilities(logits, GAME.legal(now()), 1);
  const likeliest = hint.indexOf(Math.max(...hint));
  const expects = value === null ? "" : ` It expects ${value.toFixed(2)} for you on average${UNIT}.`;
  show(`Hint: the champion would play ${GAME.actions[likeliest]} (${percent(hint[likeliest])}).${expects}`);
}

function percent(share) {
  return `${Math.round(100 * share)}%`;
}

const moves = GAME.order.map((action) => make("button", { type: "button", onclick: () => play(action) }));

function show(said) {
  const position = now(), { width, height, shapes, label } = GAME.draw(position, person());
  const drawing = at("board").querySelector("svg"), legal = GAME.legal(position);
  at("said").textContent = said;
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.setAttribute("aria-label", label);
  // As high as a screen that lies on its side has room for.
  at("board").style.maxWidth = `${(80 * width) / height}vh`;
  drawing.innerHTML = shapes;
  GAME.order.forEach((action, place) => {
    const move = moves[place], isLegal = isMine() && legal[action];
    const content = GAME.describe ? `, ${GAME.describe(position, action)}` : "";
    const chance = hint && legal[action] ? percent(hint[action]) : "";
    move.setAttribute("aria-label", `${GAME.actions[action]}${content}${chance && `, ${chance}`}`);
    move.setAttribute("aria-disabled", String(!isLegal));
    move.replaceChildren(...(GAME.spot ? [] : [`${GAME.actions[action]} `]));
    if (chance) {
      const isLikeliest = hint[action] === Math.max(...hint);
      move.append(make("span", { className: isLikeliest ? "chance likeliest" : "chance", textContent: chance }));
    }
    if (GAME.spot) {
      const [x, y, across, down] = GAME.spot(action);
      const parts = { left: x / width, top: y / height, width: across / width, height: down / height };
      Object.entries(parts).forEach(([key, share]) => { move.style[key] = `${100 * share}%`; });
      move.className = "on-board";
    }
  });
  at("undo").setAttribute("aria-disabled", String(!game.slice(0, -1).some((one) => one.turn === person())));
  at("hint").setAttribute("aria-disabled", String(!isMine()));
}

const STEPS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -GAME.across, ArrowDown: GAME.across };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "SELECT") {
    return;
  }
  const focused = moves.indexOf(document.activeElement);
  if (event.key in STEPS && focused >= 0) {
    event.preventDefault();
    moves[focused + STEPS[event.key]]?.focus();
  } else if (GAME.order[Number(event.key) - 1] !== undefined) {
    play(GAME.order[Number(event.key) - 1]);
  } else {
    ({ n: begin, u: undo, h: ask })[event.key]?.();
  }
});

GAME.sides.forEach((name, agent) => {
  const order = agent ? "second" : "first", text = name === order ? name : `${name}, ${order}`;
  if (CHAMPION.agents.includes(1 - agent)) {
    side.append(make("option", { value: agent, textContent: text }));
  }
});
PLAYERS.forEach((_, number) => {
  const note = number === CHAMPION_LEVEL ? ", the champion" : "";
  level.append(make("option", { value: number, textContent: `${number + 1}${note}` }));
});
level.value = CHAMPION_LEVEL;
at("levels").hidden = PLAYERS.length === 1;
at("about").textContent = CHAMPION.about;
at("keys").textContent = `Keys: 1 to ${GAME.order.length} to move, n new game, u undo, h hint.`;
at("moves").append(...moves);
at("new").onclick = begin;
at("undo").onclick = undo;
at("hint").onclick = ask;
side.onchange = level.onchange = (event) => {
  // Keys are moves again.
  event.target.blur();
  begin();
};
begin();
