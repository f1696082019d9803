// A store: totals at once; what has to be read from its files comes in parts.

import { ask } from "/static/api.js";
import { badge, brief, bytes, card, count, facts, h, note, path, percent, plural, python, seconds } from "/static/dom.js";
import { columns, rows, stacked } from "/static/charts.js";
import { viewKeys } from "/static/keys.js";
import { change, link } from "/static/router.js";
import { oneLine, visible } from "/static/text.js";

export async function draw(page, { query, store, signal }) {
  const where = { store: query.store, split: query.split };
  const { view, python: code } = await ask("store", where, signal);
  const seqLen = Number(query.seq_len ?? 2048);
  const later = (title, id, part, show, options = {}) => {
    const body = h("div", { class: "loading" }, "Reading …");
    const tools = h("span");
    const box = card(title, { id, tools, ...options }, body);
    ask(part, { ...where, ...options.parameters }, signal).then((reply) => {
      body.className = "";
      body.replaceChildren(...[show(reply.view)].flat().filter(Boolean));
      tools.replaceChildren(python(reply.python));
    }).catch((error) => {
      if (error.name !== "AbortError") body.replaceChildren(h("p", { class: "error" }, error.message));
    });
    return box;
  };
  page.append(
    heading(view, store, code, where),
    h("div", { class: "cards" },
      later("Document lengths", "lengths", "store/lengths", lengths),
      later("Most frequent tokens", "frequent", "store/tokens", (found) => frequent(found, where)),
      later("Tokens by source", "sources", "store/inputs", (found) => sources(found, where)),
      later("Packing", "packing", "store/packings", (found) => packings(found, seqLen, where), { parameters: { seq_len: seqLen } }),
      later(`Rejects`, "rejects", "store/rejects", rejects),
      tokenizer(view),
      proof(view),
      provenance(view)));
  viewKeys([], signal);
}

function heading(view, store, code, where) {
  const stat = (name, value, exact, more) => h("div", { class: "stat" }, h("span", { class: "stat-name" }, name),
    h("span", { class: "stat-value", title: exact }, value), h("span", { class: "stat-more" }, more));
  return h("div", { class: "hero" },
    h("div", { class: "hero-head" }, h("div", null, h("h1", null, store.name), h("p", { class: "quiet" }, path(view.path))), h("div", { class: "tools" },
      h("a", { class: "button", href: link("/document", { ...where, doc: 0 }) }, "Look at documents"), python(code))),
    h("div", { class: "stats" },
      stat("tokens", brief(view.tokens), count(view.tokens), `${view.dtype}, ${plural(view.shards, "shard")}`),
      stat("documents", brief(view.docs), count(view.docs), `split ${view.split}`),
      view.loss_tokens !== null && stat("in the loss", percent(view.loss_tokens / Math.max(view.tokens, 1)), count(view.loss_tokens), plural(view.loss_tokens, "token")),
      stat("tokens a document", brief(Math.round(view.tokens / Math.max(view.docs, 1))), "", "on average"),
      stat("records", brief(view.read), count(view.read), `${brief(view.written)} written + ${brief(view.rejected)} rejected`),
      h("div", { class: "stat" }, h("span", { class: "stat-name" }, "exactness"), h("span", { class: "stat-badge" }, parity(view)),
        h("span", { class: "stat-more" }, `${plural(view.audited_docs, "document")} audited`))),
    Object.keys(view.splits).length > 1 && splits(view, where));
}

function parity(view) {
  return {
    equal: () => badge("good", "proved equal"),
    "not-needed": () => badge("good", "reference itself"),
    different: () => badge("warn", "fast engine refused"),
    unsupported: () => badge("plain", "reference used"),
  }[view.parity]?.() ?? badge("plain", view.parity);
}

function splits(view, where) {
  const entries = Object.entries(view.splits);
  return h("div", { class: "splits" }, stacked("Tokens of each split", entries.map(([name, split], i) => ({ label: name, value: split.tokens, tone: `tone${i % 6}` }))),
    h("p", { class: "legend" }, entries.map(([name, split], i) => h("a", { href: link("/store", { ...where, split: name }), "aria-current": name === view.split ? "true" : null },
      h("span", { class: `key tone${i % 6}`, "aria-hidden": "true" }), `${name}: ${plural(split.docs, "document")}, ${brief(split.tokens)} tokens`))));
}

