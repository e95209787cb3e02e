// Before anything is painted, so that nobody who chose dark is shown white first.
document.documentElement.classList.add("with-js");
try {
  const kept = localStorage.getItem("joulewise-theme");
  if (kept) document.documentElement.dataset.theme = kept;
} catch {
  // Some browsers keep nothing for files; then the system's theme it is.
}
