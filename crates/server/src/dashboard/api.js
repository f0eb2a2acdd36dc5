// Talks to the public API. The token stays in this tab, and is sent as `Authorization` only.

const TOKEN = "tollgate-token";
const USED = "tollgate-token-used";
const IDLE_MS = 30 * 60 * 1_000;
/** A lost stream is opened again after this time. */
const RETRY_MS = 2_000;

/** A response that is not a success. `status` is 0 if there was none; `code` is that of the problem document. */
export class ApiError extends Error {
  constructor(status, detail, code = null) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

/** Returns the token, unless it was unused for 30 minutes. */
function token() {
  const used = Number(sessionStorage.getItem(USED));
  if (Date.now() - used > IDLE_MS) forgetToken();
  return sessionStorage.getItem(TOKEN);
}

export function hasToken() {
  return token() !== null;
}

export function setToken(value) {
  sessionStorage.setItem(TOKEN, value);
  touchToken();
}

export function forgetToken() {
  sessionStorage.removeItem(TOKEN);
  sessionStorage.removeItem(USED);
}

/** Called when a person does something. The stream alone does not keep a token alive. */
export function touchToken() {
  if (sessionStorage.getItem(TOKEN) !== null) sessionStorage.setItem(USED, String(Date.now()));
}

/** Returns the JSON of a path. */
export function get(path) {
  return request(path, { method: "GET" }).then((response) => response.json());
}

/** Returns the JSON of a path; `null` if the server answers one of these codes, or 404. */
export async function getUnless(path, ...codes) {
  try {
    return await get(path);
  } catch (error) {
    if (error.status === 404 || codes.includes(error.code)) return null;
    throw error;
  }
}

/** Sends JSON and returns JSON. */
export function post(path, body) {
  return send("POST", path, body);
}

/** Sends JSON with a method, if need be for the version of a live change that was seen. Returns JSON. */
export async function send(method, path, body, version = null) {
  const headers = { "content-type": "application/json" };
  if (version !== null) headers["if-match"] = `"${version}"`;
  const response = await request(path, { method, headers, body: JSON.stringify(body) });
  return response.json();
}

async function request(path, options) {
  const known = token();
  const headers = { ...options.headers };
  if (known !== null) headers.authorization = `Bearer ${known}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The server does not answer.");
  }
  if (response.ok) return response;
  const problem = await response.json().catch(() => ({}));
  throw new ApiError(response.status, problem.detail ?? `The server answered ${response.status}.`, problem.code ?? null);
}

/**
 * Follows a stream of events until `signal` aborts. Calls `onEvent` with each event, and `onState` with `null` while the
 * stream is open or with the error while it is lost.
 */
export async function follow(path, signal, onEvent, onState) {
  while (!signal.aborted) {
    try {
      const response = await request(path, { method: "GET", signal });
      onState(null);
      for await (const event of events(response.body)) onEvent(event);
      throw new ApiError(0, "The server closed the stream.");
    } catch (error) {
      if (signal.aborted) return;
      onState(error);
      if (error.status === 401 || error.status === 403) return;
    }
    await new Promise((resume) => setTimeout(resume, RETRY_MS));
  }
}

/** Reads `data:` lines. */
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (part.startsWith("data: ")) yield JSON.parse(part.slice(6));
    }
  }
}
