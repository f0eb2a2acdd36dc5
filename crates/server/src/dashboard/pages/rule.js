// One rule: its text, what it did lately, and the subjects that it refused most.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { el, replace } from "../dom.js";
import { duration, fromNow, instant, overrideNumbers, whole, written } from "../format.js";
import { can } from "../session.js";
import {
  actions,
  badge,
  button,
  empty,
  facts,
  failure,
  rowButton,
  section,
  share,
  subjectName,
  table,
  title,
} from "../widgets.js";
import { addChange } from "./change_dialogs.js";
import { marksOf, recentRows } from "./changes_made.js";
import { words } from "./overview.js";

export async function rule(page, { range, name, width }) {
  const draw = async () => {
    const found = await get("/v1/rules");
    const stated = found.rules.find((rule) => rule.id === name);
    if (!stated) {
      replace(
        page,
        title(name),
        failure(new Error(`No rule "${name}" is in force.`)),
        el("p", {}, el("a", { href: "#/rules" }, "All rules")),
      );
      return;
    }
    const of = encodeURIComponent(name);
    const [history, refused, near, audit] = await Promise.all([
      get(`/v1/history?range=${range}&rule=${of}`),
      get(`/v1/top?by=refused&limit=5&rule=${of}`),
      get(`/v1/top?by=used&limit=5&rule=${of}`),
      recentRows(),
    ]);
    replace(page, content(stated, { history, refused, near, audit, range, width: width() }));
  };
  await draw();
  return { draw };
}

function content(rule, { history, refused, near, audit, range, width }) {
  const about = [
    ["Match", rule.match],
    ["Per", rule.per],
    ["Limit", el("code", {}, rule.written)],
    ["Algorithm", rule.algorithm ?? "deny"],
    ["Window", rule.window_ms ? duration(rule.window_ms) : "–"],
    [
      "Mode",
      [
        badge(rule.mode === "enforce" ? "good" : "shadow", rule.mode),
        rule.rollout === "100%" ? null : ` for ${rule.rollout} of subjects`,
      ],
    ],
    ["Written in", `${rule.file}:${rule.line}`],
  ];
  return [
    title(
      rule.id,
      rule.description,
      can("change") ? button("Add override", () => addChange("override", { rule: rule.id })) : null,
    ),
    facts(about),
    activity(history, range, audit, width),
    section("Refused most", subjects(rule.id, refused)),
    section("Near the limit", nearest(near)),
    rule.overrides.length === 0 ? null : section("Overrides", overrides(rule)),
  ];
}

function activity(history, range, audit, width) {
  const [found] = history.rules;
  if (!found || found.allowed + found.refused + found.shadow_refused + found.fallback === 0)
    return empty(`This rule matched no check in the last ${words(range)}.`);
  const stepS = history.step_s;
  const perSecond = (values) => values.map((value) => (value === null ? null : value / stepS));
  const lines = [
    { label: "Allowed", look: "allowed", values: perSecond(found.columns.allowed) },
    { label: "Refused", look: "refused", values: perSecond(found.columns.refused) },
    { label: "Shadow refused", look: "shadow", values: perSecond(found.columns.shadow_refused) },
    { label: "Fallback", look: "fallback", values: perSecond(found.columns.fallback) },
  ];
  const sums = [
    ["Allowed", found.allowed],
    ["Refused", found.refused],
    ["Shadow refused", found.shadow_refused],
    ["Fallback", found.fallback],
    ["Near the limit", found.near_limit],
  ];
  return [
    chart({ title: "Checks of this rule per second", fromMs: history.from_ms, stepS, lines, marks: marksOf(audit), width }),
    section(
      `Last ${words(range)}`,
      el(
        "div",
        { class: "sums" },
        sums.map(([name, sum]) =>
          el("div", { class: "tile" }, el("div", { class: "soft" }, name), el("div", { class: "big" }, whole(sum))),
        ),
      ),
    ),
  ];
}

function subjects(rule, { subjects: found, period_s: periodS }) {
  if (found.length === 0) return empty("This rule refused no subject lately.");
  const columns = [
    ["Subject", false],
    ["Refusals", true],
    ["At most too high by", true],
  ];
  if (can("change")) columns.push(["", false]);
  const note = el("p", { class: "soft small" }, `Counted over this period of ${duration(periodS * 1_000)} and the one before.`);
  return [
    table(
      "Subjects refused most",
      columns,
      found.map((one) => [
        subjectName(one),
        whole(one.count),
        whole(one.error),
        ...(can("change")
          ? [actions(rowButton("Deny", one.subject, () => addChange("deny", { rule, subject: one.subject })))]
          : []),
      ]),
    ),
    note,
  ];
}

function nearest({ subjects: found, now_ms: nowMs }) {
  if (found.length === 0) return empty("This rule counted no subject lately.");
  const columns = [
    ["Subject", false],
    ["Used", false],
    ["Remaining", true],
    ["Resets", true],
  ];
  return table(
    "Subjects near the limit",
    columns,
    found.map((one) => [
      subjectName(one),
      share(one.used_permille),
      whole(one.remaining),
      one.reset_at_ms ? fromNow(one.reset_at_ms, nowMs) : "–",
    ]),
  );
}

function overrides(rule) {
  const columns = [
    ["Requests with", false],
    ["Limit", false],
    ["Ends", false],
    ["Reason", false],
    ["Written in", false],
  ];
  return table(
    "Overrides of this rule",
    columns,
    rule.overrides.map((change) => [
      change.when,
      el("code", {}, overrideNumbers(change)),
      change.until ? instant(Date.parse(change.until)) : "never",
      change.reason ?? "",
      change.live ? el("a", { href: "#/changes" }, "live") : written(change),
    ]),
  );
}