function sampled(what, lookedAt, all) {
  return lookedAt < all ? note(`From a sample: ${count(lookedAt)} of ${count(all)} ${what}, evenly spaced.`) : null;
}

function lengths(found) {
  const spread = found.lengths;
  const from = spread.histogram.findIndex((entry) => entry.docs);
  const shown = spread.histogram.slice(Math.max(from, 0));
  return [
    columns(`Documents by length in tokens: median ${count(spread.p50)}, 99 % at most ${count(spread.p99)}`,
      shown.map((entry) => ({ label: brief(entry.up_to), value: entry.docs, title: `${count(Math.floor(entry.up_to / 2) + 1)} to ${count(entry.up_to)} tokens: ${plural(entry.docs, "document")}` })),
      { unit: "tokens, up to" }),
    facts([["mean", count(found.mean)], ["median", count(spread.p50)], ["90 %", count(Math.round(spread.p90))], ["99 %", count(Math.round(spread.p99))], ["longest", count(spread.max)],
      spread.empty ? ["empty", count(spread.empty)] : null]),
    sampled("documents", found.looked_at, found.docs)];
}

function frequent(found, where) {
  return [
    facts([["characters a token", found.chars_per_token.toFixed(2)], ["bytes a token", found.bytes_per_token.toFixed(2)],
      ["vocabulary in use", `${count(found.distinct)} of ${count(found.vocab_size)} (${percent(found.distinct / Math.max(found.vocab_size, 1), 0)})`]]),
    h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Most frequent tokens" }, rows("Most frequent tokens", found.frequent.map((token) => ({
      label: h("a", { class: "token-link", href: link("/document", { ...where, by: "token", value: token.id }), title: `id ${token.id}: find documents with it` },
        h("span", { class: token.special ? "t special" : "t c1" }, token.text ? visible(token.text, true) : "␀"), h("span", { class: "quiet" }, ` ${token.id}`)),
      value: token.count, shown: percent(token.count / Math.max(found.looked_at, 1), 2) })), { head: ["token", "share"] })),
    sampled("tokens", found.looked_at, found.tokens)];
}

function sources(found, where) {
  const listed = found.sources.map((source) => ({
    label: h("a", { href: link("/document", { ...where, by: "position", source: source.path, value: 0 }), title: source.path }, path(source.path.split("/").pop())),
    value: source.tokens, shown: `${brief(source.tokens)}` }));
  if (found.other_docs) listed.push({ label: h("span", { class: "quiet" }, "all others"), value: found.other_tokens, shown: brief(found.other_tokens), tone: "pale" });
  return [facts([["inputs", count(found.inputs)], ["their bytes", bytes(found.input_bytes)]]),
    h("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Sources" }, rows("Tokens by source", listed, { head: ["source", "tokens"] })),
    found.exact ? null : note("Tokens of inputs that share a shard are estimated by their documents.")];
}

function packings(found, seqLen, where) {
  const form = h("form", { class: "inline", on: { submit: (event) => {
    event.preventDefault();
    const value = Number(new FormData(event.target).get("seq_len"));
    if (value > 0) change({ seq_len: value === 2048 ? null : value });
  } } }, h("label", null, "Sequence length ", h("input", { name: "seq_len", type: "number", min: 1, max: 1048576, value: seqLen, required: true })), h("button", null, "Show"));
  const entries = found.map(({ stored, looked_at: lookedAt, efficiency, waste }) => h("div", { class: "packing" },
    h("h3", null, h("a", { href: link("/sequence", { ...where, method: waste.method, seq_len: waste.seq_len }) }, `${waste.method}, ${count(waste.seq_len)}`),
      stored ? [" ", badge("plain", "stored plan")] : null),
    stacked(`${waste.method}: positions`, [
      { label: "tokens", value: waste.sequences * waste.seq_len - waste.padding, tone: "tone0" },
      { label: "padding", value: waste.padding, tone: "pale" }], { height: 14 }),
    h("p", { class: "quiet small" }, `${plural(waste.sequences, "sequence")}; ${percent(efficiency, 2)} of positions hold tokens; ${lookedAt < waste.docs ? "about " : ""}${count(waste.docs_cut)} documents cut`
      + (waste.truncated_tokens ? `; ${brief(waste.truncated_tokens)} tokens left out` : ""))));
  const estimated = found.find((entry) => entry.looked_at < entry.waste.docs);
  return [form, ...entries, estimated ? sampled("documents", estimated.looked_at, estimated.waste.docs) : null];
}

