// The fields of the dialogs that add and change live changes. A field is its nodes, and a function that returns the members of
// the call.

import { field } from "../dialog.js";
import { el } from "../dom.js";
import { pairs } from "../format.js";
import { facts } from "../widgets.js";

const SPANS = [
  ["1h", "1 hour"],
  ["2h", "2 hours"],
  ["8h", "8 hours"],
  ["1d", "1 day"],
  ["7d", "7 days"],
  ["30d", "30 days"],
];
const REASON_MAX = 300;

/** Whom a change concerns. */
export function whose(kind, rules, { rule, when, subject }) {
  const fields = {};
  if (kind === "override") {
    const select = el(
      "select",
      { id: "rule", required: true },
      rules.map(({ id }) => el("option", { value: id, selected: id === rule }, id)),
    );
    fields.rule = { node: field("Rule", select), value: () => ({ rule: select.value }) };
  }
  if (subject) {
    fields.subject = {
      node: facts([
        ["Rule", rule],
        ["Subject", el("code", {}, subject)],
      ]),
      value: () => ({ rule, subject }),
    };
    return fields;
  }
  const input = el("input", {
    id: "when",
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    value: when ?? "",
    placeholder: "tenant=acme plan=pro",
  });
  const all = el("input", { id: "all", type: "checkbox" });
  fields.when = {
    node: [
      field(
        "Requests with",
        input,
        'NAME=VALUE, separated by spaces. Write a name twice for two values, and spaces in quotes: tenant="Acme Ltd".',
      ),
      el("div", { class: "check" }, all, el("label", { for: "all" }, "All requests, without any condition")),
    ],
    value: () => ({ when: pairs(input.value), ...(all.checked ? { all: true } : {}) }),
  };
  return fields;
}

/** The numbers of an override. */
export function numbers(rules, { scale, limit, rule }) {
  const how = el(
    "select",
    { id: "how" },
    el("option", { value: "scale", selected: limit === undefined }, "Multiply by"),
    el("option", { value: "limit", selected: limit !== undefined }, "Replace by"),
  );
  const written = rules.find(({ id }) => id === rule)?.written;
  const number = el("input", {
    id: "number",
    type: "text",
    autocomplete: "off",
    required: true,
    value: limit ? limitText(limit) : (scale ?? "2"),
    "aria-label": "Factor or limit",
  });
  const value = () => {
    if (how.value === "scale") return { scale: number.value.trim() };
    return { limit: parseLimit(number.value) };
  };
  const help = `A factor like 2 or 0.5, or a limit as in the rules file${written ? `, which has ${written}` : ": fixed-window: 20/h"}.`;
  return {
    numbers: {
      node: el(
        "div",
        { class: "field" },
        el("label", { for: "how" }, "Numbers of the rule"),
        el("div", { class: "row" }, how, number),
        el("p", { class: "soft small" }, help),
      ),
      value,
    },
  };
}

/** `token-bucket: 5/s, burst: 10` -> { "token-bucket": "5/s", burst: 10 }. */
function parseLimit(text) {
  const parts = text
    .replace(/^\s*\{|\}\s*$/g, "")
    .split(",")
    .map((part) => part.split(/:\s*/).map((word) => word.trim()));
  if (parts.some((part) => part.length !== 2 || part.includes("")))
    throw new Error("Write a limit as in the rules file: fixed-window: 20/h");
  return Object.fromEntries(parts.map(([name, value]) => [name, /^\d+$/.test(value) ? Number(value) : value]));
}

/** When a change ends. */
export function end(kind, change = null) {
  const never = ["permanent", kind === "deny" ? "never" : "never (permanent)"];
  const options = [...(change ? [["", "as it is"]] : []), ...SPANS, never, ["until", "at a time"]];
  const select = el(
    "select",
    { id: "end" },
    options.map(([value, label]) =>
      el("option", { value, selected: value === (change ? "" : kind === "deny" ? "permanent" : "2h") }, label),
    ),
  );
  const at = el("input", { id: "until", type: "datetime-local", "aria-label": "End at", class: "gone" });
  select.addEventListener("change", () => {
    at.classList.toggle("gone", select.value !== "until");
    at.required = select.value === "until";
  });
  const value = () => {
    if (select.value === "") return {};
    if (select.value === "permanent") return { permanent: true };
    if (select.value === "until") return { until: new Date(at.value).toISOString() };
    return { for: select.value };
  };
  return {
    end: {
      node: el("div", { class: "field" }, el("label", { for: "end" }, "Ends"), el("div", { class: "row" }, select, at)),
      value,
    },
  };
}

/** Why it is changed. */
export function why() {
  const input = el("input", { id: "reason", type: "text", autocomplete: "off", required: true, maxlength: REASON_MAX });
  return { reason: { node: field("Reason", input, "The audit trail keeps it."), value: () => ({ reason: input.value.trim() }) } };
}

/** A limit in one line, as in the rules file. */
export function limitText(limit) {
  return typeof limit === "object"
    ? Object.entries(limit)
        .map(([name, value]) => `${name}: ${value}`)
        .join(", ")
    : String(limit);
}
