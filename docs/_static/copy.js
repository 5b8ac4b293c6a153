// A button on every block of code that copies it; of an interpreter session, the input alone.
document.addEventListener("DOMContentLoaded", () => {
  for (const block of document.querySelectorAll("div.highlight")) {
    const code = block.querySelector("pre");
    if (!code || block.closest(".equation, .highlight-text, .output")) continue;
    const button = document.createElement("button");
    button.className = "copy";
    button.type = "button";
    button.textContent = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.addEventListener("click", async () => {
      const lines = code.textContent.split("\n");
      const prompt = /^(>>>|\.\.\.) ?/;
      const kept = lines.some((line) => line.startsWith(">>>"))
        ? lines.filter((line) => prompt.test(line)).map((line) => line.replace(prompt, ""))
        : lines;
      if (!navigator.clipboard) {  // a page that came over plain http: select it for the reader
        getSelection().selectAllChildren(code);
        return;
      }
      await navigator.clipboard.writeText(kept.join("\n"));
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    block.append(button);
  }
});
