// Text of documents, made visible. What would reorder a line, hide, or mean something to a terminal is shown as a sign that
// names it; everything else stays as it is, so that scripts that join or combine their letters are shown as they are read.

import { h } from "/static/dom.js";

const NAMES = new Map(Object.entries({
  "\u00ad": "SHY", "\u061c": "ALM", "\u115f": "HCF", "\u1160": "HJF", "\u180e": "MVS", "\u200b": "ZWSP",
  "\u200e": "LRM", "\u200f": "RLM", "\u2028": "LSEP", "\u2029": "PSEP", "\u202a": "LRE", "\u202b": "RLE", "\u202c": "PDF", "\u202d": "LRO",
  "\u202e": "RLO", "\u2060": "WJ", "\u2066": "LRI", "\u2067": "RLI", "\u2068": "FSI", "\u2069": "PDI",
  "\u3164": "HF", "\ufeff": "BOM", "\ufff9": "IAA", "\ufffa": "IAS", "\ufffb": "IAT",
}));
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;
const SPACES = /[ \t\n\u00a0\u1680\u2000-\u200a\u200c\u200d\u202f\u205f\u3000]/gu;
const SIGNS = new Map([[" ", "·"], ["\t", "→\t"], ["\n", "⏎\n"], ["\u00a0", "⍽"], ["\u3000", "□"], ["\u200c", "ZWNJ"], ["\u200d", "ZWJ"]]);

function code(char) {
  return `U+${char.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

function sign(char) {
  const point = char.codePointAt(0);
  if (point < 0x20) return String.fromCodePoint(0x2400 + point);
  if (point === 0x7f) return "␡";
  return NAMES.get(char) ?? code(char);
}

// Nodes for a text; `whitespace`: spaces and line ends have signs, too.
export function visible(text, whitespace = false) {
  const found = [];
  let rest = 0;
  const pattern = whitespace ? new RegExp(`${HIDDEN.source}|${SPACES.source}`, "gu") : HIDDEN;
  for (const match of text.matchAll(pattern)) {
    if (match.index > rest) found.push(text.slice(rest, match.index));
    const char = match[0];
    rest = match.index + char.length;
    if (whitespace && SIGNS.has(char)) found.push(h("span", { class: "space" }, SIGNS.get(char)), ...(char === " " ? [h("wbr")] : []));
    else if (whitespace && SPACES.test(char)) found.push(h("span", { class: "space", title: code(char) }, "␣"));
    else found.push(h("span", { class: "hidden-char", title: `${code(char)}, a character that is not seen` }, sign(char)));
    SPACES.lastIndex = 0;
  }
  if (rest < text.length) found.push(text.slice(rest));
  return found;
}

// One line, for a table or a label.
export function oneLine(text) {
  return visible(text, false).map((node) => (typeof node === "string" ? node.replaceAll("\n", "⏎").replaceAll("\t", "→") : node));
}

export function hex(base64) {
  return Array.from(atob(base64), (char) => char.charCodeAt(0).toString(16).padStart(2, "0")).join(" ");
}
