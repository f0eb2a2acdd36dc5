// Uses the dashboard as a person does, in a real browser. The argument is a file that describes the servers.

const { chromium } = require("playwright-core");
const { access } = require("./access.js");
const { changing, otherwiseChanged } = require("./changing.js");
const { empty, everyPage, lookAndSize } = require("./reading.js");
const { lost } = require("./lost.js");

const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

async function main() {
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: FLAGS });
  try {
    const all = [empty, everyPage, access, changing, otherwiseChanged, lookAndSize, lost];
    // A further argument selects one scene, while a person works on it.
    for (const scene of all.filter(({ name }) => [undefined, name].includes(process.argv[3]))) {
      const began = Date.now();
      await scene(browser).catch(async (error) => {
        for (const page of browser.contexts().flatMap((context) => context.pages())) {
          console.error(
            `${page.url()} showed:\n${await page
              .locator("dialog, main")
              .last()
              .innerText({ timeout: 1_000 })
              .catch(() => "nothing")}`,
          );
        }
        throw error;
      });
      console.log(`${scene.name}: ${Date.now() - began} ms`);
    }
  } finally {
    await browser.close();
  }
  console.log("good");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
