// Parts that several pages use.

import { el } from "./dom.js";

/** A table. `columns` are `[heading, isNumber]`; `rows` are lists of cells. If `opens`, a row opens the link in its first cell. */
export function table(caption, columns, rows, { opens = false } = {}) {
  const cell = (content, number) =>
    el("td", { class: columns[number][1] ? "number" : null, "data-heading": columns[number][0] || null }, inline(content));
  return el(
    "div",
    { class: `scroll rows${opens ? " opens" : ""}`, tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      {},
      el("caption", { class: "hidden" }, caption),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          columns.map(([heading, isNumber]) =>
            heading ? el("th", { scope: "col", class: isNumber ? "number" : null }, heading) : el("td", {}),
          ),
        ),
      ),
      el(
        "tbody",
        {},
        rows.map((row) => el("tr", {}, row.map(cell))),
      ),
    ),
  );
}

/** Several pieces in one box, so that a narrow page puts all of them beside the heading. */
function inline(content) {
  return Array.isArray(content) && content.length > 0 ? el("div", {}, content) : content;
}

/** A section with a heading, and what stands at its right. */
export function section(heading, content, aside = null) {
  return el("section", {}, el("div", { class: "heading" }, el("h2", {}, heading), aside), content);
}

/** The title of a page, a line about it, and what stands at its right. */
export function title(heading, about = null, aside = null) {
  return el(
    "div",
    { class: "title" },
    el("div", {}, el("h1", {}, heading), about ? el("p", { class: "soft" }, about) : null),
    aside,
  );
}

/** What a page says when there is nothing to show, and what to do. */
export function empty(text, command) {
  return el("div", { class: "empty" }, el("p", {}, text), command ? el("pre", { tabindex: "0" }, el("code", {}, command)) : null);
}

/** Names and values. */
export function facts(pairs) {
  return el(
    "dl",
    { class: "facts" },
    pairs.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
  );
}

/** A short word with a look: `good`, `warn`, `bad` or `soft`. The word says it too, so nothing depends on colour. */
export function badge(look, text) {
  return el("span", { class: `badge ${look}` }, text);
}

/** A bar of a share, with its percentage. */
export function share(permille) {
  const percent = Math.min(100, permille / 10);
  const look = permille >= 1_000 ? "bad" : permille >= 900 ? "warn" : "good";
  const bar = el("progress", { class: `bar ${look}`, max: "100", value: String(percent), "aria-label": "used" });
  return el("span", { class: "share" }, bar, `${(permille / 10).toFixed(permille % 10 === 0 ? 0 : 1)}%`);
}

/** A link to a rule. */
export function ruleLink(rule) {
  return rule === "(other)" ? rule : el("a", { href: `#/rules/${encodeURIComponent(rule)}` }, rule);
}

/** The beginning of a subject's hash, and the values that its rule lets operators see. */
export function subjectName({ subject, show }) {
  return [show ? `${show} ` : null, el("code", {}, subject)];
}

/** Buttons beside each other. */
export function actions(...buttons) {
  return el("div", { class: "actions" }, buttons);
}

export function button(label, onclick, look = null) {
  return el("button", { type: "button", class: look, onclick }, label);
}

/** A button of a row, which says for screen readers what it is about. */
export function rowButton(label, about, onclick) {
  return el("button", { type: "button", class: "quiet", onclick }, label, el("span", { class: "hidden" }, ` ${about}`));
}

/** An error as a person can act on it. */
export function failure(error) {
  return el("div", { class: "failure", role: "alert" }, el("p", {}, error.message));
}
