"use strict";
// Charts of a page: Vega-Lite specifications that lie beside their elements, drawn without eval.
window.arenaCharts = (function () {
  const drawn = new Map();
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);

  function style(name) {
    return window.getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function theme() {
    const front = style("--front");
    const quiet = style("--quiet");
    const line = style("--line");
    return {
      background: "transparent",
      font: "system-ui, sans-serif",
      axis: { labelColor: quiet, titleColor: quiet, domainColor: line, tickColor: line, labelFontSize: 12, titleFontSize: 12 },
      axisQuantitative: { grid: true, gridColor: line },
      axisNominal: { labelColor: front },
      legend: { labelColor: front, titleColor: quiet, symbolFillColor: quiet, labelFontSize: 12, titleFontSize: 12 },
      text: { color: front, fontSize: 12 },
    };
  }

  // What a mark is about, beside the pointer; values are text, whatever they contain.
  function tell(handler, event, item, value) {
    tip.hidden = !value;
    if (value) {
      tip.textContent = Object.entries(value).map(([key, one]) => (key === "name" ? one : key + ": " + one)).join("\n");
      const room = document.documentElement.clientWidth - tip.offsetWidth - 4;
      tip.style.left = Math.max(4, Math.min(event.clientX + 12, room)) + "px";
      tip.style.top = event.clientY + 14 + "px";
    }
  }

  function follow(event, item) {
    if (item && item.datum && item.datum.href) {
      window.location.href = item.datum.href;
    }
  }

  async function draw(element) {
    const spec = JSON.parse(element.parentElement.querySelector("script").textContent);
    const colours = spec.config.params[0].value;
    for (const name of Object.keys(colours)) {
      colours[name] = style("--colour-" + name);
    }
    clear(element);
    const options = {
      mode: "vega-lite", renderer: "svg", ast: true, actions: false, defaultStyle: false, tooltip: tell, config: theme(),
    };
    const made = window.vegaEmbed(element, spec, options);
    drawn.set(element, made);
    (await made).view.addEventListener("click", follow);
    // The element has the label; each mark would be a picture without one.
    const picture = element.querySelector("svg");
    if (picture) {
      picture.setAttribute("aria-hidden", "true");
    }
  }

  function clear(element) {
    const made = drawn.get(element);
    drawn.delete(element);
    if (made) {
      made.then((one) => one.finalize());
    }
  }

  // What is drawn as a file of its own: with the look that it has here, and nothing of the page.
  function save(figure, name) {
    const shown = figure.querySelector("svg");
    const { width, height } = shown.getBoundingClientRect();
    const room = window.getComputedStyle(shown.parentElement);
    const left = parseFloat(room.paddingLeft), whole = width + left + parseFloat(room.paddingRight);
    const place = `<svg x="${left}" width="${width}" height="${height}" overflow="visible"`;
    const drawing = new XMLSerializer().serializeToString(shown)
      .replace(/^<svg[^>]*>/, (tag) => tag.replace(/ (width|height|style)="[^"]*"/g, "").replace("<svg", place))
      // Links lead to pages, and colours of an area to this page.
      .replace(/<a href="[^"]*"/g, "<a").replace(/="url\([^()#"]*#/g, '="url(#');
    const file = `<svg xmlns="http://www.w3.org/2000/svg" width="${whole}" height="${height}" color="var(--front)" font-family="system-ui, sans-serif">` +
      `<rect width="${whole}" height="${height}" fill="var(--back)"/>${drawing}</svg>`;
    const content = file.replace(/="var\((--[a-z0-9-]+)\)"/g, (all, one) => `="${style(one)}"`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([content], { type: "image/svg+xml" }));
    link.download = name + ".svg";
    link.click();
    window.setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function savable(row) {
    const figure = row.previousElementSibling;
    const label = figure.querySelector(".chart").getAttribute("aria-label");
    const name = label.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 80);
    const button = document.createElement("button");
    button.id = name + "-picture";
    button.textContent = "SVG";
    button.setAttribute("aria-label", "SVG of " + label);
    button.addEventListener("click", () => save(figure, name));
    row.append(button);
  }

  function drawAll(root) {
    for (const element of root.querySelectorAll(".chart[data-kind=vega]")) {
      draw(element);
    }
    root.querySelectorAll(".taken:not(:has(button))").forEach(savable);
  }

  function clearAll(root) {
    tip.hidden = true;
    for (const element of root.querySelectorAll(".chart[data-kind=vega]")) {
      clear(element);
    }
  }

  return { drawAll: drawAll, clearAll: clearAll };
})();
