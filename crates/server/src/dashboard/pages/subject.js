// Ask why: the live numbers of one subject under all rules, or one past refusal. Charges nothing. Values stay out of the
// address.

import { post } from "../api.js";
import { field, form, openDialog } from "../dialog.js";
import { el, replace } from "../dom.js";
import { instant, pairs, whole } from "../format.js";
import { can } from "../session.js";
import { actions, badge, button, empty, facts, failure, ruleLink, section, table, title } from "../widgets.js";
import { addChange } from "./change_dialogs.js";

/** Recent refusals that are shown. */
const REFUSALS_MAX = 12;
let asked = "";

export async function subject(page) {
  const result = el("div", { "aria-live": "polite" });
  const input = el("input", {
    id: "attributes",
    name: "attributes",
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "api_key=k-1 action=search",
    value: asked,
    "aria-describedby": "attributes-help",
  });
  const draw = async () => {
    if (asked === "") return;
    try {
      const isReference = /^tgr_\S+$/.test(asked.trim());
      const found = await post("/v1/explain", isReference ? { ref: asked.trim() } : { attributes: parse(asked) });
      replace(result, isReference ? refusal(found.refusal) : content(found, draw));
    } catch (error) {
      replace(result, failure(error));
    }
  };
  const ask = (event) => {
    event.preventDefault();
    asked = input.value;
    return draw();
  };
  replace(
    page,
    title("Subject", "Every rule that counts a caller, what remains, and why."),
    el(
      "form",
      { onsubmit: ask, class: "ask" },
      el("label", { for: "attributes" }, "Attributes of a request, or the reference of a refusal"),
      el("div", { class: "row" }, input, el("button", { type: "submit", class: "primary" }, "Explain")),
      el(
        "p",
        { id: "attributes-help", class: "soft small" },
        'NAME=VALUE, separated by spaces; write spaces in quotes: tenant="Acme Ltd". A reference begins with tgr_. Nothing is charged.',
      ),
    ),
    result,
  );
  if (asked === "")
    replace(result, empty("Enter the attributes that a caller sends, to see every rule that counts it and what remains."));
  else await draw();
  return { draw, focus: input };
}

/** Parses NAME=VALUE pairs, each name once. */
function parse(text) {
  const attributes = pairs(text);
  if (Object.keys(attributes).length === 0) throw new Error("Enter at least one attribute, like api_key=k-1.");
  const repeated = Object.keys(attributes).find((name) => Array.isArray(attributes[name]));
  if (repeated) throw new Error(`Duplicate attribute "${repeated}".`);
  return attributes;
}

function content(found, draw) {
  const { decision, undecided, exception, rules, lines, recent_refusals: recent } = found;
  const verdict = undecided
    ? `Cannot be decided: ${undecided}`
    : decision.allowed
      ? "A request like this would be allowed."
      : "A request like this would be refused.";
  const applied = rules.filter((rule) => rule.applies);
  const columns = [
    ["Rule", false],
    ["Subject", false],
    ["Would be", false],
    ["Limit", true],
    ["Remaining", true],
    ["Resets", true],
    ["Why", false],
  ];
  const rows = applied.flatMap((rule) =>
    rule.accounts.length === 0
      ? [[ruleLink(rule.rule), el("code", {}, rule.subject ?? ""), "not counted", "–", "–", "–", ""]]
      : rule.accounts.map((account) => row(rule, account)),
  );
  const allowed = decision?.allowed;
  return [
    el(
      "div",
      { class: `card verdict ${allowed ? "allowed" : "refused"}` },
      el("p", {}, badge(allowed ? "good" : "bad", allowed ? "allowed" : undecided ? "undecided" : "refused"), " ", verdict),
      exception
        ? el(
            "p",
            {},
            `A list decides: ${exception.reason} (${exception.line === 0 ? "live" : `${exception.file}:${exception.line}`}).`,
          )
        : null,
      can("change") ? changesOf(draw) : null,
    ),
    applied.length === 0
      ? empty("No rule counts this request.")
      : section("Rules that count it", table("Rules that count it", columns, rows)),
    recent.length === 0 ? null : section("Recent refusals", refusals(recent)),
    section("Explanation", el("pre", { tabindex: "0" }, el("code", {}, lines.join("\n")))),
  ];
}

