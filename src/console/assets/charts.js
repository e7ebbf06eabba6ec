// Draws each chart of a page from its JSON: `data-chart` names the list of samples, `data-series`
// the fields to be drawn, `data-labels` what they are called, with `|` between them.
"use strict";

(function () {
  const HOUR_SECONDS = 3600;
  const LEAST_SECONDS = 300;
  const SAMPLE_SECONDS = 10;
  const REFRESH_MILLISECONDS = 10000;
  // An outcome has one colour everywhere, and a line of its own for those who do not see colours.
  const LINES = {
    allow: ["--allow", []],
    deny: ["--deny", []],
    noOpinion: ["--neutral", [6, 4]],
    authorizeP50: ["--link", []],
    authorizeP99: ["--faint", [6, 4]],
  };
  const DECISIONS = ["allow", "deny", "noOpinion"];
  const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const second = new Intl.DateTimeFormat([], { timeStyle: "medium", hourCycle: "h23" });
  const plots = new Map();

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function timeOfDay(_, seconds) {
    if (seconds === null) return "";
    const time = new Date(seconds * 1000);
    return second.format(time) + " (" + time.toISOString().slice(11, 19) + " UTC)";
  }

  // The decisions behind the point under the cursor.
  function link(plot, names) {
    const time = plot.data[0][plot.cursor.idx];
    if (time === undefined) return null;
    const iso = (seconds) => new Date(seconds * 1000).toISOString();
    const query = new URLSearchParams({ from: iso(time - SAMPLE_SECONDS), to: iso(time) });
    const nearest = names.filter((name) => DECISIONS.includes(name) && plot.cursor.top !== undefined).map((name, at) => {
      const value = plot.data[at + 1][plot.cursor.idx];
      return [Math.abs(plot.valToPos(value === null ? 0 : value, "y") - plot.cursor.top), name];
    }).sort((one, other) => one[0] - other[0])[0];
    if (nearest) query.set("decision", nearest[1]);
    return "/live?" + query;
  }

  // The last hour, or what is known of it.
  function range(plot) {
    const now = Date.now() / 1000;
    const first = plot.data[0].length ? plot.data[0][0] : now;
    return [Math.max(now - HOUR_SECONDS, Math.min(first, now - LEAST_SECONDS)), now];
  }

  function make(place, names, data) {
    const labels = place.dataset.labels.split("|");
    const axis = { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
    const plot = new uPlot({
      width: Math.max(280, place.clientWidth),
      height: 220,
      cursor: { drag: { x: false, y: false } },
      scales: {
        x: { time: true, range },
        y: { range: (_, least, most) => [0, Math.max(most * 1.1, Number(place.dataset.least))] },
      },
      axes: [
        // The clock shows minutes: no two marks in one.
        { ...axis, incrs: [60, 120, 300, 600, 900], values: (_, times) => times.map((time) => clock.format(new Date(time * 1000))) },
        { ...axis, size: 70, label: place.dataset.unit, labelSize: 20 },
      ],
      series: [{ label: "Time", value: timeOfDay }, ...names.map((name, at) => ({
        label: labels[at],
        stroke: colour(LINES[name][0]),
        dash: LINES[name][1],
        width: 2,
        value: (_, value) => (value === null || value === undefined ? "-" : value.toFixed(2)),
      }))],
    }, data, place);
    plot.over.addEventListener("click", function () {
      const target = link(plot, names);
      if (target) location.assign(target);
    });
    return plot;
  }

  async function draw() {
    const places = [...document.querySelectorAll("[data-chart]")];
    const answer = await fetch(location.href, { headers: { Accept: "application/json" } }).catch(() => null);
    if (!answer || !answer.ok) return;
    const view = await answer.json();
    for (const place of places) {
      const samples = view[place.dataset.chart] || [];
      const names = place.dataset.series.split(" ");
      const data = [samples.map((sample) => sample.time), ...names.map((name) => samples.map((sample) => sample[name]))];
      if (plots.has(place)) plots.get(place).setData(data);
      else plots.set(place, make(place, names, data));
    }
  }

  function resize() {
    for (const [place, plot] of plots) plot.setSize({ width: Math.max(280, place.clientWidth), height: 220 });
  }

  // Other colours are another drawing.
  function redraw() {
    for (const [place, plot] of plots) {
      plot.destroy();
      plots.delete(place);
    }
    draw();
  }

  function drawIfSeen() {
    if (!document.hidden) draw();
  }

  if (window.uPlot && document.querySelector("[data-chart]")) {
    draw();
    setInterval(drawIfSeen, REFRESH_MILLISECONDS);
    document.addEventListener("visibilitychange", drawIfSeen);
    window.addEventListener("resize", resize);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  }
})();
