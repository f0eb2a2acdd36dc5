// Who uses the dashboard, and what this caller may do.

import { get } from "./api.js";

let me = { name: "", anonymous: true, scopes: [] };

/** Asks the server who we are. Fails with 401 if it wants a token. */
export async function identify() {
  me = await get("/v1/whoami");
}

export function name() {
  return me.anonymous ? null : me.name;
}

/** Whether the caller has a scope. Pages leave out what it may not do; the server refuses it in any case. */
export function can(scope) {
  return me.scopes.includes(scope);
}
