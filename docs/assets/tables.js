// Lets code in a table break after slashes and underscores: the style sheet forbids breaks within a word there.
for (const code of document.querySelectorAll(".md-typeset :is(td, th) code")) {
  if (code.childElementCount === 0) {
    code.innerHTML = code.innerHTML.replace(/[/_]/g, "$&<wbr>");
  }
}
