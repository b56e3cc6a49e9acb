// Puts the page together, and keeps it up to date where the run goes on.

const SECTIONS = [summary, timeline, learning, epochs, workers, codelets, spreads, path, energy, memory, prediction, provenance];

function render(runs) {
  const all = runs.all;
  document.getElementById("title").textContent = all.map((run) => run.name).join(", ");
  document.title = `dahl: ${all.map((run) => run.name).join(", ")}`;
  const scroll = window.scrollY;
  const sections = SECTIONS.map((section) => section(all, runs.compared)).filter(Boolean);
  document.getElementById("main").replaceChildren(...sections);
  document.getElementById("nav").replaceChildren(...sections.map((section) => h("a", { href: `#${section.id}` }, section.querySelector("h2").textContent)));
  window.scrollTo(0, scroll);
}

function theme(dark) {
  document.documentElement.classList.toggle("dark", dark);
  const button = document.getElementById("theme");
  button.setAttribute("aria-pressed", String(dark));
  button.textContent = dark ? "Light" : "Dark";
  document.dispatchEvent(new Event("theme"));
}

function start() {
  const begin = performance.now();
  const element = document.getElementById("data");
  const data = JSON.parse(element.textContent);
  element.textContent = "";
  let dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  theme(dark);
  document.getElementById("theme").addEventListener("click", () => { dark = !dark; theme(dark); });
  document.addEventListener("keydown", (e) => {
    if (e.key === "Escape" && document.activeElement) document.activeElement.blur();
    if (e.key === "t" && !e.ctrlKey && !e.metaKey && !e.altKey) { dark = !dark; theme(dark); }
  });
  render(data.runs);
  const footer = document.getElementById("footer");
  footer.textContent = `drawn in ${Math.round(performance.now() - begin)} ms`;
  document.documentElement.dataset.ready = String(Math.round(performance.now() - begin));
  if (!data.live) return;
  let shown = "";
  const ask = async () => {
    let wait = 2000;
    try {
      const answer = await fetch(`data.json${window.location.search}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const text = await answer.text();
      // While a part of the page has the focus, the page is not redrawn.
      const main = document.getElementById("main");
      const busy = main !== document.activeElement && main.contains(document.activeElement);
      if (text !== shown && !busy) { shown = text; render(JSON.parse(text)); }
      footer.textContent = busy ? "paused; Escape resumes" : `live, ${new Date().toLocaleTimeString()}`;
    } catch (error) {
      footer.textContent = "the run has ended, or cannot be reached";
      wait = 10000;
    }
    document.documentElement.dataset.asked = String(Number(document.documentElement.dataset.asked || 0) + 1);
    setTimeout(ask, wait);
  };
  setTimeout(ask, 1000);
}

start();
