// Light, dark, or what the system prefers. Runs before the page is drawn, so that it does not flash.
(() => {
  const THEMES = ["system", "light", "dark"];
  const root = document.documentElement;
  const stored = localStorage.getItem("fm2-theme");
  let theme = THEMES.includes(stored) ? stored : "system";

  function apply() {
    if (theme === "system") delete root.dataset.theme;
    else root.dataset.theme = theme;
  }

  apply();
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.getElementById("theme");
    button.textContent = `Theme: ${theme}`;
    button.addEventListener("click", () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      localStorage.setItem("fm2-theme", theme);
      button.textContent = `Theme: ${theme}`;
      apply();
    });
  });
})();
