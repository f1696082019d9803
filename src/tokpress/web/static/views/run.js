// A build as it goes on. Each message of the server is the whole state: nothing here has to be remembered.

import { badge, brief, bytes, button, card, count, facts, h, note, path, percent, plural, seconds, say } from "/static/dom.js";
import { lines, rows, stacked } from "/static/charts.js";
import { viewKeys } from "/static/keys.js";
import { change, link } from "/static/router.js";
import { oneLine } from "/static/text.js";

export async function draw(page, { query, contents, signal }) {
  const number = Number(query.run ?? 0);
  const connection = h("span", { class: "badge plain", id: "connection" }, "connecting …");
  const body = h("div", { class: "loading" }, "Waiting for the first message …");
  page.append(h("div", { class: "bar" }, h("h1", null, "Run"), h("div", { class: "group" },
    contents.runs.length > 1 && h("label", null, h("span", { class: "visually-hidden" }, "Run"), h("select", { on: { change: (event) => change({ run: event.target.value }) } }, contents.runs.map((name, i) => h("option", { value: i, selected: i === number }, name)))), connection)), body);
  viewKeys([], signal);
  const stream = new EventSource(`/api/run/stream?run=${number}`);
  signal.addEventListener("abort", () => stream.close());
  let said = "";
  stream.addEventListener("message", (event) => {
    const found = JSON.parse(event.data);
    connection.replaceChildren(h("span", { "aria-hidden": "true" }, "●"), "live");
    connection.className = "badge good";
    const open = new Set(Array.from(body.querySelectorAll("details[open]"), (each) => each.dataset.keep));
    body.className = "";
    body.replaceChildren(...drawn(found));
    for (const each of body.querySelectorAll("details")) if (open.has(each.dataset.keep)) each.open = true;
    const state = stateOf(found).name;
    if (state !== said) say(`The run is ${said = state}`);
  });
  stream.addEventListener("error", () => {
    connection.className = "badge warn";
    connection.replaceChildren(h("span", { "aria-hidden": "true" }, "!"), "the server does not answer; trying again …");
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => !signal.aborted && change({}, { replace: true }), 2000);
  });
}

// What is true now: events say what was told, the lock whether anybody still writes.
function stateOf({ run, status, written, now }) {
  if (run.state === "finished" || (run.state === "waiting" && status?.sealed)) return { name: "finished", kind: "good" };
  if (run.state === "failed") return { name: "failed", kind: "bad" };
  if (run.state === "waiting") {
    if (!status) return { name: "not begun", kind: "plain" };
    return written ? { name: "running", kind: "good" } : { name: status.attempts.some((each) => each.state === "running") ? "running elsewhere" : "stopped", kind: written === null ? "plain" : "warn" };
  }
  if (written === false) return { name: "killed", kind: "bad", why: "Nobody writes this store, and its run did not say that it ended. The same command goes on." };
  const silent = now - run.heard_at;
  if (silent > 15) return { name: "silent", kind: "warn", why: `Nothing was heard for ${seconds(silent)}.` };
  return { name: run.state, kind: "good" };
}

