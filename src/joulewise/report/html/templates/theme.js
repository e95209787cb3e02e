(() => {
  "use strict";
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const theme = () => root.dataset.theme || (dark.matches ? "dark" : "light");

  // Before the first paint, so that a dark page does not flash white.
  root.classList.add("with-js");
  try {
    const stored = localStorage.getItem("joulewise-theme");
    if (stored) root.dataset.theme = stored;
  } catch {
    // Some browsers store nothing for local files; then it is the system's theme.
  }

  addEventListener("DOMContentLoaded", () => {
    const toggle = document.getElementById("theme");
    function announce() {
      toggle.setAttribute("aria-pressed", String(theme() === "dark"));
      dispatchEvent(new CustomEvent("joulewise-theme", { detail: theme() }));
    }
    toggle.addEventListener("click", () => {
      root.dataset.theme = theme() === "dark" ? "light" : "dark";
      try {
        localStorage.setItem("joulewise-theme", root.dataset.theme);
      } catch {
        // Then the choice lasts until the page is closed.
      }
      announce();
    });
    dark.addEventListener("change", announce);
    announce();
  });
})();
