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
const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
let zone = localStorage.getItem("zone") === "UTC" ? "UTC" : own;
const minute = { hour: "2-digit", minute: "2-digit", hour12: false };
const format = (fields) => new Intl.DateTimeFormat([], { ...fields, timeZone: zone });
let clock, day, whole;
const showZone = () => {
  clock = format({ ...minute, second: "2-digit" });
  day = format({ ...minute, month: "short", day: "numeric" });
  whole = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium", timeZone: zone }); // as in ISO 8601
  const button = byId("zone");
  if (button) button.textContent = zone === "UTC" ? "UTC" : zone.replaceAll("_", " ");
  showTimes();
};
document.addEventListener("click", ({ target }) => {
  if (target.id !== "zone") return;
  zone = zone === "UTC" ? own : "UTC";
  localStorage.setItem("zone", zone === "UTC" ? "UTC" : "local");
  showZone();
});
const showTimes = (root = document) => {
  for (const one of all("time[data-show]", root)) {
    const at = new Date(one.dateTime);
    const seconds = (Date.now() - at) / 1000;
    const show = one.dataset.show;
    const chosen = show === "whole" ? whole : show === "of-day" || Math.abs(seconds) < 72000 ? clock : day;
    const text = show === "ago" ? age(seconds) : chosen.format(at);
    if (one.textContent !== text) one.textContent = text;
    one.title = `${whole.format(at)} ${zone}`;
  }
};
const asOf = (ms) => {
  const time = document.querySelector("#asof time");
  if (!time) return;
  const utc = new Date(ms).toISOString();
  time.dateTime = utc;
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
  if (old.dataset.state && old.dataset.state === fresh.dataset.state) return; // forms that are being filled in
  const held = old.contains(document.activeElement) ? document.activeElement : null;
  const scrolls = all(".scroll", old).map((one) => one.scrollLeft);
  old.replaceWith(fresh);
  prepare(fresh);
  showSelected(fresh);
  all(".scroll", fresh).forEach((one, number) => { one.scrollLeft = scrolls[number] ?? 0; });
  if (held?.name === "run") byId(held.closest("tr").id)?.querySelector("input")?.focus();
  else if (held) (held.id ? byId(held.id) : all("a[href]", fresh).find((one) => one.href === held.href))?.focus();
};
const shows = (column) => { // a column that was left out has something now
  const list = byId("list");
  if (!list.classList.contains(`no-${column}`)) return;
  list.classList.remove(`no-${column}`);
  for (const one of all(".group-head th", list)) one.colSpan += 1;
};
const place = ({ id, group, order, html }) => {
  const old = byId(id);
  const body = group && byId(`rows-${group}`);
  if (!body) return old?.remove();
  const sorted = "sorted" in byId("list").dataset; // by a column: the server knows the order
  if (sorted && old?.parentElement !== body) return load();
  const row = element(html);
  showTimes(row);
  showSelected(row);
  for (const one of all("td:not(:empty)", row)) shows(one.className.slice(2));
  if (old && old.parentElement === body && (sorted || old.dataset.order === row.dataset.order)) {
    const held = old.contains(document.activeElement) && document.activeElement.localName;
    old.replaceWith(row);
    if (held) row.querySelector(held)?.focus();
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
    if (byId("strip") && !byId("list") && fresh.getElementById("list")) location.reload(); // the first runs
    for (const one of all("[data-live], #strip, #list, [id^=more-]")) {
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
  on("rows", (rows) => { if (byId("list")) rows.forEach(place); else location.reload(); });
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

// -- selection: kept in the address, so that a reload and a colleague have it

const selected = new Set(new URLSearchParams(location.search).get("selected")?.split(",").filter(Boolean));
const boxes = (root = document) => all("td > input[name=run]", root);
const showSelected = (root = document) => {
  for (const one of boxes(root)) one.checked = selected.has(one.closest("tr").id);
  const bar = byId("selection");
  if (!bar) return;
  const shown = boxes().filter((one) => one.checked);
  bar.querySelector("output").textContent = `${shown.length} ${shown.length === 1 ? "run" : "runs"} selected`;
  const whole = byId("select-all");
  whole.hidden = false;
  whole.checked = shown.length > 0 && shown.length === boxes().length;
  whole.indeterminate = shown.length > 0 && !whole.checked;
};
const select = (row, on) => selected[on ? "add" : "delete"](row.id);
const keepSelected = () => {
  const address = new URL(location.href);
  if (selected.size) address.searchParams.set("selected", [...selected].join(",")); else address.searchParams.delete("selected");
  history.replaceState(null, "", address.href.replaceAll("%2C", ","));
  showSelected();
};
document.addEventListener("change", ({ target }) => {
  if (target.name === "run") select(target.closest("tr"), target.checked);
  else if (target.id === "select-all") for (const one of boxes()) select(one.closest("tr"), target.checked);
  else return target.closest("#filters")?.requestSubmit();
  keepSelected();
});
document.addEventListener("reset", ({ target }) => {
  if (target.id === "selection") { selected.clear(); setTimeout(keepSelected); }
});
document.addEventListener("submit", ({ target }) => { // empty filters make no address
  if (target.id === "filters") for (const one of target.elements) one.disabled ||= one.name && !one.value;
});

// -- keyboard

const targets = { j: [".run-link, a.flag-link", 1], k: [".run-link, a.flag-link", -1], ".": ["tr:has(.k-repeat)", 1] };
const move = (selector, step) => {
  const found = all(selector);
  const here = document.activeElement?.closest("tr")?.querySelector(selector) ?? document.activeElement;
  const at = found.findIndex((one) => one === here || one.contains(here));
  const next = found[at < 0 ? (step > 0 ? 0 : found.length - 1) : Math.min(Math.max(at + step, 0), found.length - 1)];
  if (!next) return;
  next.closest("details")?.setAttribute("open", "");
  if (next.matches("tr")) next.tabIndex = -1;
  next.focus();
  next.scrollIntoView({ block: "nearest" });
};
const order = (button) => { // of the selected runs, or of the one that has the focus
  const box = document.activeElement?.closest("tr")?.querySelector("input[name=run]");
  if (button.form.id === "selection" && !selected.size) {
    if (!box) return;
    select(box.closest("tr"), true);
    keepSelected();
  }
  const reason = button.form.elements.reason;
  if (reason && !reason.value && !button.formNoValidate) reason.focus(); else button.click();
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && !byId("keys").open) {
    if (event.target.matches("input:not([type=checkbox]), textarea")) event.target.blur();
    else byId("selection")?.reset();
  }
  if (event.target.matches("input:not([type=checkbox]), textarea, select") || byId("keys").open) return;
  const box = event.target.closest("tr")?.querySelector("input[name=run]");
  const button = document.querySelector(`button[data-key="${CSS.escape(event.key)}"]`);
  if (event.key === "/" && byId("search")) { event.preventDefault(); byId("search").focus(); }
  else if (event.key === "?") byId("keys").showModal();
  else if (event.key === "x" && box) box.click();
  else if (event.key in targets) move(...targets[event.key]);
  else if (button) { event.preventDefault(); order(button); }
});
document.addEventListener("click", ({ target }) => {
  if (target.closest("[data-opens]")) byId(target.closest("[data-opens]").dataset.opens).showModal();
});

showSelected();
showZone();
prepare(document);
setInterval(showTimes, 5000);
if (document.body.dataset.events) follow(document.body.dataset.events);
addEventListener("pageshow", ({ persisted }) => { if (persisted) location.reload(); });
