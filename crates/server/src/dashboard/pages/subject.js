// Ask why: the live numbers of one subject under all rules. Charges nothing. Values stay out of the address.

import { post } from "../api.js";
import { el, replace } from "../dom.js";
import { clock, whole } from "../format.js";
import { empty, failure, ruleLink, section, table } from "../widgets.js";

let written = "";

export async function subject(page) {
  const result = el("div", { "aria-live": "polite" });
  const input = el("input", {
    id: "attributes", name: "attributes", type: "text", autocomplete: "off", spellcheck: "false",
    placeholder: "api_key=k-1 action=search", value: written, "aria-describedby": "attributes-help",
  });
  const ask = async (event) => {
    event.preventDefault();
    written = input.value;
    try {
      replace(result, content(await post("/v1/explain", { attributes: parse(written) })));
    } catch (error) {
      replace(result, failure(error));
    }
  };
  replace(page,
    el("h1", {}, "Subject"),
    el("form", { onsubmit: ask, class: "ask" },
      el("label", { for: "attributes" }, "Attributes of a request"),
      el("div", { class: "row" }, input, el("button", { type: "submit" }, "Explain")),
      el("p", { id: "attributes-help", class: "soft small" }, 'NAME=VALUE, separated by spaces. Write values with spaces in quotes: tenant="Acme Ltd". Nothing is charged.')),
    result);
  if (written === "") replace(result, empty("Enter the attributes that a caller sends, to see every rule that counts it and what remains."));
  input.focus();
  return {};
}

/** Parses NAME=VALUE pairs. */
export function parse(text) {
  const attributes = {};
  for (const [, name, quoted, plain] of text.matchAll(/([^\s=]+)=(?:"([^"]*)"|(\S*))/g)) attributes[name] = quoted ?? plain;
  if (Object.keys(attributes).length === 0) throw new Error("Enter at least one attribute, like api_key=k-1.");
  return attributes;
}

function content(found) {
  const { decision, undecided, exception, rules, lines } = found;
  const verdict = undecided ? `Cannot be decided: ${undecided}`
    : decision.allowed ? "A request like this would be allowed." : "A request like this would be refused.";
  const applied = rules.filter((rule) => rule.applies);
  return [
    el("p", { class: decision?.allowed ? "verdict allowed" : "verdict refused" }, verdict),
    exception ? el("p", {}, `A list decides: ${exception.reason} (${exception.file}:${exception.line}).`) : null,
    applied.length === 0 ? empty("No rule counts this request.") : section("Rules that count it", table("Rules that count it",
      [["Rule", false], ["Subject", false], ["Would be", false], ["Limit", true], ["Remaining", true], ["Resets at", true], ["Why", false]],
      applied.flatMap((rule) => rule.accounts.length === 0 ? [[ruleLink(rule.rule), rule.subject ?? "", "not counted", "–", "–", "–", ""]] : rule.accounts.map((account) => row(rule, account))))),
    section("Explanation", el("pre", {}, el("code", {}, lines.join("\n")))),
  ];
}

function row(rule, { allowed, before, after }) {
  const numbers = before ?? after;
  const reasons = numbers?.why ?? [];
  return [
    ruleLink(rule.rule), [(rule.counts ?? []).join("+"), " ", el("code", {}, rule.subject ?? "")],
    allowed ? "allowed" : rule.blocking ? "refused" : "refused (shadow)",
    whole(numbers?.limit), whole(numbers?.remaining), numbers?.reset_at_ms ? clock(numbers.reset_at_ms, true) : "–",
    el("span", { class: "small" }, reasons.join("; ")),
  ];
}
