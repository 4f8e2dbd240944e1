// Light, dark, or as the system: chosen before anything is drawn, so this is no module. Browsers may refuse storage.

{
  const KEY = "jaxserve.theme";
  const isDark = matchMedia("(prefers-color-scheme: dark)");

  const kept = () => {
    try {
      return localStorage.getItem(KEY) ?? "system";
    } catch {
      return "system";
    }
  };

  const apply = (choice) => {
    document.documentElement.dataset.theme = choice === "system" ? (isDark.matches ? "dark" : "light") : choice;
    dispatchEvent(new Event("themechange"));
  };

  let choice = kept();
  apply(choice);
  isDark.addEventListener("change", () => apply(choice));
  addEventListener("DOMContentLoaded", () => {
    const select = document.querySelector("#theme");
    select.value = choice;
    select.addEventListener("change", () => {
      choice = select.value;
      apply(choice);
      try {
        localStorage.setItem(KEY, choice);
      } catch {
        // the choice lasts as long as the page
      }
    });
  });
}