function drawn(found) {
  const { run, status } = found;
  const state = stateOf(found);
  const read = run.input_bytes, total = run.bytes_left;
  const done = state.name === "finished" ? 1 : total ? Math.min(Math.max(read / total, 0), 1) : status?.units ? status.units_done / status.units : 0;
  const parts = [
    h("div", { class: "hero" }, h("div", { class: "hero-head" }, h("div", null, h("p", null, badge(state.kind, state.name), run.runs > 1 ? h("span", { class: "quiet" }, ` run ${run.runs} of this store`) : null), h("p", { class: "quiet" }, path(run.store || found.name)))),
      h("progress", { class: "run-progress", max: 1, value: done, "aria-label": "Done" }), h("p", { class: "quiet small" }, progressText(found, done)),
      state.why && note(state.why), found.problem && h("p", { class: "error" }, found.problem), run.message && h("p", { class: "error", role: "alert" }, `${run.error}: `, oneLine(run.message))),
    h("div", { class: "stats" }, stat("tokens", brief(run.state === "waiting" ? status?.tokens ?? 0 : run.tokens), run.state === "running" ? `${brief(Math.round(run.tokens_per_s))} a second` : "of this run"),
      stat("documents", brief(run.state === "waiting" ? status?.counts.written ?? 0 : run.docs), run.docs_before ? `after ${count(run.docs_before)} of earlier runs` : ""),
      stat("read", bytes(read), total ? `of ${bytes(total)}` : ""), stat("rejects", count(run.state === "waiting" ? status?.counts.rejected ?? 0 : run.rejects), ""),
      stat("units", count(Math.max(run.units_done, status?.units_done ?? 0)), `of ${count(run.units || status?.units || 0)}`),
      stat("memory", bytes(run.memory_bytes), run.memory_budget ? `of ${bytes(run.memory_budget)} at most` : "of the workers"))];
  const cards = [];
  if (run.points.length > 1) cards.push(card("Rate", { id: "rate" }, lines("Tokens a second over time", [{ label: "tokens a second", points: rates(run.points) }], { x: seconds })));
  if (run.points.some((point) => point.memory_bytes)) cards.push(card("Memory", { id: "memory" }, lines("Memory of the workers over time", [{ label: "memory", tone: "tone1", points: run.points.map((point) => [point.time, point.memory_bytes]) }],
    { x: seconds, y: bytes, limit: run.memory_budget ? { value: run.memory_budget, label: "budget" } : undefined })));
  if (run.workers.length) cards.push(card("Workers", { id: "workers" }, h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Workers" }, h("table", null, h("thead", null, h("tr", null, ["worker", "unit", "CPU", "memory", "tokens"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, run.workers.map((worker) => h("tr", null, h("td", null, worker.number), h("td", null, worker.unit ?? "idle"), h("td", null, `${Math.round(worker.cpu_percent)} %`), h("td", null, bytes(worker.memory_bytes)), h("td", null, brief(run.worker_tokens[worker.number] ?? 0)))))))));
  if (status?.attempts.length) cards.push(card("Machines", { id: "machines" }, h("table", null, h("thead", null, h("tr", null, ["share", "host", "state", "units", "tokens"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", null, status.attempts.map((each) => h("tr", null, h("td", null, each.share), h("td", null, oneLine(each.host)), h("td", null, each.state), h("td", null, each.units.length), h("td", null, brief(each.tokens))))))));
  if (run.facts?.stage_seconds) {
    const shares = Object.entries(run.facts.stage_seconds).filter(([, spent]) => spent > 0);
    cards.push(card("Stages", { id: "stages" }, stacked("Time in each stage", shares.map(([label, value], i) => ({ label, value, tone: `tone${i % 6}` })), { height: 18, shown: seconds }),
      h("p", { class: "legend" }, shares.map(([label, value], i) => h("span", null, h("span", { class: `key tone${i % 6}`, "aria-hidden": "true" }), `${label} ${seconds(value)}`))), note(`The bottleneck is ${run.facts.bottleneck}.`)));
  }
  cards.push(card("What it does", { id: "what" }, facts([["inputs", `${plural(run.files, "file")}, ${bytes(run.file_bytes)}`], ["formats", run.formats.join(", ")], ["tokenizer", run.tokenizer], ["engine", run.engine ? `${run.engine}, ${run.parity}` : ""]].filter(([, value]) => value)),
    run.first_document.length ? h("pre", { class: "preview", tabindex: "0" }, oneLine(run.first_document[0]), run.first_document[1] ? [" … ", oneLine(run.first_document[1])] : "") : null, run.notes.map((text) => note(text))));
  if (Object.keys(run.rejects_by_reason).length) cards.push(card("Rejects by reason", { id: "reasons" }, rows("Rejects by reason", Object.entries(run.rejects_by_reason).map(([label, value]) => ({ label, value })), { head: ["reason", "records"] })));
  if (run.examples.length) cards.push(card("Latest rejects", { id: "latest" }, h("ul", { class: "plain-list" }, run.examples.slice(-8).reverse().map((each) => h("li", null, h("p", { class: "small" }, h("strong", null, each.reason), ` ${each.source.split("/").pop()} at ${count(each.position)}: `, oneLine(each.detail)),
    each.preview && h("pre", { class: "preview", tabindex: "0" }, oneLine(each.preview)))))));
  parts.push(h("div", { class: "cards spaced" }, cards));
  return parts;
}

const stat = (name, value, more) => h("div", { class: "stat" }, h("span", { class: "stat-name" }, name), h("span", { class: "stat-value" }, value), h("span", { class: "stat-more" }, more));

function rates(points) {
  return points.slice(1).map((point, i) => [point.time, Math.max((point.tokens - points[i].tokens) / Math.max(point.time - points[i].time, 0.05), 0)]);
}

function progressText({ run, status }, done) {
  const parts = [percent(done, 0)];
  if (run.state === "running" && run.eta_seconds !== null) parts.push(`about ${seconds(run.eta_seconds)} left`);
  if (run.state === "running") parts.push(`${bytes(run.bytes_per_s)}/s`);
  if (status && !status.sealed) parts.push(`${count(status.units_done)} of ${plural(status.units, "unit")} stored`);
  return parts.join(" · ");
}
