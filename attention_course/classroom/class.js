// Ask every second what is new, and show it. A button sends its form without leaving the page.
const main = document.querySelector("main");
const told = document.querySelector("#told");
const LOST = "The class cannot be reached. Stay in its network, and this page goes on by itself.";
let asked = 0;
let shown = "";

async function ask(url, form) {
  const mine = ++asked; // an answer that was overtaken is not shown
  try {
    const answer = await fetch(url, form ? { method: "POST", body: form } : { cache: "no-store" });
    const text = await answer.text();
    if (mine !== asked) return;
    if (!answer.ok) told.textContent = text;
    else if (form) await ask("now");
    else {
      if (!told.dataset.kept) told.textContent = "";
      delete told.dataset.kept;
      if (text === shown) return;
      const at = document.activeElement?.id;
      main.innerHTML = shown = text; // the server has escaped what others wrote, and no script may run in it
      if (at) document.getElementById(at)?.focus();
    }
    if (form && !answer.ok) {
      told.dataset.kept = "yes"; // for one more answer
      await ask("now");
    }
  } catch {
    if (mine === asked) told.textContent = LOST;
  }
}

document.addEventListener("submit", (event) => {
  event.preventDefault();
  const form = new URLSearchParams(new FormData(event.target));
  form.append(event.submitter.name, event.submitter.value);
  ask("./", form);
});
document.addEventListener("visibilitychange", () => document.hidden || ask("now"));
setInterval(() => document.hidden || ask("now"), 1000);
