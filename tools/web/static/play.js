"use strict";
// A game of a person: the board, legal moves as buttons, and what else can be asked for.
(function () {
  const SVG = "http://www.w3.org/2000/svg";
  const main = document.getElementById("main");
  const address = location.pathname;
  const MOST_SLOTS = 12;
  let state = null, chosen = [], slots = [], isBusy = false;

  function make(tag, fields, ...children) {
    const made = Object.assign(document.createElement(tag), fields);
    made.append(...children);
    return made;
  }

  function button(text, act, className) {
    return make("button", { type: "button", textContent: text, onclick: act, className: className || "" });
  }

  const heading = main.querySelector("h1");
  const about = make("p", { className: "about" });
  const status = make("p", { className: "said" });
  status.setAttribute("role", "status");
  const board = make("figure", { className: "picture board" });
  const moves = make("fieldset", { className: "moves" });
  const advice = make("p", { className: "advice" });
  advice.setAttribute("role", "status");
  const hint = button("Hint", () => ask({ do: "hint" }));
  const think = button("What would it play?", () => ask({ do: "think" }));
  const undo = button("Undo", () => ask({ do: "undo" }));
  const save = make("a", { textContent: "Save", href: `${address}/game.json`, download: "game.json" });
  const tools = make("p", { className: "more tools" }, hint, think, undo, save);
  const keys = make("p", { className: "about" });
  main.append(make("div", { className: "play" }, board, make("div", {}, about, status, moves, tools, advice, keys)));

  async function ask(wanted) {
    if (isBusy) {
      return;
    }
    isBusy = true;
    main.setAttribute("aria-busy", "true");
    const focused = document.activeElement;
    const name = moves.contains(focused) ? focused.textContent : null;
    let answer = null;
    try {
      answer = await fetch(`${address}/do`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ steps: state && state.steps, ...wanted }),
      });
    } catch (error) {
      end("The server does not answer: has the command ended?");
      return;
    } finally {
      isBusy = false;
      main.removeAttribute("aria-busy");
    }
    if (!answer.ok) {
      end(await answer.text());
      return;
    }
    state = await answer.json();
    chosen = [];
    show(wanted);
    if (name !== null) {
      // Where the button of the last move was, there is the same one, or the first.
      const buttons = [...moves.querySelectorAll("button:enabled, input")];
      (buttons.find((one) => one.textContent === name) || buttons[0] || undo).focus();
    }
  }

  function end(text) {
    state = null;
    status.textContent = text;
    moves.hidden = tools.hidden = true;
    board.querySelectorAll(".cell").forEach((one) => one.remove());
  }

  function show(wanted) {
    heading.textContent = document.title = `${state.agent} against ${state.player}`;
    about.textContent = `${state.environment}: you are ${state.agent}.`;
    const told = state.told.length ? `${state.told.join(", ")}. ` : "";
    status.textContent = state.refusal || (state.ending
      ? `${told}${state.ending[0].toUpperCase()}${state.ending.slice(1)}.`
      : `${told}Your move.`);
    status.classList.toggle("is-refusal", Boolean(state.refusal));
    const asked = wanted.do;
    advice.textContent = !state.answer ? "" : asked === "hint" ? `Hint: ${state.answer}` : `${state.answer[0].toUpperCase()}${state.answer.slice(1)}.`;
    draw();
    list(state.moves);
    undo.disabled = !state.undoes;
    hint.hidden = think.hidden = !state.advises;
    hint.disabled = think.disabled = Boolean(state.ending);
    mark(asked === "hint" ? state.answer : "");
  }

  function draw() {
    board.replaceChildren();
    board.hidden = false;
    if (state.svg) {
      const parsed = new DOMParser().parseFromString(state.svg, "image/svg+xml");
      board.append(document.importNode(parsed.documentElement, true));
      cells();
    } else if (state.png) {
      board.append(make("img", { src: `data:image/png;base64,${state.png}`, alt: `The game after ${state.steps} steps` }));
    } else if (state.text) {
      board.append(make("pre", { textContent: state.text, tabIndex: 0 }));
    } else {
      board.hidden = true;
    }
  }

  // Of a row below 0 the column alone counts.
  function matches(cell, [row, column]) {
    return cell === `${row},${column}` || (row < 0 && cell.endsWith(`,${column}`));
  }

  function begun(cell) {
    const wanted = [...chosen, cell];
    return state.moves.filter((move) => wanted.every((one, at) => move.cells.length > at && matches(one, move.cells[at])));
  }

  // Cells that can be pointed at lie above the board; whoever uses keys has the buttons.
  function cells() {
    const svg = board.querySelector("svg");
    svg.querySelectorAll(".cell").forEach((one) => one.remove());
    for (const square of svg.querySelectorAll("[data-cell]")) {
      const cell = square.dataset.cell;
      const isChosen = chosen.includes(cell);
      const isOpen = begun(cell).length || (chosen.length && state.moves.some((move) => move.cells.length && matches(cell, move.cells[0])));
      if (!isChosen && !isOpen) {
        continue;
      }
      const shape = document.createElementNS(SVG, "rect");
      const fields = { width: 100, height: 100, rx: 4, class: isChosen ? "cell is-chosen" : "cell", "data-open": cell };
      Object.entries(fields).forEach(([key, value]) => shape.setAttribute(key, value));
      shape.addEventListener("click", () => point(cell));
      square.append(shape);
    }
  }

  function point(cell) {
    let found = begun(cell);
    if (!found.length) {
      // Another piece than the chosen one, or the chosen one again.
      const isAgain = chosen.includes(cell);
      chosen = [];
      found = isAgain ? [] : begun(cell);
    }
    if (found.length) {
      chosen = [...chosen, cell];
    }
    const ready = found.filter((move) => move.cells.length === chosen.length);
    if (ready.length === 1) {
      play(ready[0].name);
      return;
    }
    cells();
    list(found.length ? found : state.moves);
    status.textContent = ready.length ? "Which of these moves?" : chosen.length ? "Where to?" : "Your move.";
  }

  function list(shown) {
    moves.replaceChildren(make("legend", { textContent: "Your move" }));
    moves.hidden = Boolean(state.ending);
    if (state.asks) {
      const typed = make("input", { type: "text", autocomplete: "off" });
      const label = make("label", {}, `${state.asks} `, typed);
      moves.append(make("form", { onsubmit: (event) => { event.preventDefault(); play(typed.value); } }, label, make("button", { textContent: "Play" })));
    } else {
      const names = shown.map((move) => move.name);
      // Where moves are few, a button stays where it is, as long as no other move comes up.
      const stay = shown === state.moves && slots.length <= MOST_SLOTS && names.every((name) => slots.includes(name));
      slots = stay ? slots : names;
      moves.append(...slots.map((name) => {
        const made = button(name, () => play(name));
        made.disabled = !names.includes(name);
        return made;
      }));
    }
    const isByKey = state.moves.length && state.moves.every((move) => move.name.length === 1);
    keys.textContent = isByKey ? "A move's key plays it." : "";
  }

  function mark(name) {
    moves.querySelectorAll("button").forEach((one) => one.classList.toggle("is-hint", one.textContent === name));
    const move = state.moves.find((one) => one.name === name);
    board.querySelectorAll(".cell").forEach((one) => {
      one.classList.toggle("is-hint", Boolean(move) && move.cells.some((cell) => matches(one.dataset.open, cell)));
    });
  }

  function play(name) {
    status.textContent = `You play ${name}.`;
    ask({ do: "move", move: name });
  }

  document.addEventListener("keydown", (event) => {
    const isTyped = event.ctrlKey || event.altKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (!isTyped && state && !state.ending && state.moves.some((move) => move.name === event.key)) {
      event.preventDefault();
      play(event.key);
    }
  });

  status.textContent = "The game is being set up.";
  moves.hidden = true;
  board.hidden = true;
  ask({ do: "look" });
})();
