// A dialog above the page. The browser keeps the focus in it, closes it with Escape, and gives the focus back.

import { el, replace } from "./dom.js";
import { failure } from "./widgets.js";

let number = 0;

/** Opens a dialog. `make` gets the function that closes it, and returns its content. */
export function openDialog(heading, make) {
  number += 1;
  const id = `dialog-${number}`;
  const dialog = el("dialog", { "aria-labelledby": id });
  const close = () => dialog.close();
  dialog.append(el("h2", { id }, heading), ...[make(close)].flat());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** A field with its label, and a line of help. */
export function field(label, input, help = null) {
  if (help) input.setAttribute("aria-describedby", `${input.id}-help`);
  return el(
    "div",
    { class: "field" },
    el("label", { for: input.id }, label),
    input,
    help ? el("p", { class: "soft small", id: `${input.id}-help` }, help) : null,
  );
}

/** A form whose failures are shown in it. `submit` is called with nothing, and may be asynchronous. */
export function form(fields, buttons, submit) {
  const problem = el("div", { "aria-live": "assertive" });
  const element = el(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        replace(problem);
        element.toggleAttribute("data-busy", true);
        try {
          await submit();
        } catch (error) {
          replace(problem, failure(error));
        } finally {
          element.toggleAttribute("data-busy", false);
        }
      },
    },
    fields,
    problem,
    buttons,
  );
  return element;
}
