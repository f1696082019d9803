// A packed sequence as a training step gets it: documents, positions, labels.

import { ask } from "/static/api.js";
import { button, count, facts, h, path, percent, python, say } from "/static/dom.js";
import { stacked } from "/static/charts.js";
import { viewKeys } from "/static/keys.js";
import { change, link } from "/static/router.js";
import { legend, tokenStrip } from "/static/tokens.js";

export const METHODS = ["concat", "bestfit", "pad"];

export async function draw(page, { query, store, signal }) {
  const where = { store: query.store, split: query.split };
  const asked = { seq: query.seq, seq_len: query.seq_len, method: query.method, shift: query.shift, mask_across_docs: query.mask_across_docs, first: query.first };
  const options = { whitespace: query.ws === "1", ids: query.ids === "1" };
  const number = Number(query.seq ?? 0);
  const body = h("div", { class: "loading" }, "Reading …");
  let total = null;
  const to = (seq) => change({ seq: Math.max(total === null ? seq : Math.min(seq, total - 1), 0), first: null, at: null });
  const random = () => total && to(Math.floor(Math.random() * total));
  page.append(h("h1", { class: "visually-hidden" }, `Sequences of ${store.name}`), form(query, ["shift", "mask_across_docs"]),
    h("div", { class: "bar" }, h("div", { class: "group" },
      button("←", () => to(number - 1), { "aria-label": "Previous sequence", title: "Previous (k)", disabled: number <= 0 }),
      h("form", { class: "inline", on: { submit: (event) => { event.preventDefault(); to(Number(new FormData(event.target).get("seq"))); } } },
        h("label", null, h("span", { class: "label" }, "Sequence "), h("input", { name: "seq", type: "number", min: 0, value: number, required: true })), h("span", { class: "quiet", id: "of" })),
      button("→", () => to(number + 1), { "aria-label": "Next sequence", title: "Next (j)" }),
      button("Random", random, { title: "A random sequence (r)" })),
    h("div", { class: "group toggles" },
      button("Whitespace", () => change({ ws: options.whitespace ? null : 1 }, { replace: true }), { class: "toggle", "aria-pressed": String(options.whitespace), title: "Whitespace (w)" }),
      button("Ids", () => change({ ids: options.ids ? null : 1 }, { replace: true }), { class: "toggle", "aria-pressed": String(options.ids), title: "Ids (i)" }))), body);
  viewKeys([
    { key: "j", what: "next sequence", run: () => to(number + 1) },
    { key: "k", what: "previous sequence", run: () => to(number - 1) },
    { key: "r", what: "a random sequence", run: random },
    { key: "w", what: "whitespace visible", run: () => change({ ws: options.whitespace ? null : 1 }, { replace: true }) },
    { key: "i", what: "ids under tokens", run: () => change({ ids: options.ids ? null : 1 }, { replace: true }) },
  ], signal);
  const { view, python: code } = await ask("sequence", { ...where, ...asked }, signal);
  total = view.num_sequences;
  page.querySelector("#of").textContent = ` of ${count(total)}`;
  body.className = "";
  const selected = query.at === undefined ? null : Number(query.at);
  body.replaceChildren(
    h("div", { class: "doc-head" }, facts([["documents", count(view.documents.length)], ["padding", count(view.padding)],
      ["labels that count", `${count(view.loss_tokens)} (${percent(view.loss_tokens / Math.max(view.seq_len, 1), 0)})`], ["packing", `${view.method}, ${count(view.seq_len)}`]]),
    h("div", { class: "tools" }, python(code))),
    packed(view),
    h("section", { class: "panel", "aria-label": "Tokens of the sequence" }, legend({ masks: true, documents: true }), sequenceStrip(view, { ...options, selected }, where,
      (token) => change({ at: token }, { replace: true, quiet: true }))),
    pager(view), documents(view, where));
  say(`Sequence ${number} of ${total}`);
}

export function packed(view) {
  const parts = view.documents.map((stretch, i) => ({ label: `document ${stretch.doc}`, value: stretch.tokens, tone: `tone${i % 5}` }));
  if (view.padding) parts.push({ label: "padding", value: view.padding, tone: "pale" });
  return stacked("Documents in the sequence", parts, { height: 16, of: view.seq_len });
}

// Also for the rows of a step.
export function sequenceStrip(view, options, where, onSelect) {
  const starts = new Map(view.documents.map((stretch) => [stretch.column, stretch]));
  return tokenStrip(view.tokens, view.first_token, { ...options,
    label: (number) => {
      const k = number - view.first_token;
      const stretch = starts.get(number) ?? (k === 0 && view.documents.find((each) => each.column <= number && number < each.column + each.tokens));
      return { masked: !view.loss_mask[k], padding: view.doc_ids[k] < 0, begins: Boolean(stretch), heading: stretch && `${stretch.doc}${stretch.first_token ? ` +${stretch.first_token}` : ""}` };
    },
    more: (number) => {
      const k = number - view.first_token;
      return [["document", view.doc_ids[k] < 0 ? "padding" : count(view.doc_ids[k])], ["position", count(view.position_ids[k])], ["label", view.labels[k] < 0 ? "ignored" : view.labels[k]]];
    } }, onSelect);
}

function documents(view, where) {
  return h("div", { class: "card spaced" }, h("header", { class: "card-head" }, h("h2", null, "Documents in it")), h("div", { class: "card-body scroll", tabindex: "0", role: "region", "aria-label": "Documents in the sequence" }, h("table", null,
    h("thead", null, h("tr", null, ["document", "column", "tokens", "from its token", "source", "position"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, view.documents.slice(0, 200).map((stretch) => h("tr", null,
      h("td", null, h("a", { href: link("/document", { ...where, doc: stretch.doc, at: stretch.first_token || null }) }, count(stretch.doc))), h("td", null, count(stretch.column)), h("td", null, count(stretch.tokens)),
      h("td", null, count(stretch.first_token)), h("td", null, path(stretch.source)), h("td", null, count(stretch.position))))))));
}

function pager(view) {
  const last = view.first_token + view.tokens.length;
  return h("nav", { class: "pager", "aria-label": "Pages of the sequence" },
    button("← Page before", () => change({ first: Math.max(view.first_token - 1024, 0) || null, at: null }), { disabled: view.first_token === 0 }),
    h("span", { class: "quiet" }, `positions ${count(view.first_token)} to ${count(Math.max(last - 1, 0))} of ${count(view.seq_len)}`),
    button("Next page →", () => change({ first: last, at: null }), { disabled: last >= view.seq_len }));
}

// Length, method and more, as a form that changes the address.
export function form(query, flags, ...more) {
  const box = h("form", { class: "inline options", "aria-label": "Packing", on: { submit: (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(box));
    change({ ...Object.fromEntries(flags.map((name) => [name, null])), ...given, first: null, at: null });
  } } },
  h("label", null, "Length ", h("input", { name: "seq_len", type: "number", min: 1, max: 262144, value: query.seq_len ?? 2048, required: true })),
  h("label", null, "Packing ", h("select", { name: "method" }, METHODS.map((name) => h("option", { value: name, selected: name === (query.method ?? "concat") }, name)))),
  ...more,
  ...flags.map((name) => h("label", { class: "check" }, h("input", { type: "checkbox", name, value: "1", ...(query[name] === "1" ? { checked: true } : {}) }), { shift: " shifted labels", mask_across_docs: " no label across documents" }[name])),
  h("button", { class: "primary" }, "Show"));
  return box;
}
