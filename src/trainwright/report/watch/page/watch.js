"use strict";
// Shows each snapshot that the server sends. Text goes in as text: nothing that a run is called can become markup.
(() => {
  const at = (id) => document.getElementById(id);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const make = (tag, text, parent) => { const one = document.createElement(tag); if (text !== undefined) one.textContent = text; if (parent) parent.append(one); return one; };
  const short = (v) => (v >= 1e6 ? `${(v / 1e6).toFixed(2)}M` : v >= 1e3 ? `${(v / 1e3).toFixed(1)}k` : Number(v.toPrecision(4)).toString());
  const share = (v) => `${(v * 100).toFixed(0)} %`;
  const span = (s) => `${Math.floor(s / 3600)}:${String(Math.floor((s % 3600) / 60)).padStart(2, "0")}:${String(Math.floor(s % 60)).padStart(2, "0")}`;
  const clock = (s) => new Date(s * 1000).toLocaleTimeString("en-GB");
  let chosen = "", source = null, shown = "";
  const plots = {};

  const facts = (run) => {
    const rows = [["step", run.steps ? `${run.step.toLocaleString("en")} of ${run.steps.toLocaleString("en")}` : run.step ? run.step.toLocaleString("en") : null]];
    rows.push(["loss", run.loss !== null ? run.loss.toFixed(4) : run.loss_finite ? null : "not finite"]);
    const against = run.predicted && run.tokens_per_s ? ` (${short(run.predicted)} predicted, ${run.tokens_per_s >= run.predicted ? "+" : ""}${share(run.tokens_per_s / run.predicted - 1)})` : "";
    rows.push(["tokens/s", run.tokens_per_s ? short(run.tokens_per_s) + against : null]);
    rows.push(["MFU", run.mfu === null ? null : `${(run.mfu * 100).toFixed(1)} %`], ["memory", run.memory_gb === null ? null : `${run.memory_gb.toFixed(1)} GB`]);
    rows.push(["GPU use", run.gpu_use === null ? null : share(run.gpu_use)]);
    rows.push(["data wait", run.data_wait === null ? null : share(run.data_wait)], ["network", run.network_mb_s === null ? null : `${run.network_mb_s.toFixed(0)} MB/s`]);
    rows.push(["goodput", run.goodput === null ? null : share(run.goodput)], ["time left", run.eta_s ? span(run.eta_s) : null], ["ranks", String(run.ranks)]);
    at("facts").replaceChildren(...rows.filter(([, value]) => value !== null).map(([name, value]) => { const box = make("div"); make("dt", name, box); make("dd", value, box); return box; }));
  };

  const draw = (id, run, values, band) => {
    const element = at(id), data = [run.xs, values];
    if (plots[id]) { plots[id].band = band; plots[id].setData(data); return; }
    const axis = { stroke: css("--text"), grid: { stroke: css("--line"), width: 1 }, ticks: { stroke: css("--line") }, values: (u, ticks) => ticks.map((v) => (v === null ? "" : short(v))) };
    plots[id] = new uPlot({
      width: Math.max(240, element.clientWidth), height: 220, scales: { x: { time: false } }, axes: [axis, { ...axis, size: 58 }], legend: { show: true },
      series: [{ label: "step" }, { label: id === "loss" ? "loss" : "tokens/s", stroke: css("--c0"), width: 1.6, spanGaps: true, value: (u, v) => (v === null ? "–" : short(v)) }],
      hooks: { drawClear: [(u) => {
        if (!u.band) return;
        const [low, high] = u.band.map((v) => u.valToPos(v, "y", true));
        u.ctx.fillStyle = css("--band"); u.ctx.fillRect(u.bbox.left, high, u.bbox.width, low - high);
      }] },
    }, data, element);
    plots[id].band = band;
  };

  const list = (snapshot) => {
    const current = snapshot.run ? snapshot.run.name : "";
    at("runs").replaceChildren(...snapshot.runs.map(([name, state]) => {
      const item = make("li"), button = make("button", undefined, item);
      button.type = "button"; make("span", name, button); make("span", state, button).className = "state";
      if (name === current) button.setAttribute("aria-current", "true");
      button.addEventListener("click", () => connect(name));
      return item;
    }));
    const jobs = at("jobs"); jobs.replaceChildren();
    snapshot.jobs.forEach((job) => make("p", `${job.name}: ${job.state} ${job.node_list || job.reason}`, jobs));
    snapshot.queues.forEach(([cluster, queue, states]) => make("p", `${cluster} ${queue}: ${states}`, jobs).className = "dim");
    if (!jobs.firstChild) make("p", "no job waits or runs", jobs).className = "dim";
  };

  const show = (snapshot) => {
    const focused = document.activeElement && document.activeElement.closest("#runs") ? [...at("runs").querySelectorAll("button")].indexOf(document.activeElement) : -1;
    list(snapshot);
    if (focused >= 0) at("runs").querySelectorAll("button")[focused]?.focus();
    const run = snapshot.run;
    if (!run) { at("name").textContent = "no run yet"; return; }
    if (run.name !== shown) { Object.keys(plots).forEach((id) => { plots[id].destroy(); delete plots[id]; }); shown = run.name; }
    at("name").textContent = run.name;
    at("state").textContent = `${run.state}${run.reason ? `: ${run.reason}` : ""}, on ${run.where}`;
    const link = at("report"); link.hidden = false; link.href = `report/${encodeURIComponent(run.name)}`;
    at("behind").hidden = !run.behind; at("behind").textContent = run.behind;
    at("progress").value = run.steps ? run.step / run.steps : 0;
    facts(run);
    if (run.xs.length) { draw("loss", run, run.losses, null); draw("speed", run, run.speeds, run.low === null ? null : [run.low, run.high]); }
    at("events").replaceChildren(...run.events.map(([moment, text]) => { const item = make("li"); make("time", clock(moment), item); item.append(text); return item; }));
  };

  const connect = (name) => {
    if (source) source.close();
    chosen = name;
    source = new EventSource(`events${name ? `?run=${encodeURIComponent(name)}` : ""}`);
    source.onopen = () => { at("status").textContent = "live"; };
    source.onmessage = (event) => { show(JSON.parse(event.data)); document.documentElement.dataset.ready = "yes"; };
    source.onerror = () => { at("status").textContent = "not connected: `trainwright watch --web` ended, or the page waits for it"; };
  };
  new ResizeObserver(() => Object.entries(plots).forEach(([id, plot]) => {
    const width = at(id).clientWidth;
    if (width && width !== plot.width) plot.setSize({ width: Math.max(240, width), height: plot.height });
  })).observe(document.body);
  connect(chosen);
})();
