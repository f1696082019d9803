// Charts as SVG, drawn to the width that there is, each with its numbers as a table for who does not see it.

import { brief, count, h, s } from "/static/dom.js";

// `draw(width)` gives the SVG; it is drawn again when there is more or less room.
function fitted(label, height, draw) {
  const box = h("div", { class: "chart", css: { "--height": `${height}px` } });
  let known = 0;
  const observer = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width < 40 || width === known) return;
    known = width;
    const svg = draw(width);
    for (const [name, value] of Object.entries({ role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` })) svg.setAttribute(name, value);
    box.replaceChildren(svg);
  });
  observer.observe(box);
  return box;
}

function table(head, rows) {
  return h("details", { class: "numbers" }, h("summary", null, "Numbers"),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Numbers of the chart" }, h("table", null,
      h("thead", null, h("tr", null, head.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", null, rows.map((row) => h("tr", null, row.map((cell) => h("td", null, cell))))))));
}

function nice(most) {
  if (!most) return 1;
  const power = 10 ** Math.floor(Math.log10(most));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= most);
}

// Columns: entries of {label, value, title}.
export function columns(label, entries, { height = 190, unit = "" } = {}) {
  const most = nice(Math.max(...entries.map((entry) => entry.value), 0));
  const draw = (width) => {
    const left = 44, bottom = 26, top = 10;
    const room = width - left - 6, tall = height - bottom - top;
    const step = room / Math.max(entries.length, 1);
    const every = Math.ceil(44 / step);
    const grid = [0, 0.5, 1].map((part) => s("g", null,
      s("line", { class: "grid", x1: left, x2: width, y1: top + tall * (1 - part), y2: top + tall * (1 - part) }),
      s("text", { class: "axis end", x: left - 6, y: top + tall * (1 - part) + 4 }, brief(most * part))));
    const bars = entries.map((entry, i) => {
      const tallness = Math.max((entry.value / most) * tall, entry.value ? 2 : 0);
      return s("g", null,
        s("rect", { class: "bar", x: left + i * step + step * 0.1, y: top + tall - tallness, width: step * 0.8, height: tallness, rx: Math.min(3, step * 0.2) },
          s("title", null, entry.title ?? `${entry.label}: ${count(entry.value)}`)),
        i % every === 0 && s("text", { class: "axis middle", x: left + (i + 0.5) * step, y: height - 8 }, entry.label));
    });
    return s("svg", null, grid, bars);
  };
  return h("figure", null, fitted(label, height, draw), table([unit || "class", "count"], entries.map((entry) => [entry.label, count(entry.value)])));
}

// Rows: entries of {label (nodes), value, shown, href}, the longest bar first.
export function rows(label, entries, { head = ["", "count"] } = {}) {
  const most = Math.max(...entries.map((entry) => entry.value), 1);
  return h("table", { class: "rows" }, h("caption", { class: "visually-hidden" }, label),
    h("thead", { class: "visually-hidden" }, h("tr", null, h("th", { scope: "col" }, head[0]), h("th", { scope: "col" }, head[1]), h("td"))),
    h("tbody", null, entries.map((entry) => h("tr", null,
      h("th", { scope: "row" }, entry.label),
      h("td", { class: "number" }, entry.shown ?? count(entry.value)),
      h("td", { class: "bar-cell", "aria-hidden": "true" }, s("svg", { width: "100%", height: 10, preserveAspectRatio: "none", viewBox: "0 0 100 10" },
        s("rect", { class: "track", width: 100, height: 10 }),
        s("rect", { class: entry.tone ? `bar ${entry.tone}` : "bar", width: Math.max((entry.value / most) * 100, entry.value ? 0.5 : 0), height: 10 })))))));
}

// One bar of parts: entries of {label, value, tone}.
export function stacked(label, entries, { height = 26, shown = count, of } = {}) {
  const total = of ?? (entries.reduce((sum, entry) => sum + entry.value, 0) || 1);
  const draw = (width) => {
    let x = 0;
    return s("svg", null, s("rect", { class: "track", width, height, rx: 4 }), entries.map((entry) => {
      const wide = (entry.value / total) * width;
      const bar = s("rect", { class: `bar ${entry.tone ?? ""}`, x, y: 0, width: Math.max(wide - (wide > 2 ? 1 : 0), 0), height }, s("title", null, `${entry.label}: ${shown(entry.value)}`));
      x += wide;
      return bar;
    }));
  };
  const text = `${label}: ${entries.map((entry) => `${entry.label} ${shown(entry.value)}`).join(", ")}`;
  return fitted(text, height, draw);
}

// Lines over time: series of {label, tone, points: [[x, y], ...]}.
export function lines(label, series, { height = 190, x = (value) => brief(value), y = brief, from = 0, limit } = {}) {
  const points = series.flatMap((entry) => entry.points);
  const last = Math.max(...points.map(([at]) => at), from + 1e-9);
  const first = Math.min(...points.map(([at]) => at), last);
  const most = nice(Math.max(...points.map(([, value]) => value), limit?.value ?? 0, 1e-9));
  const draw = (width) => {
    const left = 58, bottom = 26, top = 10;
    const room = width - left - 10, tall = height - bottom - top;
    const across = (at) => left + ((at - first) / Math.max(last - first, 1e-9)) * room;
    const up = (value) => top + tall * (1 - value / most);
    return s("svg", null,
      [0, 0.5, 1].map((part) => s("g", null,
        s("line", { class: "grid", x1: left, x2: width, y1: up(most * part), y2: up(most * part) }),
        s("text", { class: "axis end", x: left - 6, y: up(most * part) + 4 }, y(most * part)))),
      s("text", { class: "axis", x: left, y: height - 8 }, x(first)),
      s("text", { class: "axis end", x: width - 4, y: height - 8 }, x(last)),
      limit && limit.value <= most && s("g", null, s("line", { class: "limit", x1: left, x2: width, y1: up(limit.value), y2: up(limit.value) }),
        s("text", { class: "axis end", x: width - 4, y: up(limit.value) - 4 }, limit.label)),
      series.map((entry) => s("path", { class: `line ${entry.tone ?? ""}`,
        d: entry.points.map(([at, value], i) => `${i ? "L" : "M"}${across(at).toFixed(1)} ${up(Math.max(value, 0)).toFixed(1)}`).join("") }, s("title", null, entry.label))));
  };
  return h("figure", null, fitted(label, height, draw),
    series.length > 1 && h("p", { class: "legend" }, series.map((entry) => h("span", null, h("span", { class: `key ${entry.tone ?? ""}`, "aria-hidden": "true" }), entry.label))),
    table(["at", ...series.map((entry) => entry.label)], (series[0]?.points ?? []).map(([at], i) => [x(at), ...series.map((entry) => (entry.points[i] ? y(entry.points[i][1]) : ""))])));
}
