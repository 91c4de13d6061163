/* The titles of the columns in their cells, for screens on which a row is a card; tables of two columns need none. */
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table.docutils")) {
    const titles = [...table.querySelectorAll("thead th")].map((title) => title.textContent.trim());
    for (const row of titles.length > 2 ? table.tBodies[0].rows : []) {
      [...row.cells].forEach((cell, column) => {
        if (column && titles[column]) cell.dataset.title = titles[column];
      });
    }
  }
});

/* A button on every block of code that copies its text; it is reached with Tab and says what it did. */
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight-python, div.highlight-console, div.doctest")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    button.setAttribute("aria-live", "polite");
    button.addEventListener("click", async () => {
      const lines = block.querySelector("pre").innerText.split("\n");
      const typed = lines.filter((line) => /^(\$|>>>|\.\.\.)( |$)/.test(line)); // of a session: no prompts, no output
      const text = (typed.length ? typed.map((line) => line.replace(/^\S+ ?/, "")) : lines).join("\n");
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(block.querySelector("pre")); // no permission: select it instead
        button.textContent = "Selected";
      }
      setTimeout(() => (button.textContent = "Copy"), 2000);
    });
    block.prepend(button);
  }
});
