// Elements, numbers and small controls. Text is only ever set as text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (name === "css") for (const [key, entry] of Object.entries(value)) element.style.setProperty(key, entry);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

export function button(label, action, properties) {
  return h("button", { type: "button", ...properties, on: { click: action } }, label);
}

const whole = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export const count = (number) => whole.format(number);
export const brief = (number) => (Math.abs(number) < 10000 ? whole.format(number) : short.format(number));
export const percent = (share, digits = 1) => `${(share * 100).toFixed(digits)} %`;
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function bytes(number) {
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (Math.abs(number) < 1000) return unit === "B" ? `${number} B` : `${number.toFixed(1)} ${unit}`;
    number /= 1000;
  }
  return `${number.toFixed(2)} TB`;
}

export function seconds(number) {
  if (number < 1) return `${Math.round(number * 1000)} ms`;
  if (number < 90) return `${number.toFixed(number < 10 ? 1 : 0)} s`;
  const minutes = Math.round(number / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// A name or path with room to break after its separators, and the whole of it on hover.
export const path = (text) => h("span", { class: "path", dir: "ltr", title: text }, text);

export function say(text) {
  document.getElementById("status").textContent = text;
}

export function card(title, properties, ...children) {
  const { id, wide, tools } = properties ?? {};
  return h("section", { class: wide ? "card wide" : "card", id, "aria-labelledby": id && `${id}-title` },
    h("header", { class: "card-head" }, h("h2", { id: id && `${id}-title` }, title), tools),
    h("div", { class: "card-body" }, children));
}

export function facts(entries) {
  return h("dl", { class: "facts" }, entries.filter(Boolean).map(([name, value]) =>
    h("div", null, h("dt", null, name), h("dd", null, value))));
}

export function badge(kind, text) {
  const sign = { good: "✓", warn: "!", bad: "✕", plain: "·" }[kind];
  return h("span", { class: `badge ${kind}` }, h("span", { "aria-hidden": "true" }, sign), text);
}

export const note = (text) => h("p", { class: "note" }, text);

// The Python that gives what is shown, to be copied.
export function python(code) {
  const done = h("span", { class: "copied", "aria-hidden": "true" });
  const copy = button([h("span", { "aria-hidden": "true" }, "⧉ "), "Python", done], async () => {
    await copyText(code);
    done.textContent = " copied";
    say("Python copied");
    setTimeout(() => { done.textContent = ""; }, 1500);
  }, { class: "copy", title: code, "data-python": code });
  return copy;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "visually-hidden", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
