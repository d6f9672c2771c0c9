"use strict";
// Drawings that plotly has not, or not without compiling code: the family tree, parallel coordinates.
window.arenaDrawings = (function () {
  const SVG = "http://www.w3.org/2000/svg";

  function add(parent, name, attributes, text) {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      element.setAttribute(key, value);
    }
    if (text !== undefined) {
      element.textContent = text;
    }
    parent.appendChild(element);
    return element;
  }

  function titled(element, text) {
    add(element, "title", {}, text);
    return element;
  }

  function canvas(element, width, height) {
    element.replaceChildren();
    return add(element, "svg", { width: width, height: height, viewBox: "0 0 " + width + " " + height });
  }

  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e6) { return (value / 1e6).toFixed(1).replace(/\.0$/, "") + "M"; }
    if (size >= 1e3) { return (value / 1e3).toFixed(0) + "k"; }
    return String(Number(value.toPrecision(3)));
  }

  // Gained Elo as a colour: orange lost, grey nothing, blue gained.
  function gainColour(gain, most) {
    if (gain === null) { return "#8b949e"; }
    const share = Math.min(1, Math.abs(gain) / (most || 1));
    return share < 0.05 ? "#8b949e" : gain > 0 ? (share > 0.5 ? "#0072B2" : "#56B4E9") : "#D55E00";
  }

  function tree(element, data) {
    const left = 64, right = 12, row = 30, top = 8;
    const width = Math.max(element.clientWidth, 340);
    const height = top + row * data.lanes.length + 30;
    const svg = canvas(element, width, height);
    const most = Math.max(1, data.end);
    const x = (steps) => left + (steps / most) * (width - left - right);
    const y = (lane) => top + row * lane + row / 2;
    const gains = data.segments.map((one) => Math.abs(one.gain || 0));
    const mostGain = Math.max(1, ...gains);
    for (let i = 0; i <= 4; i += 1) {
      const steps = (most * i) / 4;
      add(svg, "line", { x1: x(steps), x2: x(steps), y1: top, y2: height - 22, class: "axis" });
      add(svg, "text", { x: x(steps), y: height - 6, class: "quiet", "text-anchor": i === 4 ? "end" : i ? "middle" : "start" }, short(steps));
    }
    data.copies.forEach(function (copy) {
      const x1 = x(copy.begin), x2 = x(copy.at), y1 = y(copy.donor), y2 = y(copy.lane);
      titled(add(svg, "path", {
        d: "M" + x1 + "," + y1 + " C" + x1 + "," + y2 + " " + x2 + "," + y1 + " " + x2 + "," + y2,
        fill: "none", stroke: "#CC79A7", "stroke-width": 1.5, "stroke-dasharray": "4 3",
      }), copy.text);
    });
    data.segments.forEach(function (one) {
      const group = one.href ? add(svg, "a", { href: one.href }) : svg;
      titled(add(group, "line", {
        x1: x(one.begin), x2: Math.max(x(one.end), x(one.begin) + 2), y1: y(one.lane), y2: y(one.lane),
        stroke: gainColour(one.gain, mostGain), "stroke-width": 7,
      }), one.text);
      add(svg, "circle", { cx: x(one.begin), cy: y(one.lane), r: 3, fill: one.is_copy ? "#CC79A7" : "#8b949e" });
      if (one.gain !== null && x(one.end) - x(one.begin) > 38) {
        add(svg, "text", {
          x: (x(one.begin) + x(one.end)) / 2, y: y(one.lane) - 6, "text-anchor": "middle", class: "quiet",
        }, (one.gain > 0 ? "+" : "") + Math.round(one.gain));
      }
    });
    data.lanes.forEach(function (lane, index) {
      const group = lane.href ? add(svg, "a", { href: lane.href }) : svg;
      add(group, "text", { x: 0, y: y(index) + 4 }, lane.name);
    });
  }

  function position(axis, value) {
    if (axis.high === axis.low) { return 0.5; }
    return axis.log
      ? (Math.log(value) - Math.log(axis.low)) / (Math.log(axis.high) - Math.log(axis.low))
      : (value - axis.low) / (axis.high - axis.low);
  }

  function parallel(element, data) {
    const width = Math.max(element.clientWidth, 96 * data.axes.length), height = 320;
    const top = 40, bottom = 24, side = 52;
    const svg = canvas(element, width, height);
    const x = (i) => side + (i * (width - 2 * side)) / Math.max(1, data.axes.length - 1);
    const y = (axis, value) => height - bottom - position(axis, value) * (height - top - bottom);
    data.axes.forEach(function (axis, i) {
      add(svg, "line", { x1: x(i), x2: x(i), y1: top, y2: height - bottom, class: "axis" });
      const label = axis.name.length > 16 ? axis.name.slice(0, 15) + "…" : axis.name;
      titled(add(svg, "text", { x: x(i), y: 14, "text-anchor": "middle" }, label), axis.name);
      add(svg, "text", { x: x(i), y: 32, class: "quiet", "text-anchor": "middle" }, short(axis.high));
      add(svg, "text", { x: x(i), y: height - 8, class: "quiet", "text-anchor": "middle" }, short(axis.low));
    });
    const ratings = data.lines.map((line) => line.rating).filter((rating) => rating !== null);
    const least = Math.min(...ratings), most = Math.max(...ratings);
    data.lines.forEach(function (line) {
      const points = line.values
        .map((value, i) => (value === null ? null : x(i) + "," + y(data.axes[i], value)))
        .filter((point) => point !== null);
      const share = line.rating === null || most === least ? 0.5 : (line.rating - least) / (most - least);
      const group = line.href ? add(svg, "a", { href: line.href }) : svg;
      titled(add(group, "polyline", {
        points: points.join(" "), fill: "none",
        stroke: share > 0.66 ? "#0072B2" : share > 0.33 ? "#009E73" : "#E69F00",
        "stroke-width": share > 0.95 ? 3.5 : 1.6, "stroke-opacity": 0.85,
      }), line.text);
    });
  }

  return { tree: tree, parallel: parallel };
})();
