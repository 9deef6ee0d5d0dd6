"use strict";
// Draws the charts of a report from the data block of the page. uPlot draws lines and axes; heat map and predicted
// interval are hooks of it. Every chart works by mouse (hover, drag to zoom), by touch and by keyboard.
(() => {
  const data = JSON.parse(document.getElementById("chart-data").textContent);
  const plots = [];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (index) => css(`--c${index % 8}`);
  const number = (value, unit) => {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    let text;
    if (unit === "%") return `${(value * 100).toFixed(1)} %`;
    if (size >= 1e15) text = value.toExponential(3);
    else if (size >= 1e4) text = Math.round(value).toLocaleString("en");
    else if (size >= 1 || size === 0) text = Number(value.toPrecision(5)).toString();
    else if (size >= 1e-4) text = Number(value.toPrecision(4)).toString();
    else text = value.toExponential(2);
    return unit ? `${text} ${unit}` : text;
  };
  const short = (value) => {
    const size = Math.abs(value);
    for (const [limit, word] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (size >= limit) return `${Number((value / limit).toPrecision(4))}${word}`;
    return size !== 0 && size < 1e-3 ? value.toExponential(1) : Number(value.toPrecision(4)).toString();
  };
  const moment = (seconds) => new Date(seconds * 1000).toISOString().replace("T", " ").slice(0, 19);

  const axes = (chart) => {
    const line = { stroke: css("--text"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") } };
    const named = (label) => ({ ...line, label, labelSize: 22, labelFont: "13px sans-serif", font: "12px sans-serif" });
    const x = { ...named(chart.x_label), values: chart.time ? undefined : (u, ticks) => ticks.map((v) => (v === null ? "" : short(v))) };
    const y = { ...named(chart.y_label || chart.unit), size: 62, values: (u, ticks) => ticks.map((v) => (v === null ? "" : short(v))) };
    if (chart.cells) y.incrs = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096, 16384];
    if (chart.lanes) { y.splits = () => chart.lanes.map((_, at) => at); y.values = () => chart.lanes; y.size = 96; }
    return [x, y];
  };

  const bandHook = (chart) => (u) => {
    if (!chart.band) return;
    const [low, high] = chart.band.map((value) => u.valToPos(value, "y", true));
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
    u.ctx.clip();
    u.ctx.fillStyle = css("--band");
    u.ctx.fillRect(u.bbox.left, high, u.bbox.width, low - high);
    u.ctx.restore();
  };

  const cellsOf = (chart) => {
    const text = atob(chart.cells);
    const cells = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) cells[at] = text.charCodeAt(at);
    return cells;
  };
  const heatHook = (chart) => {
    const cells = cellsOf(chart);
    // One pixel per cell, drawn once and then stretched: half a million cells cost nothing while the user zooms.
    const image = document.createElement("canvas");
    image.width = chart.data[0].length;
    image.height = chart.ranks;
    const paint = () => {
      const context = image.getContext("2d");
      const pixels = context.createImageData(image.width, image.height);
      const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
      probe.fillStyle = css("--cell"); probe.fillRect(0, 0, 1, 1);
      const [red, green, blue] = probe.getImageData(0, 0, 1, 1).data;
      for (let column = 0; column < image.width; column++)
        for (let rank = 0; rank < chart.ranks; rank++) {
          const at = 4 * (rank * image.width + column);
          pixels.data[at] = red; pixels.data[at + 1] = green; pixels.data[at + 2] = blue;
          pixels.data[at + 3] = 18 + (237 * cells[column * chart.ranks + rank]) / 255;
        }
      context.putImageData(pixels, 0, 0);
    };
    return {
      cells,
      draw: (u) => {
        paint();
        const left = u.valToPos(chart.edge, "x", true), right = u.valToPos(chart.data[0][image.width - 1], "x", true);
        const top = u.valToPos(-0.5, "y", true), bottom = u.valToPos(chart.ranks - 0.5, "y", true);
        u.ctx.save();
        u.ctx.beginPath(); u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); u.ctx.clip();
        u.ctx.imageSmoothingEnabled = false;
        u.ctx.translate(left, top); u.ctx.scale(right - left > 0 ? 1 : -1, bottom > top ? 1 : -1);
        u.ctx.drawImage(image, 0, 0, Math.abs(right - left), Math.abs(bottom - top));
        u.ctx.restore();
      },
    };
  };

  const words = (chart, u, index) => {
    if (index === null || index === undefined) return "";
    const x = chart.data[0][index];
    const at = chart.time ? moment(x) : `${chart.x_label} ${number(x)}`;
    if (chart.lanes) return `${at}  ${chart.texts[index]}`;
    if (chart.cells) {
      const rank = Math.max(0, Math.min(chart.ranks - 1, Math.round(u.posToVal(u.cursor.top >= 0 ? u.cursor.top : 0, "y"))));
      const value = chart.low + ((chart.high - chart.low) * u.heat.cells[index * chart.ranks + rank]) / 255;
      return `${at}  rank ${rank}: ${number(Number(value.toPrecision(3)), chart.unit)}`;
    }
    return [at, ...chart.series.map((one, n) => `${one.label} ${number(chart.data[n + 1][index], chart.unit)}`)].join("  ");
  };

  const options = (chart, element, say) => {
    const heat = chart.cells ? heatHook(chart) : null;
    const series = chart.series.map((one, index) => ({
      label: one.label, stroke: colour(index), width: chart.lanes || chart.cells ? 0 : 1.6,
      dash: one.dashed ? [6, 4] : undefined, spanGaps: true,
      paths: chart.lanes || chart.cells ? () => null : undefined,
      points: chart.lanes ? { show: true, size: 9, fill: colour(index), stroke: colour(index) }
        : chart.cells ? { show: false } : { show: chart.data[0].length < 60, size: 5 },
      value: (u, value) => (value === null ? "–" : chart.lanes ? "" : number(value, chart.unit)),
    }));
    const scales = { x: { time: Boolean(chart.time), distr: chart.log ? 3 : 1, log: 2 }, y: {} };
    if (chart.lanes) scales.y.range = [-0.5, chart.lanes.length - 0.5];
    if (chart.cells) {
      scales.y.range = [-0.5, chart.ranks - 0.5];
      scales.x.range = (u, low, high) => (low === chart.data[0][0] || low === high ? [chart.edge, chart.data[0].at(-1)] : [low, high]);
    }
    if (chart.band) scales.y.range = (u, low, high) => uPlot.rangeNum(Math.min(low, chart.band[0]), Math.max(high, chart.band[1]), 0.1, true);
    return {
      width: Math.max(240, element.clientWidth), height: chart.cells ? 300 : 240, series: [{ label: chart.x_label }, ...series],
      scales, axes: axes(chart), legend: { show: !chart.cells && !chart.lanes }, cursor: { drag: { x: true, y: false } },
      hooks: {
        init: [(u) => { u.heat = heat; }],
        drawClear: chart.band ? [bandHook(chart)] : [], draw: heat ? [heat.draw] : [],
        setCursor: [(u) => say(words(chart, u, u.cursor.idx))],
      },
    };
  };

  const zoom = (plot, factor) => {
    const { min, max } = plot.scales.x;
    const middle = plot.cursor.left >= 0 ? plot.posToVal(plot.cursor.left, "x") : (min + max) / 2;
    plot.setScale("x", { min: middle - (middle - min) * factor, max: middle + (max - middle) * factor });
  };
  const reset = (plot) => plot.setData(plot.data, true);
  const move = (plot, by) => {
    const x = plot.data[0], { min, max } = plot.scales.x;
    let index = plot.cursor.idx === null || plot.cursor.idx === undefined ? (by > 0 ? -1 : x.length) : plot.cursor.idx;
    index = Math.max(0, Math.min(x.length - 1, index + by));
    while (x[index] < min && index < x.length - 1) index++;
    while (x[index] > max && index > 0) index--;
    plot.setCursor({ left: plot.valToPos(x[index], "x"), top: plot.cursor.top >= 0 ? plot.cursor.top : 10 });
  };

  const fill = (figure, chart) => {
    const box = figure.querySelector("details .scroll");
    if (box.firstChild) return;
    const table = document.createElement("table");
    const row = (parent, cells, kind) => {
      const line = parent.insertRow();
      cells.forEach((cell) => { const one = document.createElement(kind); if (kind === "th") one.scope = "col"; one.className = "n"; one.textContent = cell; line.append(one); });
    };
    row(table.createTHead(), [chart.x_label, ...chart.series.map((one) => one.label + (chart.unit ? ` (${chart.unit})` : ""))], "th");
    const body = table.createTBody();
    chart.data[0].forEach((x, at) => row(body, [chart.time ? moment(x) : number(x), ...chart.series.map((_, n) => number(chart.data[n + 1][at]))], "td"));
    box.append(table);
  };

  const draw = (figure, chart) => {
    const element = figure.querySelector(".plot"), out = figure.querySelector(".value");
    element.textContent = "";
    const plot = new uPlot(options(chart, element, (text) => { out.textContent = text; }), chart.data, element);
    plots.push({ plot, element, figure, chart });
    return plot;
  };

  const setUp = (figure, chart) => {
    let plot = draw(figure, chart);
    const current = () => { plot = plots.find((one) => one.figure === figure).plot; return plot; };
    figure.querySelector("[data-reset]").addEventListener("click", () => reset(current()));
    figure.querySelector(".plot").addEventListener("keydown", (event) => {
      const act = { ArrowLeft: () => move(current(), -1), ArrowRight: () => move(current(), 1), "+": () => zoom(current(), 0.7),
        "=": () => zoom(current(), 0.7), "-": () => zoom(current(), 1.4), 0: () => reset(current()), Escape: () => reset(current()) }[event.key];
      if (act && !event.ctrlKey && !event.metaKey && !event.altKey) { act(); event.preventDefault(); }
    });
    const details = figure.querySelector("details");
    if (details) details.addEventListener("toggle", () => fill(figure, chart));
  };
  const redraw = () => {
    const old = plots.splice(0);
    old.forEach(({ plot, figure, chart }) => { plot.destroy(); draw(figure, chart); });
  };

  // What is on the screen is drawn at once, the rest when it comes near, or when the browser has nothing else to do.
  const wanted = new Map();
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    const chart = entry.isIntersecting && wanted.get(entry.target);
    if (chart) { wanted.delete(entry.target); seen.unobserve(entry.target); setUp(entry.target, chart); }
  }), { rootMargin: "400px" });
  document.querySelectorAll("figure[data-chart]").forEach((figure) => {
    const chart = data.charts[figure.dataset.chart];
    if (chart) { wanted.set(figure, chart); seen.observe(figure); }
  });
  const all = () => [...wanted].forEach(([figure, chart]) => { wanted.delete(figure); seen.unobserve(figure); setUp(figure, chart); });
  const next = () => {
    const [first] = wanted;
    if (!first) { document.documentElement.dataset.drawn = "yes"; return; }
    wanted.delete(first[0]); seen.unobserve(first[0]); setUp(...first);
    requestIdleCallback(next, { timeout: 500 });
  };
  requestIdleCallback(next, { timeout: 500 });
  new ResizeObserver(() => plots.forEach(({ plot, element }) => {
    if (element.clientWidth && element.clientWidth !== plot.width) plot.setSize({ width: Math.max(240, element.clientWidth), height: plot.height });
  })).observe(document.body);
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  window.addEventListener("beforeprint", () => { all(); redraw(); });
  window.addEventListener("afterprint", redraw);
  document.documentElement.dataset.ready = "yes";
})();
