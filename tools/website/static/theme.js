// Light or dark, as the reader's system says, or as the switch said last. It runs before the page is drawn, and
// marks the page as JupyterLab marks its own: pictures look there.
(() => {
  const NAME = "attention-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const show = (dark) => {
    document.body.dataset.jpThemeLight = String(!dark);
    document.body.dataset.jpThemeName = dark ? "dark" : "light";
  };
  const choose = () => {
    let chosen;
    try {
      chosen = localStorage.getItem(NAME);
    } catch {} // the browser keeps nothing
    show(chosen === "dark" || (chosen !== "light" && system.matches));
  };
  choose();
  system.addEventListener("change", choose);
  addEventListener("storage", choose); // switched in another tab
  addEventListener("beforeprint", () => show(false));
  addEventListener("afterprint", choose);
  addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("#theme-button");
    const tell = () => button.setAttribute("aria-pressed", document.body.dataset.jpThemeLight === "false");
    tell();
    new MutationObserver(tell).observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
    button.addEventListener("click", () => {
      const dark = document.body.dataset.jpThemeLight === "true";
      show(dark);
      try {
        if (dark === system.matches) localStorage.removeItem(NAME); // follow the system again
        else localStorage.setItem(NAME, dark ? "dark" : "light");
      } catch {}
    });
  });
})();