function row(rule, { allowed, before, after, retry_at_ms: retryAtMs }) {
  const numbers = before ?? after;
  const would = allowed
    ? badge("good", "allowed")
    : rule.blocking
      ? badge("bad", "refused")
      : badge("shadow", "refused in shadow");
  const retry = !allowed && retryAtMs ? el("div", { class: "soft small" }, `until ${instant(retryAtMs)}`) : null;
  return [
    [
      ruleLink(rule.rule),
      rule.override ? el("div", { class: "soft small" }, `override: ${rule.override.reason ?? rule.override.when}`) : null,
    ],
    [(rule.counts ?? []).join("+"), " ", el("code", {}, rule.subject ?? "")],
    [would, retry],
    whole(numbers?.limit),
    whole(numbers?.remaining),
    numbers?.reset_at_ms ? instant(numbers.reset_at_ms) : "–",
    el("span", { class: "small" }, (numbers?.why ?? []).join("; ")),
  ];
}

function refusals(recent) {
  const columns = [
    ["When", false],
    ["Rule", false],
    ["Subject", false],
    ["Times", true],
    ["Limit", true],
    ["Remaining", true],
    ["Retry at", true],
  ];
  return table(
    "Recent refusals",
    columns,
    recent
      .slice(0, REFUSALS_MAX)
      .map((one) => [
        instant(one.last_ms),
        ruleLink(one.rule),
        el("code", {}, one.subject),
        whole(one.count),
        whole(one.limit),
        whole(one.remaining),
        one.retry_at_ms ? instant(one.retry_at_ms) : "–",
      ]),
  );
}

/** One past refusal, as its reference says. */
function refusal(found) {
  const plain = Object.entries(found).filter(([, value]) => value === null || typeof value !== "object");
  return [
    el(
      "div",
      { class: "card verdict refused" },
      el("p", {}, badge("bad", "refused"), " What the client received, and why."),
      found.rules_are_in_force ? null : el("p", { class: "soft" }, "Other rules are in force now."),
    ),
    facts(
      plain.map(([name, value]) => [
        name.replaceAll("_", " "),
        /_ms$/.test(name) && value > 1e12 ? `${instant(value)}` : String(value ?? "–"),
      ]),
    ),
    section("All of it", el("pre", { tabindex: "0" }, el("code", {}, JSON.stringify(found, null, 2)))),
  ];
}

/** What an operator may do about this subject. */
function changesOf(draw) {
  const preset = { when: asked };
  return actions(
    button("Add override", () => addChange("override", preset)),
    button("Deny", () => addChange("deny", preset)),
    button("Let pass", () => addChange("bypass", preset)),
    button("Reset consumption", () => reset(draw)),
  );
}

/** Deletes what the subjects of the request consumed, after it was shown which. */
async function reset(draw) {
  const attributes = parse(asked);
  let would;
  try {
    would = await post("/v1/reset?dry_run=true", { attributes });
  } catch (error) {
    openDialog("Reset consumption", (close) => [failure(error), el("div", { class: "actions" }, button("Close", close))]);
    return;
  }
  openDialog("Reset consumption", (close) => {
    const reason = el("input", { id: "reason", type: "text", autocomplete: "off", required: true, maxlength: 300 });
    const each = would.results.map(({ rule, subject: hash }) => el("li", {}, el("strong", {}, rule), " ", el("code", {}, hash)));
    return [
      el("p", {}, "Forgets what these subjects have used:"),
      el("ul", {}, each),
      form(
        [field("Reason", reason, "The audit trail keeps it.")],
        el("div", { class: "actions" }, button("Cancel", close), el("button", { type: "submit", class: "danger" }, "Reset")),
        async () => {
          await post("/v1/reset", { attributes, reason: reason.value.trim() });
          close();
          draw();
        },
      ),
    ];
  });
}
