// The audit trail: who changed what, newest first.

import { get, getUnless } from "../api.js";
import { el, replace } from "../dom.js";
import { clock, instant, whole } from "../format.js";
import { actions, badge, button, empty, title } from "../widgets.js";
import { deed } from "./changes_made.js";

const PAGE_ROWS = 100;
const COLUMNS = ["When", "Who", "What", "Reason", "Details"];

export async function audit(page) {
  const end = await getUnless("/v1/audit?after=0&limit=1", "no-database");
  if (end === null) {
    replace(
      page,
      title("Audit trail"),
      empty(
        "The audit trail is off. Start the server with a database:",
        "tollgate serve --rules rules.yaml --database sqlite:tollgate.db",
      ),
    );
    return {};
  }
  let newest = Math.max(0, end.head.seq - PAGE_ROWS);
  let oldest = newest;
  let isFollowing = true;
  const head = el("p", { class: "soft small" });
  const body = el("tbody", {});
  const older = el("div", { class: "after" });
  const follow = button("Following", () => {
    isFollowing = !isFollowing;
    follow.setAttribute("aria-pressed", String(isFollowing));
    follow.textContent = isFollowing ? "Following" : "Follow";
  });
  follow.setAttribute("aria-pressed", "true");

  const readNewer = async () => {
    for (;;) {
      const found = await get(`/v1/audit?after=${newest}&limit=${PAGE_ROWS}`);
      for (const row of found.rows) body.prepend(line(row));
      newest = found.rows.at(-1)?.seq ?? newest;
      replace(
        head,
        `${whole(found.head.seq)} rows. Head: `,
        el("code", {}, `${found.head.seq}:${found.head.hash.slice(0, 16)}…`),
        ". Compare it later with ",
        el("code", {}, "tollgate audit verify --expect"),
        ".",
      );
      if (found.rows.length < PAGE_ROWS) return;
    }
  };
  const readOlder = async () => {
    const from = Math.max(0, oldest - PAGE_ROWS);
    const { rows } = await get(`/v1/audit?after=${from}&limit=${PAGE_ROWS}`);
    for (const row of rows.filter(({ seq }) => seq <= oldest).reverse()) body.append(line(row));
    oldest = from;
    more();
  };
  const more = () => replace(older, oldest > 0 ? button(`Show older rows (${whole(oldest)})`, readOlder) : null);

  await readNewer();
  more();
  const table = el(
    "div",
    { class: "scroll rows", tabindex: "0", role: "region", "aria-label": "Audit trail" },
    el(
      "table",
      { class: "audit" },
      el("caption", { class: "hidden" }, "Audit trail, newest first"),
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          COLUMNS.map((heading) => el("th", { scope: "col" }, heading)),
        ),
      ),
      body,
    ),
  );
  replace(
    page,
    title("Audit trail", head, actions(follow)),
    end.head.seq === 0 ? empty("Nothing was changed yet.") : table,
    older,
  );
  return {
    onSecond: () => {
      if (isFollowing) readNewer().catch(() => undefined);
    },
    everyS: 3,
  };
}

function line(row) {
  const at = row.at_us / 1_000;
  const times = row.times > 1 ? [" ", badge("soft", `${whole(row.times)} times`)] : null;
  const cells = [
    [el("time", { datetime: row.at, title: clock(at, true) }, instant(at)), el("div", { class: "soft small" }, `row ${row.seq}`)],
    [row.actor || "server", el("div", { class: "soft small" }, row.address || row.server)],
    [deed(row), times, el("div", { class: "small" }, el("code", {}, row.target))],
    row.reason || null,
    details(row) || null,
  ];
  return el(
    "tr",
    {},
    cells.map((content, number) =>
      el("td", { "data-heading": COLUMNS[number] }, content === null ? null : el("div", {}, content)),
    ),
  );
}

/** What differs, and what was in force before and after. */
function details(row) {
  const versions = row.before || row.after ? `${row.before || "nothing"} → ${row.after || "nothing"}` : "";
  if (!row.detail) return versions;
  return el(
    "details",
    {},
    el("summary", {}, versions || "Show"),
    el("pre", { tabindex: "0" }, el("code", {}, pretty(row.detail))),
  );
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
