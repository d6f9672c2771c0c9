// Steps of a game, one at a time: a bar, keys, and play. Without this script all are shown.
"use strict";

(() => {
  const steps = [...document.querySelectorAll('section[id^="step-"]')];
  if (steps.length < 2) return;
  const last = steps.length - 1;
  const SECONDS = { slow: 2, normal: 1, fast: 0.25 };
  let at = 0;
  let timer = 0;

  const make = (tag, fields, ...children) => {
    const made = Object.assign(document.createElement(tag), fields);
    made.append(...children);
    return made;
  };
  const button = (text, title, act) => {
    const made = make("button", { type: "button", textContent: text, title, onclick: act });
    made.setAttribute("aria-label", title);
    return made;
  };
  const bar = make("input", { type: "range", min: 0, max: last, value: 0, step: 1 });
  bar.setAttribute("aria-label", "Step");
  const speed = make("select", {}, ...Object.keys(SECONDS).map((name) => make("option", { textContent: name })));
  speed.value = "normal";
  speed.setAttribute("aria-label", "Speed");
  const said = make("span", { className: "step-number" });
  said.setAttribute("role", "status");
  const play = button("Play", "Play", () => (timer ? stop() : start()));

  const show = (index, isChosen = true) => {
    at = Math.min(Math.max(index, 0), last);
    steps.forEach((step, place) => { step.hidden = place !== at; });
    bar.value = at;
    const isTurn = steps[at].classList.contains("alert");
    said.textContent = `Step ${at} of ${last}${isTurn ? ", where the game turned" : ""}`;
    bar.setAttribute("aria-valuetext", said.textContent);
    if (isChosen) history.replaceState(null, "", `#step-${at}`);
    if (at === last) stop();
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
    play.setAttribute("aria-label", "Play");
  };
  const start = () => {
    if (at === last) show(0);
    timer = setInterval(() => show(at + 1), 1000 * SECONDS[speed.value]);
    play.textContent = "Pause";
    play.setAttribute("aria-label", "Pause");
  };
  const jump = (index) => { stop(); show(index); };

  bar.oninput = () => jump(Number(bar.value));
  speed.onchange = () => { if (timer) { stop(); start(); } };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (["INPUT", "SELECT", "TEXTAREA", "BUTTON", "SUMMARY", "A"].includes(event.target.tagName) &&
        event.key === " ") return;
    const keys = {
      ArrowLeft: () => jump(at - 1), ArrowRight: () => jump(at + 1),
      Home: () => jump(0), End: () => jump(last), " ": () => (timer ? stop() : start()),
    };
    // The bar and the choice of speed have keys of their own.
    if (!(event.key in keys) || event.target === speed || event.target === bar) return;
    event.preventDefault();
    keys[event.key]();
  });

  const controls = make("div", { className: "steps" },
    button("First", "First step", () => jump(0)), button("\u25C0", "Step back", () => jump(at - 1)), play,
    button("\u25B6", "Step on", () => jump(at + 1)), bar, speed, said);
  controls.setAttribute("role", "group");
  controls.setAttribute("aria-label", "Steps of the game");
  steps[0].before(controls);
  const named = Number(/^#step-(\d+)$/.exec(location.hash)?.[1]);
  show(Number.isInteger(named) ? named : 0, false);
  window.addEventListener("hashchange", () => {
    const found = /^#step-(\d+)$/.exec(location.hash);
    if (found) jump(Number(found[1]));
  });
})();
