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

  // A table with a head is sorted by the column that is clicked, and filtered by a text.
  const FILTERED = 12;

  function worth(cell) {
    return cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
  }

  function sort(table, place, up) {
    const rows = Array.from(table.tBodies[0].rows);
    rows.sort(function (one, two) {
      const first = one.cells[place], second = two.cells[place];
      const difference = worth(first) - worth(second);
      const order = Number.isNaN(difference) ? first.textContent.localeCompare(second.textContent, undefined, { numeric: true }) : difference;
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows);
  }

  function sortable(table) {
    for (const head of table.tHead.rows[0].cells) {
      const button = document.createElement("button");
      button.className = "sort";
      button.append(...head.childNodes);
      button.addEventListener("click", function () {
        const up = head.getAttribute("aria-sort") === "descending";
        for (const one of table.tHead.rows[0].cells) {
          one.removeAttribute("aria-sort");
        }
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        sort(table, head.cellIndex, up);
      });
      head.append(button);
    }
  }

  function filterable(table) {
    const field = document.createElement("input");
    field.type = "search";
    field.placeholder = "filter rows";
    field.setAttribute("aria-label", "Filter rows");
    field.addEventListener("input", function () {
      const text = field.value.toLowerCase();
      for (const row of table.tBodies[0].rows) {
        row.hidden = !row.textContent.toLowerCase().includes(text);
      }
    });
    table.parentElement.before(field);
  }

  function dress(root) {
    localTimes(root);
    // What stands beside each other in two runs has its order.
    for (const table of root.querySelectorAll("table:not(.wrapped)")) {
      if (table.tHead && table.tBodies[0].rows.length > 1) {
        sortable(table);
      }
      if (table.tHead && table.tBodies[0].rows.length > FILTERED) {
        filterable(table);
      }
    }
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
    document.dispatchEvent(new Event("content"));
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
