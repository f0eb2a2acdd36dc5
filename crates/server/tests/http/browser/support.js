// What every scene uses: pages whose problems are collected, accessibility checks, screenshots, and plain calls.

const assert = require("node:assert/strict");
const fs = require("node:fs");
const http = require("node:http");
const path = require("node:path");
const axe = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

/** The task that the test has written. */
const task = JSON.parse(fs.readFileSync(process.argv[2], "utf8"));

/** Markup, a direction mark, quotes and a long text. All of it must be shown as it is written. */
const HOSTILE = "<img src=x onerror=alert(1)></script>\u202e\"'&amp;";
const LONG = "x".repeat(1_024);

/** Opens a page whose errors and violations of the policy are collected. */
async function visit(context, url) {
  const page = await context.newPage();
  page.problems = [];
  page.on("pageerror", (error) => page.problems.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // A refused request is part of the test of tokens and of the server that is gone.
    if (message.type() === "error" && !message.text().includes("Failed to load resource")) page.problems.push(message.text());
  });
  page.on("dialog", (dialog) => {
    page.problems.push(`a script ran: ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.addInitScript(() =>
    addEventListener("securitypolicyviolation", (event) => console.error(`policy: ${event.violatedDirective}`)),
  );
  await page.goto(url);
  return page;
}

/** Opens a page with a token in its tab, as a person who has entered it. */
async function visitWith(context, url, token) {
  const page = await visit(context, url);
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Continue" }).click();
  await page.getByText("● ready").waitFor();
  return page;
}

async function shoot(page, name) {
  if (task.folder) await page.screenshot({ path: path.join(task.folder, `${name}.png`), fullPage: true });
}

/** Fails on what axe finds, on a page that scrolls sideways, on markup from values, and on problems so far. */
async function inspect(page, name) {
  // Through the protocol of the browser: the policy of the page forbids to run text.
  const session = await page.context().newCDPSession(page);
  const run = await session.send("Runtime.evaluate", {
    expression: `${axe}; axe.run(document, { resultTypes: ["violations"] }).then((found) => JSON.stringify(found.violations.map((one) => one.id + ": " + one.nodes.map((node) => node.html + " " + node.failureSummary).join(" | "))))`,
    awaitPromise: true,
    returnByValue: true,
  });
  await session.detach();
  assert.deepEqual(JSON.parse(run.result.value), [], `${name}: accessibility`);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${name}: the page scrolls sideways by ${wide} px`);
  assert.equal(
    await page.locator("main img, main script, dialog img, dialog script").count(),
    0,
    `${name}: text is never markup`,
  );
  assert.deepEqual(page.problems, [], name);
}

/** Sends a request to a server, with any host and origin. Returns its status and JSON. */
function call(url, { method = "GET", at, headers = {}, body = null }) {
  const { hostname, port } = new URL(url);
  const text = body === null ? "" : JSON.stringify(body);
  const fields = { "content-type": "application/json", "content-length": Buffer.byteLength(text), ...headers };
  return new Promise((resolve, reject) => {
    const request = http.request({ host: hostname, port, path: at, method, headers: fields, agent: false }, (response) => {
      let answer = "";
      response.on("data", (data) => {
        answer += data;
      });
      response.on("end", () =>
        resolve({
          status: response.statusCode,
          headers: response.headers,
          json: answer.startsWith("{") ? JSON.parse(answer) : null,
        }),
      );
    });
    request.on("error", reject);
    request.end(text);
  });
}

/** Asks the server for a check, and returns the status. */
async function check(url, attributes) {
  return (await call(url, { method: "POST", at: "/v1/check", body: { attributes } })).status;
}

/** Waits until a condition holds. */
async function until(what, condition) {
  const deadline = Date.now() + 20_000;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `not in time: ${what}`);
    await new Promise((resume) => setTimeout(resume, 100));
  }
}

module.exports = { assert, call, check, HOSTILE, inspect, LONG, shoot, task, until, visit, visitWith };
