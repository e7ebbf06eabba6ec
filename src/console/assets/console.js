// What every page does beyond links and forms: times as people read them, and parts that are
// kept up to date. Everything else works without it.
"use strict";

(function () {
  const REFRESH_MILLISECONDS = 10000;
  const UNITS = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];
  const relative = new Intl.RelativeTimeFormat("en", { style: "narrow", numeric: "always" });
  const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const exact = new Intl.DateTimeFormat([], { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });

  function since(seconds) {
    const [unit, length] = UNITS.find(([, length]) => Math.abs(seconds) >= length) || UNITS[3];
    return relative.format(Math.trunc(seconds / length), unit);
  }

  // Each time is shown relative to now, or as the time of day where it has `data-clock`; the
  // exact one, here and in UTC, is its title.
  function showTimes() {
    for (const place of document.querySelectorAll("time[datetime]")) {
      const time = new Date(place.dateTime);
      if (Number.isNaN(time.getTime())) continue;
      const text = "clock" in place.dataset ? clock.format(time) : since((time - Date.now()) / 1000);
      if (place.textContent !== text) place.textContent = text;
      if (!place.title) place.title = exact.format(time) + " here, " + place.dateTime + " in UTC";
    }
  }

  // Replaces each part that names in `data-refresh` where it is from, unless the keyboard is in it.
  async function refresh() {
    const parts = [...document.querySelectorAll("[data-refresh]")];
    for (const url of new Set(parts.map((part) => part.dataset.refresh))) {
      const answer = await fetch(url, { headers: { Accept: "text/html" } }).catch(() => null);
      if (!answer || !answer.ok) continue;
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of parts.filter((part) => part.dataset.refresh === url)) {
        const fresh = page.getElementById(part.id);
        if (fresh && !part.contains(document.activeElement)) part.replaceWith(fresh);
      }
    }
    showTimes();
  }

  function refreshIfSeen() {
    if (!document.hidden) refresh();
  }

  showTimes();
  setInterval(showTimes, 1000);
  setInterval(refreshIfSeen, REFRESH_MILLISECONDS);
  document.addEventListener("visibilitychange", refreshIfSeen);
})();
