"use strict";
// Steps of a game, one at a time: a bar, keys, and play. Without this script all are shown.
(function () {
  const SECONDS = { slow: 2, normal: 1, fast: 0.25 };
  // What keys act on: the game of the page, which may come after the page itself.
  let game = null;

  function make(tag, fields, ...children) {
    const made = Object.assign(document.createElement(tag), fields);
    made.append(...children);
    return made;
  }

  function labelled(label, made) {
    made.setAttribute("aria-label", label);
    return made;
  }

  function button(text, label, act) {
    return labelled(label, make("button", { type: "button", textContent: text, title: label, onclick: act }));
  }

  function gameOf(steps) {
    const last = steps.length - 1;
    let at = 0, timer = 0;
    const bar = labelled("Step", make("input", { type: "range", min: 0, max: last, value: 0, step: 1 }));
    const names = Object.keys(SECONDS).map((name) => make("option", { textContent: name }));
    const speed = labelled("Speed", make("select", {}, ...names));
    speed.value = "normal";
    const said = make("span", { className: "step-number" });
    said.setAttribute("role", "status");
    const play = button("Play", "Play", () => (timer ? stop() : start()));

    function show(index, isChosen) {
      at = Math.min(Math.max(index, 0), last);
      steps.forEach((step, place) => { step.hidden = place !== at; });
      bar.value = at;
      const isTurn = steps[at].classList.contains("alert");
      said.textContent = `Step ${at} of ${last}${isTurn ? ", where the game turned" : ""}`;
      bar.setAttribute("aria-valuetext", said.textContent);
      if (isChosen) {
        history.replaceState(null, "", `#step-${at}`);
      }
      if (at === last) {
        stop();
      }
    }

    function stop() {
      clearInterval(timer);
      timer = 0;
      play.textContent = play.title = "Play";
      play.setAttribute("aria-label", "Play");
    }

    function start() {
      if (at === last) {
        show(0, true);
      }
      timer = setInterval(() => show(at + 1, true), 1000 * SECONDS[speed.value]);
      play.textContent = play.title = "Pause";
      play.setAttribute("aria-label", "Pause");
    }

    function jump(index) {
      stop();
      show(index, true);
    }

    bar.oninput = () => jump(Number(bar.value));
    speed.onchange = () => {
      if (timer) {
        stop();
        start();
      }
    };
    const controls = make("div", { className: "steps" },
      button("First", "First step", () => jump(0)), button("\u25C0", "Step back", () => jump(at - 1)), play,
      button("\u25B6", "Step on", () => jump(at + 1)), bar, speed, said);
    controls.setAttribute("role", "group");
    steps[0].before(labelled("Steps of the game", controls));
    return {
      // The bar and the choice of speed have keys of their own.
      own: [bar, speed],
      show,
      jump,
      keys: {
        ArrowLeft: () => jump(at - 1),
        ArrowRight: () => jump(at + 1),
        Home: () => jump(0),
        End: () => jump(last),
        " ": () => (timer ? stop() : start()),
      },
    };
  }

  function named() {
    const found = /^#step-(\d+)$/.exec(location.hash);
    return found ? Number(found[1]) : null;
  }

  function begin() {
    const steps = [...document.querySelectorAll('section[id^="step-"]')];
    if (steps.length > 1 && !document.querySelector(".steps")) {
      game = gameOf(steps);
      game.show(named() ?? 0, false);
    }
  }

  document.addEventListener("keydown", function (event) {
    const act = game && !event.ctrlKey && !event.metaKey && !event.altKey && game.keys[event.key];
    const presses = ["BUTTON", "SUMMARY", "A", "INPUT", "SELECT"].includes(event.target.tagName);
    if (act && !game.own.includes(event.target) && !(event.key === " " && presses)) {
      event.preventDefault();
      act();
    }
  });
  window.addEventListener("hashchange", function () {
    if (game && named() !== null) {
      game.jump(named());
    }
  });
  document.addEventListener("content", begin);
  begin();
})();
