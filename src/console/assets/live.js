// Rows that arrive while the page is open, and completion of the search.
"use strict";

(function () {
  const MAX_ROWS = 100;
  const COMPLETE_AFTER_MILLISECONDS = 150;

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

  // Completes the words of a search as a combobox does: arrows choose, Enter or Tab takes,
  // Escape closes.
  function complete(input) {
    const list = document.createElement("ul");
    list.id = input.id + "-completions";
    list.className = "completions";
    list.setAttribute("role", "listbox");
    list.setAttribute("aria-label", "Completions");
    list.hidden = true;
    input.after(list);
    for (const [name, value] of [["role", "combobox"], ["aria-autocomplete", "list"], ["aria-expanded", "false"], ["aria-controls", list.id]]) {
      input.setAttribute(name, value);
    }
    let waiting = 0;
    let chosen = -1;

    function choose(place) {
      chosen = place;
      for (const [at, option] of [...list.children].entries()) option.setAttribute("aria-selected", String(at === place));
      if (place < 0) input.removeAttribute("aria-activedescendant");
      else input.setAttribute("aria-activedescendant", list.children[place].id);
    }

    function show(texts) {
      list.replaceChildren(...texts.map((text, at) => {
        const option = document.createElement("li");
        option.id = list.id + "-" + at;
        option.setAttribute("role", "option");
        option.textContent = text;
        option.addEventListener("mousedown", (event) => {
          event.preventDefault();
          take(text);
        });
        return option;
      }));
      list.hidden = texts.length === 0;
      input.setAttribute("aria-expanded", String(!list.hidden));
      choose(-1);
    }

    function take(text) {
      input.value = text.endsWith(":") ? text : text + " ";
      input.focus();
      ask();
    }

    async function ask() {
      const text = input.value;
      const url = input.dataset.completions + "?" + new URLSearchParams({ q: text });
      const answer = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
      if (!answer || !answer.ok || input.value !== text || document.activeElement !== input) return;
      show((await answer.json()).completions);
    }

    input.addEventListener("input", function () {
      clearTimeout(waiting);
      waiting = setTimeout(ask, COMPLETE_AFTER_MILLISECONDS);
    });
    input.addEventListener("blur", () => show([]));
    input.addEventListener("keydown", function (event) {
      const count = list.children.length;
      if (list.hidden) {
        if (event.key === "ArrowDown") ask();
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
        event.preventDefault();
        const step = event.key === "ArrowDown" ? 1 : -1;
        choose(chosen < 0 && step < 0 ? count - 1 : (chosen + step + count) % count);
      } else if ((event.key === "Enter" || event.key === "Tab") && chosen >= 0) {
        event.preventDefault();
        take(list.children[chosen].textContent);
      } else if (event.key === "Escape") {
        event.preventDefault();
        show([]);
      }
    });
  }

  if (window.htmx) {
    htmx.createEventSource = stream;
    document.addEventListener("htmx:sseMessage", function (event) {
      const rows = event.target.closest("[data-rows]");
      while (rows && rows.rows.length > MAX_ROWS) rows.deleteRow(-1);
    });
  }
  for (const input of document.querySelectorAll("[data-completions]")) complete(input);
})();
