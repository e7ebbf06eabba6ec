// What pages do beyond links and forms: live rows and charts. Everything else works without it.
"use strict";

(function () {
  const MOST_ROWS = 100;

  // A stream that is closed while nobody sees the page, because a browser keeps only six
  // connections to one server; it goes on where it was.
  function stream(url) {
    const listeners = [];
    const self = { readyState: 0, onopen: null, onerror: null };
    let source = null;
    let last = null;
    let ended = false;
    function seen(event) {
      if (event.lastEventId) last = event.lastEventId;
    }
    function open() {
      const target = new URL(url, location.href);
      if (last !== null) target.searchParams.set("after", last);
      source = new EventSource(target);
      source.onopen = function (event) {
        self.readyState = source.readyState;
        if (self.onopen) self.onopen(event);
      };
      source.onerror = function (event) {
        self.readyState = source.readyState;
        if (self.onerror) self.onerror(event);
      };
      source.addEventListener("seen", seen);
      for (const [name, listener] of listeners) source.addEventListener(name, listener);
    }
    self.addEventListener = function (name, listener) {
      listeners.push([name, listener]);
      source.addEventListener(name, listener);
    };
    self.removeEventListener = function (name, listener) {
      source.removeEventListener(name, listener);
    };
    self.close = function () {
      ended = true;
      source.close();
    };
    document.addEventListener("visibilitychange", function () {
      if (ended) return;
      source.close();
      if (!document.hidden) open();
    });
    open();
    self.addEventListener("closed", function () {
      for (const notice of document.querySelectorAll("[data-closed]")) notice.hidden = false;
    });
    return self;
  }

  if (window.htmx) {
    htmx.createEventSource = stream;
    document.addEventListener("htmx:sseMessage", function (event) {
      const rows = event.target.closest("[data-rows]");
      while (rows && rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
    });
  }

  // Draws each chart from the JSON of this page: `data-chart` names the list of samples,
  // `data-series` the fields to be drawn.
  async function draw(places) {
    const answer = await fetch(location.href, { headers: { Accept: "application/json" } });
    if (!answer.ok) return;
    const view = await answer.json();
    for (const place of places) {
      const samples = view[place.dataset.chart] || [];
      const names = place.dataset.series.split(" ");
      const style = getComputedStyle(document.documentElement);
      const colour = (name) => style.getPropertyValue("--" + name).trim();
      const axis = { stroke: colour("text"), grid: { stroke: colour("line") }, ticks: { stroke: colour("line") } };
      const colours = ["link", "deny", "allow", "neutral", "faint"];
      const data = [samples.map((sample) => sample.time)];
      for (const name of names) data.push(samples.map((sample) => sample[name]));
      place.replaceChildren();
      new uPlot({
        width: Math.max(280, place.clientWidth),
        height: 220,
        scales: { x: { time: true } },
        axes: [axis, { ...axis, size: 70 }],
        series: [{}, ...names.map((name, at) => ({ label: name, stroke: colour(colours[at % 5]), width: 2 }))],
      }, data, place);
    }
  }

  const places = document.querySelectorAll("[data-chart]");
  if (window.uPlot && places.length > 0) {
    draw(places);
    setInterval(function () {
      if (!document.hidden) draw(places);
    }, 10000);
  }
})();
