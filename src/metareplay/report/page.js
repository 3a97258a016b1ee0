for (const button of document.querySelectorAll("table.sortable thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th");
    const column = head.cellIndex, up = head.getAttribute("aria-sort") !== "ascending";
    const key = row => row.cells[column].dataset.sort ?? "";
    for (const other of head.parentNode.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const compare = (a, b) => {
      const x = key(a), y = key(b);
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
      return up ? order : -order;
    };
    for (const body of button.closest("table").tBodies)
      body.append(...[...body.rows].filter(row => !row.classList.contains("group")).sort(compare));
  });
}
