"use strict";
// Charts with axes, by plotly: SVG traces only, because its others compile code.
window.arenaCharts = (function () {
  // Okabe and Ito: told apart by colour-blind readers, on light and dark.
  const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C6D31", "#7F7F7F"];
  // Pixels of a line of text beside another one.
  const LABEL = 14;
  const DASHES = ["solid", "dash", "dot", "dashdot"];

  // plotly reads a few tags in labels; a label of ours has none.
  function safe(text) {
    return String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  }

  function style(name) {
    return window.getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function colour(index) {
    return COLOURS[index % COLOURS.length];
  }

  function layout(element, more) {
    const narrow = element.clientWidth < 600;
    const axis = { gridcolor: style("--line"), zerolinecolor: style("--line"), automargin: true };
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)",
      plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: style("--front"), size: 12, family: "system-ui, sans-serif" },
      margin: { l: 60, r: narrow ? 10 : 20, t: 20, b: 52 },
      autosize: false,
      width: element.clientWidth,
      height: narrow ? 320 : 420,
      hovermode: "closest",
      dragmode: "pan",
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    };
    const result = Object.assign(base, more);
    result.xaxis = Object.assign({}, axis, more.xaxis);
    result.yaxis = Object.assign({}, axis, more.yaxis);
    return result;
  }

  function plot(element, traces, more) {
    const shown = layout(element, more);
    window.Plotly.react(element, traces, shown, {
      displaylogo: false,
      displayModeBar: false,
      scrollZoom: false,
      showTips: false,
    });
  }

  function whiskers(element, data) {
    const places = new Map(data.order.map((name, i) => [name, i]));
    // Groups that share rows stand beside each other.
    const between = data.beside ? 0.3 : 0;
    const traces = data.groups.map(function (group, index) {
      const shift = between * (index - (data.groups.length - 1) / 2);
      return {
        type: "scatter",
        mode: "markers",
        name: safe(group.name),
        x: group.ratings,
        y: group.names.map((name) => places.get(name) + shift),
        marker: { size: 8, color: colour(index), symbol: index ? "diamond" : "circle" },
        error_x: {
          type: "data",
          symmetric: false,
          array: group.high.map((high, i) => high - group.ratings[i]),
          arrayminus: group.low.map((low, i) => group.ratings[i] - low),
          color: colour(index),
        },
        hovertext: group.texts.map(safe),
        hoverinfo: "text",
      };
    });
    const names = data.order.map(safe);
    plot(element, traces, {
      height: 110 + (data.beside ? 34 : 20) * names.length,
      margin: { l: 60, r: 20, t: 40, b: 52 },
      xaxis: { title: { text: safe(data.x) } },
      yaxis: {
        range: [names.length - 0.3, -0.7], fixedrange: true, zeroline: false, tickvals: names.map((_, i) => i), ticktext: names,
      },
      showlegend: data.groups.length > 1,
    });
  }

  function band(line, index) {
    return {
      type: "scatter",
      mode: "lines",
      x: line.x.concat(line.x.slice().reverse()),
      y: line.high.concat(line.low.slice().reverse()),
      fill: "toself",
      fillcolor: colour(index) + "22",
      line: { width: 0 },
      hoverinfo: "skip",
      showlegend: false,
      legendgroup: String(index),
    };
  }

  function lines(element, data) {
    const traces = [];
    if (data.others) {
      // Many lines as one with gaps, behind those that can be told apart.
      traces.push({
        type: "scatter", mode: "lines", name: safe(data.others.name), x: data.others.x, y: data.others.y,
        line: { color: style("--quiet"), width: 0.8 }, opacity: 0.35, hoverinfo: "skip",
      });
    }
    data.series.forEach(function (line, index) {
      if (line.low) {
        traces.push(band(line, index));
      }
      traces.push({
        type: "scatter",
        mode: line.x.length > 60 ? "lines" : "lines+markers",
        name: safe(line.name),
        x: line.x,
        y: line.y,
        line: {
          color: colour(index),
          width: 2,
          shape: data.steps ? "hv" : "linear",
          dash: DASHES[Math.floor(index / COLOURS.length) % DASHES.length],
        },
        marker: { size: 4 },
        text: (line.texts || []).map(safe),
        hovertemplate: "%{fullData.name}: %{y:.4~g} at %{x:.3~s}" + (line.texts ? "<br>%{text}" : "") + "<extra></extra>",
        legendgroup: String(index),
      });
      if (line.marks) {
        traces.push({
          type: "scatter",
          mode: "markers",
          x: line.marks.map((mark) => mark.x),
          y: line.marks.map((mark) => mark.y),
          marker: { size: 10, symbol: "x", color: colour(index) },
          hovertext: line.marks.map((mark) => safe(mark.text)),
          hoverinfo: "text",
          showlegend: false,
          legendgroup: String(index),
        });
      }
    });
    // On a narrow screen a line of the legend takes about three names.
    const rows = element.clientWidth < 600 ? Math.ceil(data.series.length / 3) : 1;
    plot(element, traces, {
      height: (element.clientWidth < 600 ? 290 : 390) + 30 * rows,
      xaxis: { title: { text: safe(data.x) } },
      yaxis: Object.assign({ title: { text: safe(data.y) }, type: data.log ? "log" : "linear" }, data.range ? { range: data.range } : {}),
      showlegend: data.series.length > 1 || Boolean(data.others),
    });
  }

  // A click on a point leads to its address, if it has one.
  function followLinks(element, address) {
    // A chart is drawn again in the same element when the page changes.
    element.removeAllListeners("plotly_click");
    element.on("plotly_click", function (event) {
      const href = address(event.points[0]);
      if (href) {
        window.location.href = href;
      }
    });
  }

  function heatmap(element, data) {
    // Beside the labels of rows; a narrow screen takes some labels of columns, evenly.
    const width = (element.clientWidth - 130) / data.columns.length;
    const side = Math.max(LABEL, Math.min(26, width));
    const size = side * data.rows.length;
    const step = Math.ceil(LABEL / Math.max(1, width));
    const labelled = data.columns.map((_, i) => i).filter((i) => i % step === 0);
    plot(element, [{
      type: "heatmap",
      x: data.columns.map((_, i) => i),
      y: data.rows.map((_, i) => i),
      z: data.scores,
      text: data.texts.map((row) => row.map(safe)),
      hovertemplate: "%{text}<extra></extra>",
      // Dark blue wins, orange loses; told apart without red and green.
      colorscale: [[0, "#b35806"], [0.25, "#f1a340"], [0.5, "#f7f7f7"], [0.75, "#67a9cf"], [1, "#08519c"]],
      zmin: 0,
      zmax: 1,
      xgap: 1,
      ygap: 1,
      // Its legend would set inline styles; the note says what the colours mean.
      showscale: false,
    }], {
      // Even is white, so what is empty is not.
      plot_bgcolor: style("--empty"),
      height: Math.max(240, size + 130),
      margin: { l: 60, r: 10, t: 90, b: 10 },
      xaxis: {
        tickvals: labelled, ticktext: labelled.map((i) => safe(data.columns[i])), tickangle: -90,
        // Said, because plotly finds no ends where nobody has met.
        range: [-0.5, data.columns.length - 0.5],
        side: "top", showgrid: false, zeroline: false, fixedrange: true,
      },
      yaxis: {
        tickvals: data.rows.map((_, i) => i), ticktext: data.rows.map(safe),
        range: [data.rows.length - 0.5, -0.5],
        showgrid: false, zeroline: false, fixedrange: true,
      },
      dragmode: false,
    });
    followLinks(element, (point) => data.links[point.y] && data.links[point.y] + "#" + data.anchors[point.x]);
  }

  function bars(element, data) {
    const names = data.names.map(safe);
    plot(element, [{
      type: "bar",
      orientation: "h",
      x: data.values,
      y: names.map((_, i) => i),
      marker: { color: colour(0) },
      text: data.values.map(String),
      textposition: "auto",
      hovertext: names,
      hoverinfo: "text",
    }], {
      height: 80 + 26 * names.length,
      margin: { l: 60, r: 20, t: 10, b: 52 },
      xaxis: { title: { text: safe(data.x) }, range: [0, 1], fixedrange: true },
      yaxis: {
        tickvals: names.map((_, i) => i), ticktext: names, autorange: "reversed", fixedrange: true, showgrid: false,
      },
      dragmode: false,
    });
    followLinks(element, (point) => data.links[point.y]);
  }

  const kinds = { whiskers: whiskers, lines: lines, heatmap: heatmap, bars: bars };

  function drawAll(root) {
    for (const element of root.querySelectorAll(".chart")) {
      const data = JSON.parse(element.parentElement.querySelector("script").textContent);
      const draw = kinds[element.dataset.kind] || window.arenaDrawings[element.dataset.kind];
      draw(element, data);
    }
  }

  function clearAll(root) {
    for (const element of root.querySelectorAll(".js-plotly-plot")) {
      window.Plotly.purge(element);
    }
  }

  return { drawAll: drawAll, clearAll: clearAll, colour: colour };
})();
