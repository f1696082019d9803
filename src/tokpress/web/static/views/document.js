// A document as its tokens, with its text beside; and the ways to find one.

import { ask } from "/static/api.js";
import { button, count, facts, h, note, path, plural, python, say } from "/static/dom.js";
import { viewKeys } from "/static/keys.js";
import { change, go, link } from "/static/router.js";
import { legend, tokenStrip } from "/static/tokens.js";
import { oneLine, visible } from "/static/text.js";

const WAYS = { text: "text", token: "token id", field: "kept field", position: "place in an input" };

export async function draw(page, { query, store, contents, signal }) {
  const where = { store: query.store, split: query.split };
  const total = store.splits[query.split ?? ("train" in store.splits ? "train" : Object.keys(store.splits)[0])] ?? 0;
  const number = Math.min(Math.max(Number(query.doc ?? 0), 0), Math.max(total - 1, 0));
  const options = { whitespace: query.ws === "1", ids: query.ids === "1", beside: query.beside !== "0" };
  const to = (doc) => change({ doc: Math.min(Math.max(doc, 0), total - 1), first: null, at: null });
  const random = () => to(Math.floor(Math.random() * total));
  const finder = finding(where, query, store, total, signal);
  const body = h("div", { class: "loading" }, "Reading …");

  page.append(h("div", { class: "bar" },
    h("h1", { class: "visually-hidden" }, `Documents of ${store.name}`),
    h("div", { class: "group" },
      button("←", () => to(number - 1), { "aria-label": "Previous document", title: "Previous (k)", disabled: number <= 0 }),
      h("form", { class: "inline", on: { submit: (event) => { event.preventDefault(); to(Number(new FormData(event.target).get("doc"))); } } },
        h("label", null, h("span", { class: "label" }, "Document "), h("input", { name: "doc", type: "number", min: 0, max: Math.max(total - 1, 0), value: number, required: true, id: "doc-number" })),
        h("span", { class: "quiet" }, ` of ${count(total)}`)),
      button("→", () => to(number + 1), { "aria-label": "Next document", title: "Next (j)", disabled: number >= total - 1 }),
      button("Random", random, { title: "A random document (r)" }),
      button("Find …", () => finder.open(), { title: "Find (f)", id: "find-button", "aria-expanded": String(Boolean(query.by)), "aria-controls": "finder" })),
    h("div", { class: "group toggles" },
      toggle("Whitespace", "w", options.whitespace, () => change({ ws: options.whitespace ? null : 1 }, { replace: true })),
      toggle("Ids", "i", options.ids, () => change({ ids: options.ids ? null : 1 }, { replace: true })),
      toggle("Text beside", "b", options.beside, () => change({ beside: options.beside ? 0 : null }, { replace: true })))),
    finder.box, body);

  const pages = { previous: null, next: null };
  viewKeys([
    { key: "j", what: "next document", run: () => number < total - 1 && to(number + 1) },
    { key: "k", what: "previous document", run: () => number > 0 && to(number - 1) },
    { key: "r", what: "a random document", run: random },
    { key: "f", also: "/", what: "find a document", run: () => finder.open() },
    { key: "n", what: "next page of a long document", run: () => pages.next?.() },
    { key: "p", what: "page before", run: () => pages.previous?.() },
    { key: "w", what: "whitespace visible", run: () => change({ ws: options.whitespace ? null : 1 }, { replace: true }) },
    { key: "i", what: "ids under tokens", run: () => change({ ids: options.ids ? null : 1 }, { replace: true }) },
    { key: "b", what: "text beside", run: () => change({ beside: options.beside ? 0 : null }, { replace: true }) },
  ], signal);

  if (!total) {
    body.replaceChildren(note("This split has no documents."));
    return;
  }
  const selected = query.at === undefined ? null : Number(query.at);
  const first = query.first !== undefined ? Number(query.first) : selected === null ? 0 : Math.floor(selected / 1024) * 1024;
  const { view, python: code } = await ask("document", { ...where, doc: number, first }, signal);
  body.className = "";
  const masks = view.loss_tokens !== null;
  const last = view.first_token + view.tokens.length;
  pages.next = last < view.num_tokens ? () => change({ first: last, at: null }) : null;
  pages.previous = view.first_token > 0 ? () => change({ first: Math.max(view.first_token - 1024, 0) || null, at: null }) : null;
  const strip = tokenStrip(view.tokens, view.first_token, { ...options, selected },
    (token) => change({ at: token }, { replace: true, quiet: true }));
  const compared = contents.stores.length > 1;
  const whole = view.first_token === 0 && last >= view.num_tokens;
  body.replaceChildren(...[
    h("div", { class: "doc-head" },
      facts([["source", path(view.source)], ["position", count(view.position)], ["shard", view.shard], ["tokens", count(view.num_tokens)],
        masks ? ["in the loss", `${count(view.loss_tokens)} (${Math.round((100 * view.loss_tokens) / Math.max(view.num_tokens, 1))} %)`] : null,
        ...Object.entries(view.kept).map(([name, value]) => [oneLine(name), value === null ? h("span", { class: "quiet" }, "null") : h("bdi", null, oneLine(value))])]),
      h("div", { class: "tools" },
        h("a", { class: "button", href: link("/step", { ...where, doc: view.doc }) }, "When is it seen?"),
        h("a", { class: "button", href: link("/compare", { ...where, doc: view.doc }) }, compared ? "Compare" : "Compare tokenizers"),
        python(code))),
    h("div", { class: options.beside ? "beside" : "" },
      h("section", { class: "panel", "aria-label": "Tokens of the document" }, legend({ masks }), strip),
      options.beside && h("section", { class: "panel text-panel", "aria-label": "Text of the document" },
        h("p", { class: "legend" }, whole ? "Text, as its tokens spell it" : "Text of this page, as its tokens spell it"),
        h("div", { class: "doc-text", dir: "auto", tabindex: "0", role: "region", "aria-label": "Text" }, visible(view.tokens.filter((token) => !token.special).map((token) => token.text).join(""), options.whitespace)))),
    whole ? null : pager(view, last, pages)].filter(Boolean));
  say(`Document ${number}, ${plural(view.num_tokens, "token")}`);
}

