// Two tokenizers on one text, or two stores on one record.

import { ask } from "/static/api.js";
import { button, card, count, facts, h, note, path, percent, python, say } from "/static/dom.js";
import { stacked } from "/static/charts.js";
import { viewKeys } from "/static/keys.js";
import { change, link } from "/static/router.js";
import { visible } from "/static/text.js";

export async function draw(page, { query, contents, store, signal }) {
  const where = { store: query.store, split: query.split };
  const names = contents.tokenizers;
  const a = Number(query.a ?? query.store ?? 0);
  const b = Number(query.b ?? (names.length > 1 ? (a === 0 ? 1 : 0) : 0));
  const others = contents.stores.filter((entry) => entry.number !== Number(query.store ?? 0));
  const stored = query.other !== undefined;
  const choose = (name, value) => h("select", { name, "aria-label": name === "a" ? "First tokenizer" : "Second tokenizer" }, names.map((label, i) => h("option", { value: i, selected: i === value }, `${label}`)));
  const area = h("textarea", { name: "text", rows: 4, maxlength: 16384, dir: "auto", placeholder: "Type or paste a text …", "aria-label": "Text to compare on" });
  area.value = query.text ?? "";
  const ways = h("div", { class: "group" },
    button("Typed text or document", () => change({ other: null }), { class: "toggle", "aria-pressed": String(!stored) }),
    others.length > 0 && button("Two stores, same record", () => change({ other: others[0].number, text: null, doc: query.doc ?? 0 }), { class: "toggle", "aria-pressed": String(stored) }));
  const form = stored
    ? h("form", { class: "inline", on: { submit: (event) => { event.preventDefault(); change(Object.fromEntries(new FormData(event.target))); } } },
      h("label", null, "Document ", h("input", { name: "doc", type: "number", min: 0, value: query.doc ?? 0, required: true })), h("span", null, ` of ${store.name} beside `),
      h("label", null, h("span", { class: "visually-hidden" }, "Other store"), h("select", { name: "other" }, others.map((entry) => h("option", { value: entry.number, selected: String(entry.number) === query.other }, entry.name)))), h("button", { class: "primary" }, "Show"))
    : h("form", { class: "compare-form", on: { submit: (event) => {
      event.preventDefault();
      const given = Object.fromEntries(new FormData(event.target));
      change({ ...given, doc: given.text ? null : query.doc });
    } } }, area, h("div", { class: "inline" }, choose("a", a), h("span", null, "beside"), choose("b", b), h("button", { class: "primary" }, "Compare"),
      query.doc !== undefined && !query.text ? h("span", { class: "quiet" }, `on document ${count(Number(query.doc))} of ${store.name}`) : null));
  const body = h("div");
  page.append(h("h1", { class: "visually-hidden" }, "Two tokenizers side by side"), h("div", { class: "bar" }, ways), form, body);
  viewKeys([{ key: "e", what: "edit the text", run: () => area.focus() }], signal);
  if (stored) {
    const { view, python: code } = await ask("align", { ...where, doc: query.doc ?? 0, other: query.other }, signal);
    const other = contents.stores[Number(query.other)];
    body.replaceChildren(h("div", { class: "doc-head" }, facts([["source", path(view.source)], ["position", count(view.position)],
      ...[store, other].map((entry, i) => [entry.name, view.docs[i] === null ? "no document of it" : h("a", { href: link("/document", { store: entry.number, doc: view.docs[i] }) }, `document ${count(view.docs[i])}`)])]), h("div", { class: "tools" }, python(code))),
    view.compared ? sides(view.compared, [store.name, other.name]) : note(`${other.name} has no document that comes from there.`));
    return;
  }
  if (query.text || query.doc !== undefined) {
    const { view } = await ask("compare", { ...where, a, b, text: query.text, doc: query.text ? undefined : query.doc }, signal);
    body.replaceChildren(sides(view, [names[a], names[b]]));
    say(`${view.sides[0].num_tokens} and ${view.sides[1].num_tokens} tokens`);
  } else body.replaceChildren(note("Type a text, or open a document and choose Compare."));
}

function sides(view, names) {
  const most = Math.max(...view.sides.map((side) => side.num_tokens), 1);
  return h("div", null,
    h("div", { class: "compare-counts" }, view.sides.map((side, i) => h("div", { class: "count-row" }, h("span", null, names[i]), stacked(names[i], [{ label: "tokens", value: side.num_tokens, tone: `tone${i}` }], { height: 14, of: most }),
      h("span", { class: "number" }, `${count(side.num_tokens)} tokens, ${(view.text_chars / Math.max(side.num_tokens, 1)).toFixed(2)} characters each`)))),
    h("p", { class: "legend" }, `${count(view.regions)} ${view.regions === 1 ? "stretch is" : "stretches are"} cut differently; `, h("span", null, h("span", { class: "t differs" }, "like this"), " the other cuts elsewhere"),
      !view.same_text && h("span", { class: "error" }, "The two spell different text."), view.cut && h("span", null, "This is the beginning of a longer text.")),
    h("div", { class: "beside even" }, view.sides.map((side, i) => card(names[i], { id: `side-${i}` }, h("div", { class: "tokens plain", dir: "auto", tabindex: "0", role: "region", "aria-label": `Tokens of ${names[i]}` },
      side.ids.slice(0, 6000).map((id, k) => h("span", { class: `t c${k % 6}${side.differs[k] ? " differs" : ""}${side.special[k] ? " special" : ""}${side.texts[k] ? "" : " part"}`, title: `id ${id}, bytes ${side.starts[k]} to ${side.stops[k]}` }, visible(side.texts[k] || "")))),
    h("p", { class: "quiet small" }, `${percent(side.differs.filter(Boolean).length / Math.max(side.num_tokens, 1), 0)} of its tokens differ`)))));
}
