// Sets what the builder marked as formulas. It stands at the end of a page, which is then complete.
for (const place of document.querySelectorAll(".arithmatex")) {
  const marked = place.textContent.trim();
  katex.render(marked.slice(2, -2), place, {
    displayMode: marked.startsWith("\\["),
    throwOnError: false,
    strict: false,
  });
}
