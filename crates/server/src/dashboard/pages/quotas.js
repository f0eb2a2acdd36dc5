// Quotas and meters: who has used most, what reservations hold, and what the ledger has not posted yet.

import { get, getUnless, post } from "../api.js";
import { el, replace } from "../dom.js";
import { duration, fromNow, instant, pairs, whole } from "../format.js";
import { empty, facts, failure, ruleLink, section, share, subjectName, table, title } from "../widgets.js";

const COUNTED = ["quota", "meter"];
/** Accounts of the ledger that are shown. */
const ACCOUNTS_MAX = 50;
let asked = "";

export async function quotas(page) {
  const result = el("div", { "aria-live": "polite" });
  const input = el("input", {
    id: "attributes",
    type: "text",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "action=chat tenant=acme",
    value: asked,
    "aria-describedby": "attributes-help",
  });
  const ask = async (event) => {
    event.preventDefault();
    asked = input.value;
    try {
      replace(result, usage(await post("/v1/usage", { attributes: pairs(asked) })));
    } catch (error) {
      replace(result, failure(error));
    }
  };
  const overview = el("div", {});
  const draw = async () => {
    const [{ rules }, ready, booked] = await Promise.all([
      get("/v1/rules"),
      get("/readyz"),
      getUnless(`/v1/ledger/usage?limit=${ACCOUNTS_MAX}`, "no-database", "database-unavailable"),
    ]);
    const counted = rules.filter(({ algorithm }) => COUNTED.includes(algorithm));
    const tops = await Promise.all(counted.map(({ id }) => get(`/v1/top?by=used&limit=5&rule=${encodeURIComponent(id)}`)));
    replace(overview, [content(counted, tops, ready.ledger), balances(booked)]);
  };
  await draw();
  replace(
    page,
    title("Quotas", "Numbers that a period or a ledger counts, and what open reservations hold."),
    overview,
    section("Usage of one subject", [
      el(
        "form",
        { onsubmit: ask, class: "ask" },
        el("label", { for: "attributes" }, "Attributes of a request"),
        el("div", { class: "row" }, input, el("button", { type: "submit", class: "primary" }, "Show usage")),
        el("p", { id: "attributes-help", class: "soft small" }, "NAME=VALUE, separated by spaces. Nothing is charged."),
      ),
      result,
    ]),
  );
  return { draw };
}

function content(rules, tops, ledger) {
  const rows = rules.map((rule) => [
    ruleLink(rule.id),
    rule.match,
    rule.per,
    el("code", {}, rule.written),
    whole(rule.limit),
    rule.window_ms ? duration(rule.window_ms) : "–",
  ]);
  const used = tops.flatMap(({ subjects, now_ms: nowMs }) =>
    subjects.map((near) => [
      ruleLink(near.rule),
      subjectName(near),
      share(near.used_permille),
      whole(near.limit - near.remaining),
      whole(near.remaining),
      near.reset_at_ms ? el("span", { title: instant(near.reset_at_ms) }, fromNow(near.reset_at_ms, nowMs)) : "–",
    ]),
  );
  const columns = [
    ["Rule", false],
    ["Match", false],
    ["Per", false],
    ["Limit", false],
    ["Units", true],
    ["Period", true],
  ];
  const near = [
    ["Rule", false],
    ["Subject", false],
    ["Used", false],
    ["Units", true],
    ["Remaining", true],
    ["Resets", true],
  ];
  return [
    facts([["Ledger", ledgerState(ledger)]]),
    section(
      "Rules",
      rows.length === 0
        ? empty(
            "No rule has a quota or a meter. Add one to the rules file:",
            "- id: tokens\n  per: tenant\n  limit: { quota: 1000000/month }",
          )
        : table("Quota rules", columns, rows),
    ),
    rows.length === 0
      ? null
      : section(
          "Nearest to their limit",
          used.length === 0
            ? empty("No subject has used a quota since this server started.")
            : table("Subjects nearest to their quota", near, used),
        ),
  ];
}

/** What the ledger says about each account and period. */
function balances(found) {
  if (!found || found.accounts.length === 0) return null;
  const columns = [
    ["Rule", false],
    ["Account", false],
    ["Period", false],
    ["Granted", true],
    ["Used", true],
    ["Reserved", true],
    ["Available", true],
  ];
  const rows = found.accounts.map((one) => [
    ruleLink(one.rule),
    one.name ?? el("code", {}, one.subject.slice(0, 10)),
    one.period === "-" ? "no period" : `until ${instant(Date.parse(one.ends))}`,
    whole(one.granted),
    whole(one.used),
    whole(one.held),
    whole(one.available),
  ]);
  const more = found.next === null ? null : el("span", { class: "soft" }, `the first ${ACCOUNTS_MAX}`);
  return section("Balances in the ledger", table("Balances in the ledger", columns, rows), more);
}

function ledgerState(ledger) {
  if (!ledger) return "off: no rule is recorded in a database";
  const lag = ledger.unposted === 0 ? "everything is posted" : `${whole(ledger.unposted)} entries wait to be posted`;
  return `${ledger.up ? "up" : "down: entries wait on this server's disk"}, ${lag}`;
}

function usage({ rules }) {
  if (rules.length === 0) return empty("No rule counts a request with these attributes.");
  const columns = [
    ["Rule", false],
    ["Used", true],
    ["Held by reservations", true],
    ["Remaining", true],
    ["Limit", true],
    ["Overdraft", true],
    ["Resets", true],
  ];
  return table(
    "Usage",
    columns,
    rules.map((one) => [
      ruleLink(one.rule),
      whole(one.used),
      whole(one.held),
      whole(one.remaining),
      whole(one.limit),
      whole(one.overdraft),
      one.reset_at_ms ? instant(one.reset_at_ms) : "–",
    ]),
  );
}