function toggle(name, key, pressed, run) {
  return button(name, run, { "aria-pressed": String(pressed), class: "toggle", title: `${name} (${key})` });
}

function pager(view, last, pages) {
  return h("nav", { class: "pager", "aria-label": "Pages of the document" },
    button("← Page before", () => pages.previous?.(), { disabled: !pages.previous, title: "Page before (p)" }),
    h("span", { class: "quiet" }, `tokens ${count(view.first_token)} to ${count(Math.max(last - 1, view.first_token))} of ${count(view.num_tokens)}`),
    button("Next page →", () => pages.next?.(), { disabled: !pages.next, title: "Next page (n)" }));
}

function finding(where, query, store, total, signal) {
  const results = h("div", { class: "found" });
  const way = query.by ?? "text";
  const value = h("input", { name: "value", value: query.value ?? "", required: true, "aria-label": "What to find", placeholder: placeholder(way), type: way === "text" || way === "field" ? "text" : "number", dir: "auto" });
  const extra = h("span");
  const drawExtra = (by) => {
    value.type = by === "text" || by === "field" ? "text" : "number";
    value.placeholder = placeholder(by);
    if (value.type === "number") value.min = 0;
    extra.replaceChildren(...(by === "field" ? [h("label", null, "Field ", h("input", { name: "field", value: query.field ?? "", required: true }))]
      : by === "position" ? [h("label", null, "Input ", h("input", { name: "source", value: query.source ?? "", required: true, class: "long" }))]
        : by === "text" ? [h("label", { class: "check" }, h("input", { name: "ignore_case", type: "checkbox", value: "1", ...(query.ignore_case === "1" ? { checked: true } : {}) }), " any case")] : []));
  };
  const chooser = h("select", { name: "by", on: { change: (event) => drawExtra(event.target.value) } },
    Object.entries(WAYS).filter(([by]) => by !== "field" || store.fields).map(([by, name]) => h("option", { value: by, selected: by === way }, name)));
  const form = h("form", { class: "inline", role: "search", on: { submit: (event) => {
    event.preventDefault();
    const asked = Object.fromEntries(new FormData(form));
    change({ field: null, source: null, ignore_case: null, ...asked });
  } } }, h("label", null, "Find by ", chooser), value, extra, h("button", { class: "primary" }, "Find"),
  button("Close", () => change({ by: null, value: null, field: null, source: null, ignore_case: null }), {}));
  drawExtra(way);
  const box = h("section", { class: "finder", id: "finder", hidden: !query.by, "aria-label": "Find a document" }, form, results);
  if (query.by && query.value !== undefined) search(results, where, query, total, signal);
  return { box, open: () => {
    box.hidden = false;
    document.getElementById("find-button").setAttribute("aria-expanded", "true");
    value.focus();
  } };
}

function placeholder(by) {
  return { text: "text, across tokens", token: "id", field: "its value", position: "byte offset or row" }[by];
}

async function search(results, where, query, total, signal) {
  if (query.by === "position") {
    try {
      const { view } = await ask("document/at", { ...where, source: query.source, position: query.value }, signal);
      if (view.doc === null) results.replaceChildren(note("No document comes from there or after it."));
      else if (String(view.doc) !== query.doc) go(link("/document", { ...where, ...query, doc: view.doc, first: null }), { replace: true });
      else results.replaceChildren(note(`The first document there or after it: ${count(view.doc)}.`));
    } catch (error) {
      if (error.name !== "AbortError") results.replaceChildren(h("p", { class: "error" }, error.message));
    }
    return;
  }
  const list = h("ol", { class: "hits" });
  const bar = h("progress", { max: Math.max(total, 1), value: 0, "aria-label": "Searched" });
  const told = h("span", { class: "quiet" });
  const stop = new AbortController();
  signal.addEventListener("abort", () => stop.abort());
  const stopper = button("Stop", () => { stop.abort(); finish("stopped"); });
  const code = h("span");
  results.replaceChildren(h("p", { class: "progress" }, bar, told, stopper, code), list);
  let hits = 0;
  const finish = (why) => {
    stopper.remove();
    told.textContent = ` ${plural(hits, "document")} found, ${why}`;
    say(told.textContent);
  };
  let next = 0;
  try {
    while (next !== null && hits < 200) {
      const { view, python: asked } = await ask("find", { ...where, by: query.by, value: query.value, field: query.field, ignore_case: query.ignore_case, first_doc: next }, stop.signal);
      if (!code.childElementCount) code.append(python(asked));
      for (const hit of view.found) {
        hits += 1;
        list.append(h("li", null, h("a", { href: link("/document", { ...where, ...query, doc: hit.doc, at: hit.token, first: null }), "aria-current": String(hit.doc) === query.doc ? "true" : null },
          `document ${count(hit.doc)}${hit.token === null ? "" : `, token ${count(hit.token)}`}`)));
      }
      next = view.next_doc;
      bar.value = next ?? total;
      told.textContent = ` ${count(next ?? total)} of ${plural(total, "document")} searched, ${count(hits)} found`;
    }
    finish(next === null ? "all are searched" : `searched up to document ${count(next)}`);
  } catch (error) {
    if (error.name !== "AbortError") results.append(h("p", { class: "error" }, error.message));
  }
}
