// Tables to sort and filter. Without scripts the page shows them whole.
// In a column of numbers, what is none always comes last.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
  const text = (row, i) => row.cells[i].textContent.trim();
  const value = (row, i) => parseFloat(row.cells[i].dataset.value);
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const numeric = rows.some(row => !isNaN(value(row, i)));
    const last = row => numeric ? isNaN(value(row, i)) : text(row, i) === "";
    rows.sort((a, b) => last(a) - last(b) || (last(a) ? 0 : sign * (
      numeric ? value(a, i) - value(b, i) : text(a, i).localeCompare(text(b, i)))));
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    body.append(...rows);
  }));

  // A choice for each column of names; a column with one name left is not shown.
  const bar = document.createElement("div"), shown = document.createElement("span"), columns = [];
  bar.className = "filters"; shown.className = "note"; shown.setAttribute("role", "status");
  const show = () => {
    const other = (row, {i, select}) => select.value !== "" && select.value !== text(row, i);
    for (const row of rows) row.hidden = columns.some(column => other(row, column));
    for (const {i, select, values} of columns)
      for (const row of table.rows) row.cells[i].hidden = values.length < 2 || select.value !== "";
    const count = rows.filter(row => !row.hidden).length;
    shown.textContent = count < rows.length ? `${count} of ${rows.length} rows` : `${count} rows`;
  };
  for (const name of ["dataset", "method", "metric"]) {
    const i = heads.findIndex(head => head.textContent.trim() === name);
    if (i < 0) continue;
    const label = document.createElement("label"), select = document.createElement("select");
    const values = [...new Set(rows.map(row => text(row, i)))];
    select.append(new Option("all", ""), ...values.map(value => new Option(value, value)));
    if (name === "metric" && rows.length > 40) select.value = values[0];
    select.addEventListener("change", show);
    columns.push({i, select, values});
    label.append(name + " ", select);
    if (values.length > 1) bar.append(label);
  }
  bar.append(shown); show();
  table.parentElement.before(bar);
}
