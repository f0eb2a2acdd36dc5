"use strict";
for (const table of document.querySelectorAll("section > .scroll > table")) {
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 10) continue;
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "Filter rows";
  search.setAttribute("aria-label", "Filter rows");
  search.addEventListener("input", () => {
    const wanted = search.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.parentElement.before(search);
}
