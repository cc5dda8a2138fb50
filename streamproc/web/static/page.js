// Keeps a page current, shows times in the reader's zone, and moves by keyboard. All of it works without, by reloading.
const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("streamproc", { createHTML: (text) => text })
  : { createHTML: (text) => text };
// Markup comes from this server only, which has escaped the texts in it.
const parsed = (text) => new DOMParser().parseFromString(policy.createHTML(text), "text/html");
const element = (text) => {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(text);
  return template.content.firstElementChild;
};
const byId = (id) => document.getElementById(id);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// -- times

const units = [[86400, "d"], [3600, "h"], [60, "min"]];
const age = (seconds) => {
  const [size, name] = units.find(([size]) => seconds >= size) ?? [1, "s"];
  return `${Math.max(0, Math.floor(seconds / size))} ${name} ago`;
};
const clock = new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat([], { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });
const showTimes = (root = document) => {
  for (const one of all("time[data-show]", root)) {
    const at = new Date(one.dateTime);
    const seconds = (Date.now() - at) / 1000;
    const text = one.dataset.show === "ago" ? age(seconds) : (Math.abs(seconds) < 72000 ? clock : day).format(at);
    if (one.textContent !== text) one.textContent = text;
  }
};
const asOf = (ms) => {
  const time = document.querySelector("#asof time");
  if (!time) return;
  const utc = new Date(ms).toISOString();
  time.dateTime = utc;
  time.title = `${utc.slice(0, 19).replace("T", " ")} UTC`;
  showTimes();
};

// -- what is long is folded, and tables can be filtered

const prepare = (root) => {
  for (const one of all("details[data-fold]", root)) one.open = opened.has(one.parentElement.id) || inHash(one);
  for (const bar of all(".filter", root)) filterBar(bar);
  showTimes(root);
};
const opened = new Set();
const inHash = (one) => location.hash.length > 1 && one.parentElement.id === location.hash.slice(1);
document.addEventListener("toggle", ({ target }) => {
  if (target.matches?.("details[data-fold]")) opened[target.open ? "add" : "delete"](target.parentElement.id);
}, true);
const filterBar = (bar) => {
  const rows = all("tbody tr", bar.parentElement);
  const [search, only] = [bar.querySelector("input[type=search]"), bar.querySelector("input[type=checkbox]")];
  bar.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word)) || Boolean(only?.checked && !("mark" in row.dataset));
    }
    const shown = rows.filter((row) => !row.hidden).length;
    bar.querySelector("output").textContent = shown === rows.length ? "" : `${shown} of ${rows.length} rows`;
  });
  bar.hidden = false;
};

// -- live

const swap = (old, fresh) => {
  if (!old || old.isEqualNode(fresh)) return;
  const held = old.contains(document.activeElement) ? document.activeElement : null;
  const scrolls = all(".scroll", old).map((one) => one.scrollLeft);
  old.replaceWith(fresh);
  prepare(fresh);
  all(".scroll", fresh).forEach((one, number) => { one.scrollLeft = scrolls[number] ?? 0; });
  if (held) (held.id ? byId(held.id) : all("a[href]", fresh).find((one) => one.href === held.href))?.focus();
};
const place = ({ id, group, order, html }) => {
  const old = byId(id);
  const body = group && byId(`rows-${group}`);
  if (!body) return old?.remove();
  const row = element(html);
  showTimes(row);
  if (old && old.parentElement === body && old.dataset.order === row.dataset.order) {
    const held = old.contains(document.activeElement);
    old.replaceWith(row);
    if (held) row.querySelector("a")?.focus();
    return;
  }
  if (old?.contains(document.activeElement)) return; // it would move away from whom reads it; the next load moves it
  old?.remove();
  row.classList.add("fresh");
  const next = [...body.children].find((one) => Number(one.dataset.order) < order);
  if (next || body.children.length < Number(body.dataset.most)) body.insertBefore(row, next ?? null);
  if (body.children.length > Number(body.dataset.most)) body.lastElementChild.remove();
};
let loading = false;
let waiting = false;
const load = async () => {
  if (loading) { waiting = true; return; }
  loading = true;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    const fresh = parsed(await answer.text());
    if (answer.redirected || !fresh.querySelector("[data-live], #strip")) return;
    if (byId("strip") && !byId("rows-others") && fresh.getElementById("rows-others")) location.reload(); // the first runs
    for (const one of all("[data-live], #strip, tbody[id], [id^=count-]")) {
      const found = fresh.getElementById(one.id);
      if (found) swap(one, document.importNode(found, true));
    }
  } catch { /* the bar says it */ } finally {
    setTimeout(() => { loading = false; if (waiting) { waiting = false; load(); } }, 1500);
  }
};
const again = async (address) => { // the server has answered, and refused: the session is over, or it is too busy
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (answer?.redirected) byId("lost").textContent = "You are logged out. Reload the page to log in.";
  else setTimeout(() => follow(address), 3000);
};
const follow = (address) => {
  const source = new EventSource(address);
  const on = (name, take) => source.addEventListener(name, ({ data }) => take(JSON.parse(data)));
  on("rows", (rows) => { if (byId("rows-others")) rows.forEach(place); else location.reload(); });
  on("swap", (parts) => { for (const [id, html] of Object.entries(parts)) swap(byId(id), element(html)); });
  on("texts", (parts) => { for (const [id, text] of Object.entries(parts)) if (byId(id)) byId(id).textContent = text; });
  on("changed", load);
  on("beat", asOf);
  source.addEventListener("open", () => {
    document.documentElement.dataset.live = "yes";
    byId("lost").hidden = true;
  });
  source.addEventListener("error", () => {
    document.documentElement.dataset.live = "no";
    byId("lost").hidden = false;
    if (source.readyState === EventSource.CLOSED) again(address);
  });
  addEventListener("pagehide", () => source.close());
};

// -- keyboard

const targets = { j: [".run-link, a.flag-link", 1], k: [".run-link, a.flag-link", -1], ".": ["tr:has(.k-repeat)", 1] };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  if (event.key === "/" && byId("search")) { event.preventDefault(); byId("search").focus(); return; }
  const [selector, step] = targets[event.key] ?? [];
  if (!selector) return;
  const found = all(selector);
  const at = found.findIndex((one) => one === document.activeElement || one.contains(document.activeElement));
  const next = found[at < 0 ? (step > 0 ? 0 : found.length - 1) : Math.min(Math.max(at + step, 0), found.length - 1)];
  if (!next) return;
  next.closest("details")?.setAttribute("open", "");
  if (next.matches("tr")) next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
});

prepare(document);
setInterval(showTimes, 5000);
if (document.body.dataset.events) follow(document.body.dataset.events);
addEventListener("pageshow", ({ persisted }) => { if (persisted) location.reload(); });
