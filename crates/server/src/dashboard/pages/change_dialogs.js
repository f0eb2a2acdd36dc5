// Dialogs that add, change and end overrides, deny and bypass entries. Each first asks the server what it would do.

import { get, send } from "../api.js";
import { form, openDialog } from "../dialog.js";
import { el, replace } from "../dom.js";
import { conditions, fromNow, instant } from "../format.js";
import { button, facts, failure } from "../widgets.js";
import { end, limitText, numbers, whose, why } from "./change_fields.js";

/** The kinds of live changes: their path, and how they are called. */
export const KINDS = {
  override: { path: "/v1/overrides", one: "override", many: "Overrides", add: "Add override" },
  deny: { path: "/v1/deny", one: "deny entry", many: "Deny list", add: "Add deny entry" },
  bypass: { path: "/v1/bypass", one: "bypass entry", many: "Bypass list", add: "Add bypass entry" },
};

/** Whether an action of the audit trail added or changed a live change. */
export function isLive(action) {
  const [kind, what] = action.split(".");
  return kind in KINDS && (what === "add" || what === "change");
}

/** Notifies the page of a change, so that it loads its lists again. */
function changed() {
  document.dispatchEvent(new CustomEvent("changed"));
}

/** Opens the dialog that adds a change. `preset` fills fields: `rule`, `when`, `subject`. */
export async function addChange(kind, preset = {}) {
  const { rules } = kind === "override" ? await get("/v1/rules") : { rules: [] };
  const { path, add } = KINDS[kind];
  openDialog(add, (close) => {
    const fields = {
      ...whose(kind, rules, preset),
      ...(kind === "override" ? numbers(rules, preset) : {}),
      ...end(kind),
      ...why(),
    };
    const body = () => Object.assign({}, ...Object.values(fields).map(({ value }) => value()));
    return trial({ fields, add, close, send: (more, query) => send("POST", `${path}${query}`, { ...body(), ...more }) });
  });
}

/** Opens the dialog that changes the number, the end or the reason of a live change. */
export async function editChange(change) {
  const { path, one } = KINDS[change.kind];
  const { rules } = change.kind === "override" ? await get("/v1/rules") : { rules: [] };
  openDialog(`Change ${one}`, (close) => {
    const fields = { ...(change.kind === "override" ? numbers(rules, change) : {}), ...end(change.kind, change), ...why() };
    const body = () => Object.assign({}, ...Object.values(fields).map(({ value }) => value()));
    return [
      el("p", { class: "soft" }, describe(change)),
      trial({
        fields,
        add: "Save",
        close,
        send: (more, query) =>
          send("PATCH", `${path}/${encodeURIComponent(change.id)}${query}`, { ...body(), ...more }, change.version),
      }),
    ];
  });
}

/** Opens the dialog that ends a live change, as it is now or as it was seen. */
export async function endChange(kind, id, seen = null) {
  const { path, one } = KINDS[kind];
  const at = `${path}/${encodeURIComponent(id)}`;
  let change;
  try {
    change = seen ?? (await get(at));
  } catch (error) {
    openDialog(`End ${one}`, (close) => [failure(error), el("div", { class: "actions" }, button("Close", close))]);
    return;
  }
  openDialog(`End ${one}`, (close) => {
    const reason = why();
    const submit = async () => {
      await send("DELETE", at, reason.reason.value(), change.version);
      close();
      changed();
    };
    return [
      el("p", {}, describe(change)),
      el("p", { class: "soft" }, "Without it, the rules of the file apply again."),
      form(
        [reason.reason.node],
        el("div", { class: "actions" }, button("Cancel", close), el("button", { type: "submit", class: "danger" }, "End")),
        () => submit().catch((error) => stale(error, close)),
      ),
    ];
  });
}

/** Explains that another operator was faster. */
function stale(error, close) {
  if (error.status !== 412) throw error;
  const again = Object.assign(new Error(`Another operator changed it in the meantime (${error.message}).`), { status: 412 });
  close();
  openDialog("It was changed meanwhile", (closeThis) => [
    failure(again),
    el("p", {}, "Nothing of yours was written. Look at it as it is now, then decide again."),
    el(
      "div",
      { class: "actions" },
      el(
        "button",
        {
          type: "button",
          class: "primary",
          onclick: () => {
            closeThis();
            changed();
          },
        },
        "Show it as it is now",
      ),
    ),
  ]);
}

/** A change in one line. */
function describe({ kind, rule, when, subject, scale, limit, reason }) {
  const number = scale ? `× ${scale}` : limit ? limitText(limit) : null;
  return [
    rule ? [el("strong", {}, rule), " "] : null,
    subject ? el("code", {}, subject) : conditions(when),
    number ? ` ${number}` : null,
    kind === "deny" ? " denied" : kind === "bypass" ? " passes" : null,
    ": ",
    el("bdi", {}, reason),
  ];
}

/**
 * A form in two steps: the first asks the server what would happen, the second does it. What is edited in between is asked
 * again.
 */
function trial({ fields, add, close, send: call }) {
  const outcome = el("div", { class: "outcome", "aria-live": "polite" });
  let step = null;
  const label = el("button", { type: "submit", class: "primary" }, "Show the effect");
  const again = () => {
    step = null;
    label.textContent = "Show the effect";
    replace(outcome);
  };
  const ask = async (more) => {
    try {
      const would = await call(more, "?dry_run=true");
      step = more;
      label.textContent = add;
      replace(outcome, effect(would));
      outcome.scrollIntoView({ block: "nearest" });
    } catch (error) {
      if (error.code !== "lowers") throw error;
      const lower = el("input", {
        type: "checkbox",
        id: "allow-lower",
        onchange: (event) => {
          event.stopPropagation();
          if (lower.checked) ask({ allow_lower: true }).catch((problem) => replace(outcome, failure(problem)));
        },
      });
      replace(
        outcome,
        el("div", { class: "failure", role: "alert" }, el("p", {}, "Some requests would get less than now.")),
        el("div", { class: "check" }, lower, el("label", { for: "allow-lower" }, "This is meant: allow lower numbers")),
      );
      outcome.scrollIntoView({ block: "nearest" });
    }
  };
  const submit = async () => {
    if (step === null) return ask({});
    await call(step, "");
    close();
    changed();
  };
  const made = form(
    [Object.values(fields).map(({ node }) => node), outcome],
    el("div", { class: "actions" }, button("Cancel", close), label),
    () => submit().catch((error) => stale(error, close)),
  );
  made.addEventListener("input", (event) => {
    if (event.target.id !== "allow-lower") again();
  });
  return made;
}

function effect(would) {
  const words = {
    raises: "Raises what applies now.",
    lowers: "Lowers what applies now.",
    mixed: "Raises some numbers and lowers others.",
  };
  const until = would.until ? `${instant(Date.parse(would.until))} (${fromNow(Date.parse(would.until))})` : "never";
  return el(
    "div",
    { class: "card" },
    el("p", {}, el("strong", {}, words[would.effect] ?? "The server accepts it."), " Nothing is written yet."),
    facts([
      ["For", would.subject ? el("code", {}, would.subject) : conditions(would.when)],
      ["Ends", until],
    ]),
  );
}
