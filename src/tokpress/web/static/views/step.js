// A step of a Loader: which documents, from where, as which tokens; and when a document is seen.

import { ask } from "/static/api.js";
import { button, brief, count, facts, h, note, plural, python, say } from "/static/dom.js";
import { viewKeys } from "/static/keys.js";
import { change, link } from "/static/router.js";
import { form, packed, sequenceStrip } from "/static/views/sequence.js";

export async function draw(page, { query, contents, store, signal }) {
  const where = { store: query.store, split: query.split };
  const options = Object.fromEntries(["seq_len", "method", "shift", "batch_size", "world_size", "seed", "shuffle", "weights"].map((name) => [name, query[name]]));
  const number = Number(query.step ?? 0);
  const rows = h("div", { class: "loading" }, "Working it out …");
  const seen = h("div");
  let steps = null;
  const to = (step) => change({ step: Math.max(steps === null ? step : Math.min(step, steps - 1), 0), first: null });
  const field = (name, label, value, properties) => h("label", null, `${label} `, h("input", { name, type: "number", min: name === "seed" ? 0 : 1, value: query[name] ?? value, required: true, class: "short", ...properties }));
  page.append(h("h1", { class: "visually-hidden" }, "A step of a Loader"),
    form(query, ["shift"], field("batch_size", "Batch", 8), field("world_size", "Ranks", 1), field("seed", "Seed", 0),
      h("label", null, "Order ", h("select", { name: "shuffle" }, [["samples", "shuffled"], ["blocks", "blocks"], ["none", "as stored"]].map(([value, name]) => h("option", { value, selected: value === (query.shuffle ?? "samples") }, name)))),
      contents.stores.length > 1 && h("label", null, "Mixture ", h("input", { name: "weights", value: query.weights ?? "", placeholder: "0:3,1:1", pattern: "[0-9:.,]*", title: "store:weight, by the numbers of the stores" }))),
    h("div", { class: "bar" }, h("div", { class: "group" },
      button("←", () => to(number - 1), { "aria-label": "Previous step", title: "Previous (k)", disabled: number <= 0 }),
      h("form", { class: "inline", on: { submit: (event) => { event.preventDefault(); to(Number(new FormData(event.target).get("step"))); } } },
        h("label", null, h("span", { class: "label" }, "Step "), h("input", { name: "step", type: "number", min: 0, value: number, required: true })), h("span", { class: "quiet", id: "of" })),
      button("→", () => to(number + 1), { "aria-label": "Next step", title: "Next (j)" })),
    h("form", { class: "inline", on: { submit: (event) => { event.preventDefault(); change({ doc: new FormData(event.target).get("doc") }); } } },
      h("label", null, "When is document ", h("input", { name: "doc", type: "number", min: 0, value: query.doc ?? "", required: true })), h("button", null, "seen?"))),
    seen, rows);
  viewKeys([{ key: "j", what: "next step", run: () => to(number + 1) }, { key: "k", what: "previous step", run: () => to(number - 1) }], signal);
  if (query.doc !== undefined) {
    ask("when", { ...where, ...options, doc: query.doc, source: options.weights ? `s${query.store ?? 0}` : undefined }, signal).then(({ view, python: code }) => {
      const links = view.steps.slice(0, 50).map((step) => h("a", { href: link("/step", { ...query, step }), "aria-current": step === number ? "true" : null }, `step ${count(step)}`));
      seen.replaceChildren(h("p", { class: "answer" }, view.steps.length ? [`Document ${count(view.doc)} is seen in `, links.flatMap((each, i) => (i ? [", ", each] : [each])), "."] : `Document ${count(view.doc)} is not seen in the first epoch: it is empty, or left over at the end.`, " ", python(code)));
    }).catch((error) => error.name !== "AbortError" && seen.replaceChildren(h("p", { class: "error" }, error.message)));
  }
  const { view, python: code } = await ask("step", { ...where, ...options, step: number, first: query.first }, signal);
  steps = view.steps;
  page.querySelector("#of").textContent = steps === null ? " without end" : ` of ${count(steps)}`;
  rows.className = "";
  const of = new Map(contents.stores.map((entry) => [entry.path, entry]));
  rows.replaceChildren(
    h("div", { class: "doc-head" }, facts([["samples", count(view.samples)], ["tokens of the step", brief(view.tokens)], ["ranks", count(view.world_size)]]), h("div", { class: "tools" }, python(code))),
    ...view.rows.map((row) => {
      const place = { ...where, store: of.get(row.store)?.number ?? query.store };
      return h("section", { class: "panel row", "aria-label": `Sample ${row.sample}` },
        h("header", { class: "card-head" }, h("h2", null, `sample ${count(row.sample)}`), h("span", { class: "quiet small" }, `rank ${row.rank} · ${row.source === "data" ? "" : `${of.get(row.store)?.name ?? row.source} · `}`,
          h("a", { href: link("/sequence", { ...place, seq: row.sequence.seq, seq_len: row.sequence.seq_len, method: row.sequence.method, shift: options.shift }) }, `sequence ${count(row.sequence.seq)}`), ` · ${plural(row.sequence.documents.length, "document")}: `,
          row.sequence.documents.slice(0, 6).flatMap((stretch, i) => [i ? ", " : "", h("a", { href: link("/document", { ...place, doc: stretch.doc }), title: `${stretch.source} at ${stretch.position}` }, count(stretch.doc))]),
          row.sequence.documents.length > 6 ? " …" : "")),
        h("div", { class: "row-bar" }, packed(row.sequence)),
        h("div", { class: "row-tokens" }, sequenceStrip(row.sequence, {}, place)));
    }),
    h("nav", { class: "pager", "aria-label": "Samples of the step" },
      button("← Samples before", () => change({ first: Math.max(view.first - 8, 0) || null }), { disabled: view.first === 0 }),
      h("span", { class: "quiet" }, `samples ${view.first} to ${view.first + view.rows.length - 1} of ${count(view.samples)} in the step; the first ${view.rows[0]?.sequence.tokens.length ?? 0} tokens of each`),
      button("Next samples →", () => change({ first: view.first + view.rows.length }), { disabled: view.first + view.rows.length >= view.samples })),
    note("Worked out from the seed: nothing was recorded while training."));
  say(`Step ${number}`);
}
