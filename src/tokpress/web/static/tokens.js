// Tokens as a strip of text, each on a ground of its own; which one it is about is said in a bar below.

import { count, h, plural } from "/static/dom.js";
import { hex, visible } from "/static/text.js";

const COLOURS = 6;

function describe(token, number) {
  const kind = token.special ? "special token" : "token";
  const loss = token.loss === false ? ", not in the loss" : "";
  return `${kind} ${count(number)}, id ${token.id}, ${JSON.stringify(token.text || hex(token.raw))}${loss}`;
}

function drawn(token, number, options) {
  const names = ["t", `c${number % COLOURS}`];
  const label = options.label?.(number);
  if (token.special) names.push("special");
  if (token.loss === false || label?.masked) names.push("masked");
  if (label?.padding) names.push("padding");
  if (label?.begins) names.push("begins");
  if (!token.text) names.push("part");
  const shown = token.text ? visible(token.text, options.whitespace) : options.ids ? hex(token.raw) : "";
  const inner = options.ids ? [h("span", { class: "t-text" }, shown), h("span", { class: "t-id", "aria-hidden": "true" }, token.id)] : shown;
  const seen = options.whitespace ? token.text : token.text.trim(); // a name of its own where there is nothing to read out
  return h("span", { class: names.join(" "), role: "option", id: `token-${number}`, "data-n": number, "aria-selected": "false",
    "aria-label": seen || options.ids ? null : describe(token, number), "aria-description": describe(token, number) }, inner);
}

// Nothing stands between letters that join, also where each is made of several tokens.
function stripe(element, numbers) {
  const share = 100 / numbers.length;
  const stripes = numbers.map((number, i) => `var(--c${number % COLOURS}) ${(i * share).toFixed(1)}% ${((i + 1) * share).toFixed(1)}%`);
  element.classList.add("striped");
  element.style.setProperty("--stripes", `linear-gradient(90deg, ${stripes.join(", ")})`);
  element.title = `the last of ${numbers.length} tokens that make this character`;
}

// `tokens`: of a page whose first one has the number `first`. `options`: whitespace, ids, selected, label(number), more(number, token).
export function tokenStrip(tokens, first, options, onSelect = () => {}) {
  const strip = h("div", { class: options.ids ? "tokens with-ids" : "tokens", role: "listbox", tabindex: "0", dir: "auto",
    "aria-label": "Tokens; arrow keys go from one to the next" });
  const parts = [];
  let before = []; // tokens that hold the beginning of a character: its ground is striped in their colours
  for (const [k, token] of tokens.entries()) {
    const label = options.label?.(first + k);
    if (label?.begins && label.heading) parts.push(h("span", { class: "doc-mark", role: "presentation" }, label.heading));
    const element = drawn(token, first + k, options);
    parts.push(element);
    if (!token.text && !token.special) before.push(first + k);
    else {
      if (before.length && !options.ids) stripe(element, [...before, first + k]);
      before = [];
    }
  }
  strip.append(...parts);
  if (!tokens.length) {
    strip.removeAttribute("role");
    strip.removeAttribute("aria-label");
    strip.removeAttribute("tabindex");
    strip.append(h("span", { class: "quiet" }, "no tokens here"));
  }
  const bar = h("div", { class: "inspector", "aria-live": "polite" });
  let pinned = null;

  const at = (number) => strip.querySelector(`[data-n="${number}"]`);
  function show(number) {
    const token = number === null ? undefined : tokens[number - first];
    bar.replaceChildren(...(token ? inspector(token, number, options) : [h("span", { class: "quiet" },
      tokens.length ? "Point at a token, or choose one with the arrow keys." : "")]));
  }
  function select(number, { tell = true } = {}) {
    if (pinned !== null) at(pinned)?.setAttribute("aria-selected", "false");
    pinned = number !== null && tokens[number - first] ? number : null;
    if (pinned === null) {
      strip.removeAttribute("aria-activedescendant");
    } else {
      at(pinned).setAttribute("aria-selected", "true");
      at(pinned).scrollIntoView({ block: "nearest" });
      strip.setAttribute("aria-activedescendant", `token-${pinned}`);
    }
    show(pinned);
    if (tell) onSelect(pinned);
  }
  const numberOf = (event) => {
    const element = event.target.closest?.("[data-n]");
    return element ? Number(element.dataset.n) : null;
  };
  strip.addEventListener("pointerover", (event) => { const number = numberOf(event); if (number !== null) show(number); });
  strip.addEventListener("pointerleave", () => show(pinned));
  strip.addEventListener("click", (event) => { const number = numberOf(event); if (number !== null) select(number === pinned ? null : number); });
  strip.addEventListener("keydown", (event) => {
    const last = first + tokens.length - 1;
    const current = pinned ?? (event.key === "ArrowLeft" || event.key === "End" ? last + 1 : first - 1);
    const next = { ArrowRight: current + 1, ArrowLeft: current - 1, Home: first, End: last, Escape: null }[event.key];
    if (next === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    select(next === null ? null : Math.min(Math.max(next, first), last));
  });
  show(null);
  if (options.selected !== null && options.selected !== undefined) queueMicrotask(() => select(options.selected, { tell: false }));
  return h("div", { class: "token-box" }, strip, bar);
}

function inspector(token, number, options) {
  const fact = (name, value) => h("span", { class: "i-fact" }, h("span", { class: "i-name" }, name), h("span", { class: "i-value" }, value));
  const text = token.text ? h("bdi", null, visible(token.text, true)) : h("span", { class: "quiet" }, "part of a character");
  return [
    h("span", { class: `i-text${token.special ? " special" : ""}` }, text),
    fact("id", token.id),
    fact("token", count(number)),
    fact("bytes", h("code", null, hex(token.raw) || "none")),
    fact("at", `${count(token.start)} – ${count(token.stop)}`),
    token.special && fact("kind", "special"),
    token.loss !== null && fact("loss", token.loss ? "counts" : "masked"),
    ...(options.more?.(number, token) ?? []).map(([name, value]) => fact(name, value)),
  ].filter(Boolean);
}

export function legend({ masks = false, special = true, documents = false } = {}) {
  return h("p", { class: "legend" },
    h("span", null, h("span", { class: "t c0" }, "a"), h("span", { class: "t c1" }, "b"), " tokens"),
    special && h("span", null, h("span", { class: "t special" }, "</s>"), " special"),
    masks && h("span", null, h("span", { class: "t c2 masked" }, "prompt"), " not in the loss"),
    documents && h("span", null, h("span", { class: "doc-mark" }, "17"), " a document begins"));
}

export const tokensOf = (number) => plural(number, "token");
