// Overrides, deny and bypass entries: those of operators, and those of the rules file.

import { get, getUnless } from "../api.js";
import { el, replace } from "../dom.js";
import { conditions, fromNow, instant, overrideNumbers, written } from "../format.js";
import { can } from "../session.js";
import { actions, badge, button, empty, ruleLink, rowButton, section, table, title } from "../widgets.js";
import { addChange, editChange, endChange, KINDS } from "./change_dialogs.js";
import { limitText } from "./change_fields.js";

const OFF = "no-database";

export async function changes(page) {
  let version = null;
  const draw = async () => {
    const [rules, ...live] = await Promise.all([
      get("/v1/rules"),
      ...Object.values(KINDS).map(({ path }) => getUnless(path, OFF)),
    ]);
    version = live[0]?.version ?? null;
    replace(page, content(rules, live));
  };
  await draw();
  return {
    draw,
    // What other operators change is in force within a second, so it is shown at once.
    onSecond: (_, server) => {
      if (version !== null && server.live_changes?.version !== version) draw().catch(() => undefined);
    },
  };
}

function content(rules, [overrides, deny, bypass]) {
  const about =
    "Live changes apply over the rules file on every server within a second. They end by themselves, and the audit trail keeps them.";
  if (overrides === null) {
    return [
      title("Changes", about),
      empty(
        "Live changes are off. Start the server with a database:",
        "tollgate serve --rules rules.yaml --database sqlite:tollgate.db",
      ),
      ofFile(rules),
    ];
  }
  const note = can("change")
    ? null
    : el("p", { class: "soft" }, "You may read. To change something, use a token with the scope ", el("code", {}, "change"), ".");
  return [
    title("Changes", about),
    note,
    list("override", overrides.changes),
    list("deny", deny.changes),
    list("bypass", bypass.changes),
    ofFile(rules),
  ];
}

function list(kind, found) {
  const { many, add } = KINDS[kind];
  const aside = can("change") ? button(add, () => addChange(kind)) : null;
  if (found.length === 0) {
    const none = { override: "No live override.", deny: "No live deny entry.", bypass: "No live bypass entry." };
    return section(many, empty(none[kind]), aside);
  }
  const columns = [
    ...(kind === "override"
      ? [
          ["Rule", false],
          ["Requests with", false],
          ["Numbers", false],
        ]
      : [["Requests with", false]]),
    ["Ends", false],
    ["Reason", false],
    ["By", false],
    ...(can("change") ? [["", false]] : []),
  ];
  return section(
    many,
    table(
      many,
      columns,
      found.map((change) => row(kind, change)),
    ),
    aside,
  );
}

function row(kind, change) {
  const {
    id,
    rule,
    when,
    subject,
    scale,
    limit,
    until,
    reason,
    author,
    in_force: inForce,
    why_not: whyNot,
    created_at: createdAt,
  } = change;
  const who = subject ? [ruleLink(rule), " ", el("code", {}, subject)] : conditions(when);
  const state = inForce ? null : el("div", {}, badge("warn", "not in force"), " ", el("span", { class: "small" }, whyNot));
  const cells = kind === "override" ? [ruleLink(rule), who, el("code", {}, scale ? `× ${scale}` : limitText(limit))] : [who];
  const ends = until ? el("time", { datetime: until, title: instant(Date.parse(until)) }, fromNow(Date.parse(until))) : "never";
  cells.push([ends, state], reason, [author, el("div", { class: "soft small" }, instant(Date.parse(createdAt)))]);
  if (can("change"))
    cells.push(
      actions(
        rowButton("Change", id, () => editChange(change)),
        rowButton("End", id, () => endChange(kind, id, change)),
      ),
    );
  return cells;
}

function end({ until }) {
  return until ? instant(Date.parse(until)) : "never";
}

/** What the rules file says, which only a new file changes. */
function ofFile({ rules, deny, bypass }) {
  const rows = [
    ...rules.flatMap((rule) =>
      rule.overrides
        .filter(({ live }) => !live)
        .map((change) => [
          "override",
          [ruleLink(rule.id), " ", change.when],
          el("code", {}, overrideNumbers(change)),
          end(change),
          change.reason ?? "",
          written(change),
        ]),
    ),
    ...[
      ["deny", deny],
      ["bypass", bypass],
    ].flatMap(([kind, entries]) =>
      entries.filter(({ live }) => !live).map((entry) => [kind, entry.when, "", end(entry), entry.reason ?? "", written(entry)]),
    ),
  ];
  if (rows.length === 0) return null;
  const columns = [
    ["Kind", false],
    ["Requests with", false],
    ["Numbers", false],
    ["Ends", false],
    ["Reason", false],
    ["Written in", false],
  ];
  return section("In the rules file", table("Overrides and lists of the rules file", columns, rows));
}
