(() => {
  "use strict";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  // Before anything is painted, so that nobody who chose dark is shown white first.
  root.classList.add("with-js");
  try {
    const kept = localStorage.getItem("joulewise-theme");
    if (kept) root.dataset.theme = kept;
  } catch {
    // Some browsers keep nothing for files; then the system's theme it is.
  }

  addEventListener("DOMContentLoaded", () => {
    const toggle = document.getElementById("theme");
    function tell() {
      toggle.setAttribute("aria-pressed", String(theme() === "dark"));
      dispatchEvent(new CustomEvent("joulewise-theme", { detail: theme() }));
    }
    toggle.addEventListener("click", () => {
      root.dataset.theme = theme() === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("joulewise-theme", root.dataset.theme);
      } catch {
        // Then it holds until the page is closed.
      }
      tell();
    });
    dark.addEventListener("change", tell);
    tell();
  });
})();
