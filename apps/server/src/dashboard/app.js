// Which page is shown, to whom.

import { get, keep, key, request, call } from "./api.js";
import { attempt, element, explain, write } from "./dom.js";
import * as access from "./access.js";
import * as logs from "./logs.js";
import * as machines from "./machines.js";
import * as models from "./models.js";
import * as overview from "./overview.js";
import * as signIn from "./sign_in.js";
import * as tasks from "./tasks.js";
import * as tryOut from "./try.js";

const PAGES = { "": overview, machines, tasks, models, try: tryOut, logs, access };

const main = document.getElementById("main");
const nav = document.querySelector("nav");
let leaving = new AbortController();
let me = null;
let shown = false;

/** Does something now and every so often, while its page is shown and can be seen. */
function every(ms, work) {
  const { signal } = leaving;
  const step = async () => {
    if (signal.aborted) return;
    if (!document.hidden) {
      try {
        await work(signal);
        if (signal.aborted) return;
        if (document.body.classList.contains("away")) {
          document.body.classList.remove("away");
          explain(null);
        }
      } catch (error) {
        if (signal.aborted) return;
        document.body.classList.add("away");
        explain(error);
      }
    }
    setTimeout(step, ms);
  };
  return step();
}

async function show() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  explain(null);
  const [, name = "", rest = ""] = /^#\/([^/]*)\/?(.*)$/.exec(location.hash) ?? [];
  const page = me ? (PAGES[name] ?? overview) : signIn;
  for (const link of nav.querySelectorAll("a")) {
    const isHere = link.hash.startsWith("#/") && PAGES[link.hash.slice(2)] === page;
    if (isHere) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  nav.hidden = !me;
  document.title = `${page.title} · radeon-cluster`;
  const head = element("h1", { tabindex: "-1" }, page.title);
  const place = element("div");
  main.replaceChildren(head, place);
  // A screen reader goes on here; there is nothing to leave at the first page.
  if (shown) head.focus();
  shown = true;
  const may = (role) => ["infer", "submit", "admin"].indexOf(me?.role) >= ["infer", "submit", "admin"].indexOf(role);
  await attempt(() => page.show(place, { every, signal, rest: decodeURIComponent(rest), may, signedIn }));
}

async function signedIn() {
  me = await get("session");
  if (me.role === "infer") {
    const isKey = me.id !== "-";
    me = null;
    keep(null);
    if (isKey) throw new Error("this key is for inference alone, and the page needs one with the role submit or admin");
  }
  write(document.getElementById("who"), me ? `${me.id === "local" ? "this machine's owner" : me.id} (${me.role})` : "");
  document.getElementById("sign-out").hidden = !me;
  await show();
}

async function signOut(reason) {
  if (!reason) await request("DELETE", "api/v1/cluster/session").catch(() => {});
  keep(null);
  me = null;
  write(document.getElementById("who"), "");
  document.getElementById("sign-out").hidden = true;
  await show();
  if (reason) explain(reason);
}

/** Signs in by a link that works once, which is taken out of the history at once, or by the key that is kept. */
async function enter() {
  let trouble = null;
  const [, code] = /^#link=(.+)$/.exec(location.hash) ?? [];
  try {
    if (code) {
      history.replaceState(null, "", "#/");
      keep((await call("POST", "session", { json: { code } })).key);
    }
  } catch (error) {
    trouble = error;
  }
  try {
    if (key()) await signedIn();
    else await show();
  } catch (error) {
    trouble = error;
    await show();
  }
  if (trouble) explain(trouble);
}

document.getElementById("sign-out").addEventListener("click", () => signOut());
document.addEventListener("signed-out", (event) => signOut(event.detail));
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.querySelector("h1")?.focus();
});
window.addEventListener("hashchange", () => (location.hash.startsWith("#link=") ? enter() : show()));

await enter();
