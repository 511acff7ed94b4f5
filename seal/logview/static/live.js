// Follows a run: fetches the page again every few seconds and replaces what changed.
// It also shows times as ages, and makes j, k, u follow the links to the next, previous and upper page.
"use strict";

const EVERY_MS = 3000;
let tag = null;
// The page as it was sent, before times became ages: an unchanged page is not replaced.
let sent = document.querySelector("main").cloneNode(true);
let asking = false;

function showAges(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const s = Math.max(0, Math.round((Date.now() - at) / 1000));
    time.title = new Date(at).toLocaleString();
    time.textContent =
      s < 90 ? `${s} s ago` : s < 5400 ? `${Math.round(s / 60)} min ago`
      : s < 129600 ? `${Math.round(s / 3600)} h ago` : `${Math.round(s / 86400)} days ago`;
  }
}

// The page is not replaced while somebody fills in a form or selects text.
function isBusy(main) {
  const active = document.activeElement;
  return (active && main.contains(active) && active.form) || !window.getSelection().isCollapsed;
}

function put(html) {
  // A parsed document is inert: it runs no script and loads nothing.
  const next = new DOMParser().parseFromString(html, "text/html").querySelector("main");
  const main = document.querySelector("main");
  if (!next || isBusy(main)) return false;
  if (next.isEqualNode(sent)) return true;
  sent = next.cloneNode(true);
  const link = main.contains(document.activeElement) && document.activeElement.getAttribute("href");
  const scrolled = [...main.querySelectorAll(".wide")].map((wide) => wide.scrollLeft);
  showAges(next);
  main.replaceWith(next);
  next.querySelectorAll(".wide").forEach((wide, i) => { wide.scrollLeft = scrolled[i] || 0; });
  if (link) {
    const same = [...next.querySelectorAll("a[href]")].find((a) => a.getAttribute("href") === link);
    if (same) same.focus({ preventScroll: true });
  }
  return true;
}

async function follow() {
  const main = document.querySelector("main[data-live]");
  if (!main || document.hidden || asking) return;
  asking = true;
  const connection = document.getElementById("connection");
  try {
    const headers = tag ? { "If-None-Match": tag } : {};
    const answer = await fetch(location.href, { headers, cache: "no-store" });
    if (answer.ok && put(await answer.text())) tag = answer.headers.get("ETag");
    connection.textContent = "";
  } catch {
    connection.textContent = "The log viewer does not answer; what is shown may be old.";
  } finally {
    asking = false;
  }
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  const rel = { j: "next", k: "prev", u: "up" }[event.key];
  const link = rel && document.querySelector(`a[rel=${rel}]`);
  if (link) link.click();
});

showAges(document);
setInterval(() => { showAges(document); follow(); }, EVERY_MS);
document.addEventListener("visibilitychange", follow);
