// Steps of a training run: what their time consists of, over time.

import { ask } from "/static/api.js";
import { badge, card, count, facts, h, note, path, percent, python } from "/static/dom.js";
import { lines, stacked } from "/static/charts.js";
import { viewKeys } from "/static/keys.js";
import { change } from "/static/router.js";

const PHASES = { tokenize: ["tokenizing", "tone3"], data: ["waiting for data", "tone2"], copy: ["host to device", "tone4"], compute: ["compute", "tone1"], sync: ["synchronising", "tone0"], other: ["other", "tone5"], rest: ["compute and all else", "tone1"] };

export async function draw(page, { query, contents, signal }) {
  const number = Number(query.meter ?? 0);
  const { view, python: code } = await ask("training", { meter: number }, signal);
  viewKeys([], signal);
  const last = view.points.at(-1);
  const names = Object.keys(PHASES).filter((name) => view.points.some((point) => point.phases[name]));
  const ms = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
  page.append(h("div", { class: "bar" }, h("div", null, h("h1", null, "Training"), h("p", { class: "quiet" }, path(view.name))), h("div", { class: "group" },
    contents.meters.length > 1 && h("label", null, h("span", { class: "visually-hidden" }, "Meter"), h("select", { on: { change: (event) => change({ meter: event.target.value }) } }, contents.meters.map((name, i) => h("option", { value: i, selected: i === number }, name)))), python(code))));
  if (!last) {
    page.append(note("Nothing was written yet."));
    return;
  }
  const share = (name) => (last.phases[name] ?? 0) / Math.max(last.mean_ms, 1e-9);
  const starved = share("data") + share("tokenize");
  page.append(
    h("div", { class: "stats spaced-below" }, [["step", ms(last.mean_ms), `99 % within ${ms(last.p99_ms)}`], ["tokens a second", count(Math.round(last.tokens_per_s)), ""], ["steps", count(last.step), ""],
      ["waiting for data", percent(starved), "with tokenizing"]].map(([name, value, more]) => h("div", { class: "stat" }, h("span", { class: "stat-name" }, name), h("span", { class: "stat-value" }, value), h("span", { class: "stat-more" }, more)))),
    h("div", { class: "cards" },
      card("The latest step", { id: "latest" }, stacked("Phases of a step", names.map((name) => ({ label: PHASES[name][0], value: last.phases[name], tone: PHASES[name][1] })), { height: 24, shown: ms }),
        h("p", { class: "legend" }, names.map((name) => h("span", null, h("span", { class: `key ${PHASES[name][1]}`, "aria-hidden": "true" }), `${PHASES[name][0]} ${percent(share(name))}`))),
        h("p", null, starved > 0.05 ? badge("warn", `${percent(starved, 0)} of the step wait for data`) : badge("good", "the data keeps up"))),
      card("Phases over time", { id: "phases" }, lines("Milliseconds of each phase over steps", names.map((name) => ({ label: PHASES[name][0], tone: PHASES[name][1], points: view.points.map((point) => [point.step, point.phases[name] ?? 0]) })), { y: ms, x: (step) => `step ${count(step)}` })),
      card("Tokens a second", { id: "speed" }, lines("Tokens a second over steps", [{ label: "tokens a second", points: view.points.map((point) => [point.step, point.tokens_per_s]) }], { x: (step) => `step ${count(step)}` })),
      card("Step time", { id: "time" }, lines("Step time over steps", [{ label: "mean", points: view.points.map((point) => [point.step, point.mean_ms]) }, { label: "99 %", tone: "tone2", points: view.points.map((point) => [point.step, point.p99_ms]) }], { y: ms, x: (step) => `step ${count(step)}` })),
      view.latest && card("Report", { id: "report" }, facts([["device", view.latest.device], ["ranks", count(view.latest.ranks)], ["steps in it", count(view.latest.steps)]]))));
  if (view.looked_at > view.points.length) page.append(note(`${count(view.points.length)} of ${count(view.looked_at)} reports are drawn.`));
}
