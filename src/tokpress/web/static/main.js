// The frame of the page: which view, which store, which theme; shortcuts; errors.

import { ask, ServerError } from "/static/api.js";
import { h } from "/static/dom.js";
import { bindKeys, openHelp } from "/static/keys.js";
import { go, here, link, start } from "/static/router.js";

const VIEWS = [
  { path: "/store", name: "Store", key: "1", needs: "stores", load: () => import("/static/views/store.js") },
  { path: "/document", name: "Documents", key: "2", needs: "stores", load: () => import("/static/views/document.js") },
  { path: "/sequence", name: "Sequences", key: "3", needs: "stores", load: () => import("/static/views/sequence.js") },
  { path: "/step", name: "Steps", key: "4", needs: "stores", load: () => import("/static/views/step.js") },
  { path: "/compare", name: "Compare", key: "5", needs: "stores", load: () => import("/static/views/compare.js") },
  { path: "/run", name: "Run", key: "6", needs: "runs", load: () => import("/static/views/run.js") },
  { path: "/training", name: "Training", key: "7", needs: "meters", load: () => import("/static/views/training.js") },
];
const main = document.getElementById("main");
let contents = null;
let drawing = null;

function shownViews() {
  return VIEWS.filter((view) => contents[view.needs]?.length);
}

function drawFrame({ path, query }) {
  const kept = { store: query.store, split: query.split };
  document.getElementById("nav").replaceChildren(...shownViews().map((view) => h("a", {
    href: link(view.path, view.needs === "stores" ? kept : {}), "aria-current": view.path === path ? "page" : null, title: `${view.name} (${view.key})` }, view.name)));
  document.querySelector("#nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  const store = contents.stores[Number(query.store ?? 0)];
  const chosen = [];
  const ofStores = VIEWS.find((view) => view.path === path)?.needs === "stores";
  if (ofStores && contents.stores.length > 1) {
    chosen.push(h("label", null, h("span", { class: "visually-hidden" }, "Store"), h("select", { id: "choose-store",
      on: { change: (event) => go(link(path, { store: event.target.value })) } },
    contents.stores.map((entry) => h("option", { value: entry.number, selected: entry === store }, entry.name)))));
  }
  if (ofStores && store && Object.keys(store.splits).length > 1) {
    const split = query.split ?? (store.splits.train === undefined ? Object.keys(store.splits)[0] : "train");
    chosen.push(h("label", null, h("span", { class: "visually-hidden" }, "Split"), h("select", { id: "choose-split",
      on: { change: (event) => go(link(path, { store: query.store, split: event.target.value })) } },
    Object.keys(store.splits).map((name) => h("option", { value: name, selected: name === split }, name)))));
  }
  document.getElementById("choose").replaceChildren(...chosen);
}

async function draw() {
  drawing?.abort();
  const mine = drawing = new AbortController();
  const state = here();
  const likely = VIEWS.find((entry) => entry.path === state.path)?.load(); // beside the first question to the server
  likely?.catch(() => {});
  try {
    contents ??= (await ask("contents")).view;
    const known = shownViews();
    let view = known.find((entry) => entry.path === state.path);
    if (!view && location.pathname === "/" && known.length) {
      view = known[0];
      state.path = view.path;
    }
    drawFrame(state);
    if (!view) throw new ServerError("there is nothing at this address. Choose a view above.", 404);
    const store = view.needs === "stores" ? contents.stores[Number(state.query.store ?? 0)] : null;
    if (view.needs === "stores" && !store) throw new ServerError(`there is no store ${state.query.store}. Choose one above.`, 404);
    const module = await view.load();
    if (mine.signal.aborted) return;
    document.title = `${view.name}${store ? ` · ${store.name}` : ""} · tokpress`;
    const page = h("div", { class: `view view-${view.path.slice(1)}` });
    const shown = module.draw(page, { query: state.query, contents, store, signal: mine.signal });
    main.replaceChildren(page);
    await shown;
  } catch (error) {
    if (error.name === "AbortError" || mine.signal.aborted) return;
    main.replaceChildren(failure(error));
    if (!(error instanceof ServerError)) throw error;
  }
}

function failure(error) {
  return h("section", { class: "failure", role: "alert" }, h("h1", null, "This cannot be shown"), h("p", null, error.message),
    h("p", null, h("a", { href: "/" }, "To the beginning")));
}

function bindTheme() {
  const root = document.documentElement;
  const stored = localStorage.getItem("tokpress-theme");
  if (stored) root.dataset.theme = stored;
  const toggle = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("tokpress-theme", root.dataset.theme);
  };
  document.getElementById("theme").addEventListener("click", toggle);
  return toggle;
}

const toggle = bindTheme();
document.getElementById("help-button").addEventListener("click", openHelp);
bindKeys([
  ...VIEWS.map((view) => ({ key: view.key, what: `go to ${view.name}`, run: () => {
    if (!contents?.[view.needs]?.length) return;
    const { query } = here();
    go(link(view.path, view.needs === "stores" ? { store: query.store, split: query.split } : {}));
  } })),
  { key: "t", what: "dark or light", run: toggle },
  { key: "c", what: "copy the Python of what is shown", run: () => document.querySelector(".copy")?.click() },
]);
start(draw);

