"use strict";
// Life of a page: charts, local times, copying, and new content while somebody looks.
(function () {
  function localTimes(root) {
    for (const element of root.querySelectorAll("time[datetime]")) {
      const time = new Date(element.dateTime);
      if (!Number.isNaN(time.getTime())) {
        element.title = time.toLocaleString() + " here";
      }
    }
  }

  function dress(root) {
    localTimes(root);
    window.arenaCharts.drawAll(root);
  }

  document.addEventListener("click", function (event) {
    const button = event.target.closest("button.copy");
    if (button && navigator.clipboard) {
      navigator.clipboard.writeText(button.dataset.line).then(function () {
        button.textContent = "copied";
      }, function () {
        button.textContent = "no clipboard";
      });
    }
  });

  // --- new content: asked for while the page is visible, and drawn only where it differs.
  const pollS = Number(document.body.dataset.pollS);
  let timer = null;
  let etag = null;

  function schedule() {
    window.clearTimeout(timer);
    const wait = Number(document.body.dataset.pollS);
    if (wait > 0 && !document.hidden) {
      timer = window.setTimeout(look, wait * 1000);
    }
  }

  function say(text) {
    document.getElementById("freshness").textContent = text;
  }

  function openDetails() {
    return Array.from(document.querySelectorAll("details[open]"), (one) => one.id);
  }

  function replace(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const opened = openDetails();
    const focused = document.activeElement && document.activeElement.id;
    const main = document.getElementById("main");
    window.arenaCharts.clearAll(main);
    document.querySelector("header .run").replaceWith(fresh.querySelector("header .run"));
    // Fields that a reader fills in stay as they are.
    const form = main.querySelector("form");
    main.replaceChildren(...fresh.getElementById("main").childNodes);
    if (form && main.querySelector("form")) {
      main.querySelector("form").replaceWith(form);
    }
    for (const id of opened) {
      const details = document.getElementById(id);
      if (details) {
        details.open = true;
      }
    }
    document.body.dataset.pollS = fresh.body.dataset.pollS;
    dress(main);
    if (focused && document.getElementById(focused)) {
      document.getElementById(focused).focus({ preventScroll: true });
    }
  }

  async function look() {
    try {
      const headers = etag ? { "If-None-Match": etag } : {};
      // no-store: the browser's own cache would hide the 304.
      const answer = await fetch(window.location.href, { headers: headers, cache: "no-store" });
      if (answer.status === 200) {
        const isFirst = etag === null;
        etag = answer.headers.get("ETag");
        const text = await answer.text();
        // A reader who marks text does not lose it.
        if (isFirst || window.getSelection().isCollapsed) {
          replace(text);
        }
        say("updated " + new Date().toLocaleTimeString());
      } else if (answer.status !== 304) {
        say("the server answers " + answer.status);
      }
    } catch (error) {
      say("the server does not answer; it is asked again");
    }
    schedule();
  }

  document.addEventListener("visibilitychange", function () {
    if (document.hidden) {
      window.clearTimeout(timer);
    } else if (pollS > 0) {
      look();
    }
  });

  let resized = null;
  window.addEventListener("resize", function () {
    window.clearTimeout(resized);
    resized = window.setTimeout(() => window.arenaCharts.drawAll(document), 150);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", function () {
    window.arenaCharts.drawAll(document);
  });
  // A table that an address points into is folded open.
  function unfold() {
    const target = window.location.hash && document.getElementById(window.location.hash.slice(1));
    const details = target && target.closest("details");
    if (details) {
      details.open = true;
      target.scrollIntoView();
    }
  }
  window.addEventListener("hashchange", unfold);

  dress(document);
  unfold();
  schedule();
})();
