// Prints, for three fresh visits, when the page was painted first, and when the chart was there, in milliseconds. The argument is
// the address.
const { chromium } = require("playwright-core");

async function main() {
  const flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"];
  const browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args: flags });
  for (let visit = 0; visit < 3; visit += 1) {
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.addInitScript(() => {
      new MutationObserver(() => {
        if (document.querySelector("svg.chart")) globalThis.chartAt ??= performance.now();
      }).observe(document, { childList: true, subtree: true });
    });
    await page.goto(process.argv[1]);
    await page.locator("svg.chart").waitFor();
    console.log(
      await page.evaluate(() => `${performance.getEntriesByName("first-contentful-paint")[0].startTime} ${globalThis.chartAt}`),
    );
    await context.close();
  }
  await browser.close();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
