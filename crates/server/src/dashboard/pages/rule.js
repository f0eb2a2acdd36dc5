// One rule: its text and what it did lately.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { el, replace } from "../dom.js";
import { whole, written } from "../format.js";
import { empty, failure, section, table } from "../widgets.js";
import { words } from "./overview.js";

export async function rule(page, { range, name }) {
  const draw = async () => {
    const [found, history] = await Promise.all([get("/v1/rules"), get(`/v1/history?range=${range}&rule=${encodeURIComponent(name)}`)]);
    const stated = found.rules.find((rule) => rule.id === name);
    if (!stated) {
      replace(page, failure(new Error(`No rule "${name}" is in force.`)), el("p", {}, el("a", { href: "#/rules" }, "All rules")));
      return;
    }
    replace(page, content(stated, history, range));
  };
  await draw();
  return { draw };
}

function content(rule, history, range) {
  const facts = [
    ["Match", rule.match], ["Per", rule.per], ["Limit", el("code", {}, rule.written)],
    ["Algorithm", rule.algorithm ?? "deny"], ["Mode", rule.mode], ["Rollout", rule.rollout], ["Written in", `${rule.file}:${rule.line}`],
  ];
  const overrides = rule.overrides.map((change) =>
    [change.when, el("code", {}, change.written), change.until ?? "", change.reason ?? "", written(change)]);
  return [
    el("h1", {}, rule.id),
    rule.description ? el("p", { class: "soft" }, rule.description) : null,
    el("dl", { class: "facts" }, facts.map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
    activity(history, range),
    overrides.length === 0 ? null : section("Overrides", table("Overrides of this rule",
      [["When", false], ["Limit", false], ["Until", false], ["Reason", false], ["Written in", false]], overrides)),
  ];
}

function activity(history, range) {
  const [found] = history.rules;
  if (!found) return empty(`This rule matched no check in the last ${words(range)}.`);
  const stepS = history.step_s;
  const perSecond = (values) => values.map((value) => (value === null ? null : value / stepS));
  const lines = [
    { label: "Allowed", look: "allowed", values: perSecond(found.columns.allowed) },
    { label: "Refused", look: "refused", values: perSecond(found.columns.refused) },
    { label: "Shadow refused", look: "shadow", values: perSecond(found.columns.shadow_refused) },
    { label: "Fallback", look: "fallback", values: perSecond(found.columns.fallback) },
  ];
  const sums = [["Allowed", found.allowed], ["Refused", found.refused], ["Shadow refused", found.shadow_refused],
    ["Answered by its failure policy", found.fallback], ["Less than a tenth left", found.near_limit]];
  return [
    chart({ title: "Checks of this rule per second", fromMs: history.from_ms, stepS, lines }),
    section(`Last ${words(range)}`, table("Sums", [["Result", false], ["Checks", true]], sums.map(([name, sum]) => [name, whole(sum)]))),
  ];
}
