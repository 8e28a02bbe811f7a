"use strict";
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent).then(() => { button.textContent = "Copied"; });
});
const reveal = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", reveal);
reveal();
if (document.documentElement.dataset.live === "page") {
  let seen = null;
  setInterval(async () => {
    const stale = document.getElementById("stale");
    try {
      const version = await (await fetch("version")).text();
      if (seen !== null && seen !== version && !document.activeElement.matches("input")) {
        const answer = await fetch(".");
        if (!answer.ok) throw new Error(answer.status);
        const next = new DOMParser().parseFromString(await answer.text(), "text/html");
        const open = [...document.querySelectorAll("details[open][id]")].map((each) => each.id);
        const focused = document.activeElement.id;
        document.getElementById("live").replaceWith(next.getElementById("live"));
        for (const id of open) { const each = document.getElementById(id); if (each) each.open = true; }
        if (focused) { const each = document.getElementById(focused); if (each) each.focus({ preventScroll: true }); }
        seen = version;
      }
      if (seen === null) seen = version;
      stale.hidden = true;
    } catch (error) { stale.hidden = false; }
  }, 2000);
}
