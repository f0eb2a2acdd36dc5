// What was changed lately: rows of the audit trail, on the overview and as marks on charts.

import { get, getUnless } from "../api.js";
import { el } from "../dom.js";
import { instant } from "../format.js";
import { can } from "../session.js";
import { actions, empty, rowButton, table } from "../widgets.js";
import { endChange, isLive } from "./change_dialogs.js";

/** Rows that charts and the overview look at. */
const ROWS_MAX = 100;
const ROWS_SHOWN = 6;

/** What an action is called. */
const WORDS = {
  "override.add": "added an override",
  "override.change": "changed an override",
  "override.remove": "ended an override",
  "deny.add": "denied",
  "deny.change": "changed a deny entry",
  "deny.remove": "ended a deny entry",
  "bypass.add": "let pass",
  "bypass.change": "changed a bypass entry",
  "bypass.remove": "ended a bypass entry",
  reset: "reset",
  "rules.replaced": "loaded new rules",
  "tokens.replaced": "loaded new tokens",
  "server.started": "started",
  "changes.set_back": "restored an older database",
  "call.refused": "was refused",
};

/** Actions that do not change what checks answer. */
const QUIET = ["call.refused"];

/** What a row says was done, in words. */
export function deed(row) {
  return WORDS[row.action] ?? row.action;
}

/** The newest rows of the audit trail, newest first; `null` without a database. */
export async function recentRows() {
  const end = await getUnless("/v1/audit?after=0&limit=1", "no-database", "database-unavailable");
  if (end === null) return null;
  const { rows } = await get(`/v1/audit?after=${Math.max(0, end.head.seq - ROWS_MAX)}&limit=${ROWS_MAX}`);
  return rows.reverse();
}

/** Marks for a chart. */
export function marksOf(rows) {
  return (rows ?? [])
    .filter((row) => !QUIET.includes(row.action))
    .map((row) => ({ atMs: row.at_us / 1_000, label: `${row.actor || row.server} ${deed(row)} ${row.target}`.trim() }));
}

/** A table of the newest changes. A live change that is in force can be ended from here. */
export function lastChanges(rows) {
  const shown = rows.filter((row) => !QUIET.includes(row.action)).slice(0, ROWS_SHOWN);
  if (shown.length === 0) return empty("Nothing was changed yet.");
  const ended = new Set(rows.filter((row) => row.action.endsWith(".remove")).map((row) => row.target));
  const mayEnd = (row) => can("change") && isLive(row.action) && !ended.has(row.target);
  const columns = [
    ["When", false],
    ["Who", false],
    ["What", false],
    ["Reason", false],
  ];
  if (shown.some(mayEnd)) columns.push(["", false]);
  return table(
    "Last changes",
    columns,
    shown.map((row) => {
      const cells = [
        el("time", { datetime: row.at }, instant(row.at_us / 1_000)),
        row.actor || row.server,
        [deed(row), el("div", { class: "small" }, el("code", {}, row.target))],
        row.reason,
      ];
      if (columns.length > cells.length)
        cells.push(
          mayEnd(row) ? actions(rowButton("End", row.target, () => endChange(row.action.split(".")[0], row.target))) : "",
        );
      return cells;
    }),
  );
}
