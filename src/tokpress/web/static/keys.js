// Keyboard shortcuts: those of the page, and those of the view that is shown; listed by "?".

import { button, h } from "/static/dom.js";

let common = [];
let ofView = [];
let goneWith = null;

export function bindKeys(keys) {
  common = keys;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
    if (event.key === "?") {
      event.preventDefault();
      openHelp();
      return;
    }
    const found = [...(goneWith?.aborted ? [] : ofView), ...common].find((entry) => [entry.key, entry.also].includes(event.key));
    if (!found) return;
    event.preventDefault();
    found.run();
  });
}

// For as long as a view is shown.
export function viewKeys(keys, signal) {
  ofView = keys;
  goneWith = signal;
}

export function openHelp() {
  const dialog = document.getElementById("help");
  const rows = (keys) => h("dl", { class: "keys" }, keys.map((entry) => h("div", null,
    h("dt", null, h("kbd", null, entry.key === " " ? "space" : entry.key), entry.also ? [" ", h("kbd", null, entry.also)] : null), h("dd", null, entry.what))));
  dialog.replaceChildren(h("div", null, h("h2", { id: "help-title" }, "Keyboard shortcuts"),
    ofView.length && !goneWith?.aborted ? [h("h3", null, "This view"), rows(ofView)] : null,
    h("h3", null, "Everywhere"), rows([...common, { key: "?", what: "this list" }]),
    button("Close", () => dialog.close(), { class: "primary", autofocus: true })));
  dialog.showModal();
}