function rejects(found) {
  if (!found.rejected) return [badge("good", "none"), note(`All ${plural(found.read, "record")} that were read are in the store.`)];
  return [h("p", null, `${count(found.rejected)} of ${plural(found.read, "record")} were read and not written.`),
    ...found.reasons.map((reason) => h("details", { class: "reason", open: found.reasons.length === 1 }, h("summary", null, h("span", null, reason.reason),
      h("span", { class: "number" }, count(reason.count)), reason.on_request ? badge("plain", "asked for") : badge("warn", "bad")),
    reason.examples.length ? h("ul", null, reason.examples.map((example) => h("li", null,
      h("p", { class: "small" }, path(example.source), ` at ${count(example.position)}`, example.line ? `, line ${count(example.line)}` : "", ": ", oneLine(example.detail)),
      example.preview && h("pre", { class: "preview", tabindex: "0" }, oneLine(example.preview))))) : note("No example is among the first rejects.")))];
}

function tokenizer(view) {
  const special = Object.entries(view.tokenizer.special_tokens).sort(([, a], [, b]) => a - b);
  return card("Tokenizer", { id: "tokenizer" },
    facts([["kind", view.tokenizer.kind], ["vocabulary", count(view.tokenizer.vocab_size)], ["before a document", frame(view, view.bos_id)], ["after it", frame(view, view.eos_id)],
      ["literals in text", view.special_tokens], ["fingerprint", h("code", null, view.tokenizer.fingerprint.slice(0, 16))]]),
    h("h3", null, plural(special.length, "special token")),
    h("div", { class: "chips" }, special.slice(0, 60).map(([name, id]) => h("span", { class: "chip" }, h("span", { class: "t special" }, oneLine(name)), ` ${id}`)),
      special.length > 60 && h("span", { class: "quiet" }, `and ${count(special.length - 60)} more`)));
}

function frame(view, id) {
  if (id === null) return h("span", { class: "quiet" }, "nothing");
  const name = Object.entries(view.tokenizer.special_tokens).find(([, each]) => each === id)?.[0] ?? "";
  return [h("span", { class: "t special" }, oneLine(name)), ` ${id}`];
}

function proof(view) {
  const parity_ = view.proof;
  return card("Proof and audit", { id: "proof" }, h("p", null, parity(view)),
    facts([["engine", parity_.engine], ["reference", [parity_.reference, parity_.reference_version ? ` ${parity_.reference_version}` : ""]],
      ["compared before", `${plural(parity_.docs, "document")}, ${bytes(parity_.bytes)}`], ["audited during", `${plural(view.audit.docs, "document")} (every ${view.audit.rate ? count(Math.round(1 / view.audit.rate)) : "–"}th)`],
      parity_.detail ? ["why", oneLine(parity_.detail)] : null,
      ["conserved", `${count(view.read)} read = ${count(view.written)} written + ${count(view.rejected)} rejected`]]));
}

function provenance(view) {
  const run = view.run;
  const known = (value) => value !== undefined && value !== null;
  const shares = Object.entries(run.stage_seconds ?? {}).filter(([, spent]) => spent > 0);
  return card("Provenance", { id: "provenance" },
    facts([
      known(run.imported_from) ? ["imported from", String(run.imported_from)] : null,
      known(run.seconds) && run.seconds ? ["built in", seconds(run.seconds)] : null,
      known(run.tokens_per_s) ? ["rate", `${brief(run.tokens_per_s)} tokens/s`] : null,
      known(run.workers) ? ["workers", `${run.workers} of ${run.threads ?? 1} threads`] : null,
      known(run.peak_memory_bytes) ? ["memory at most", bytes(run.peak_memory_bytes)] : null,
      known(run.bottleneck) ? ["bottleneck", run.bottleneck] : null,
      known(run.tokenizer) ? ["tokenizer as given", path(String(run.tokenizer))] : null,
      ["store", h("code", null, view.fingerprint.slice(0, 16))]]),
    shares.length ? stacked("Time in each stage", shares.map(([label, value], i) => ({ label, value, tone: `tone${i % 6}` })), { height: 14, shown: seconds }) : null,
    shares.length ? h("p", { class: "legend" }, shares.map(([label], i) => h("span", null, h("span", { class: `key tone${i % 6}`, "aria-hidden": "true" }), label))) : null,
    known(run.versions) ? h("details", null, h("summary", null, "Versions"), facts([["python", run.python], ...Object.entries(run.versions)])) : null);
}
