for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => row.cells[column].dataset.key ?? row.cells[column].textContent;
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)], number = Number(x) - Number(y);
        return (Number.isNaN(number) ? x.localeCompare(y) : number) * (up ? 1 : -1);
      };
      body.append(...[...body.rows].sort(order));
    });
  });
}
