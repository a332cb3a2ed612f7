// The machines of the cluster: their devices, what they do, and how another one joins.

import { call, get } from "./api.js";
import { attempt, button, confirmed, dialog, element, field, keyed, picture, say, select, table, textRow, write } from "./dom.js";
import { bytes, count, duration, number } from "./format.js";

export const title = "Machines";

const STATES = { ready: "ready", draining: "leaving: it finishes what it has", away: "away for a moment", lost: "lost: its tasks went to others" };

function meter(label, used, most, text) {
  const bar = element("meter", { min: "0", max: "1", "aria-label": label });
  const said = element("span");
  const made = element("p", { class: "meter" }, element("span", {}, label), bar, said);
  made.update = (device) => {
    const [part, whole] = [used(device), most(device)];
    made.hidden = part === null || part === undefined || !whole;
    if (made.hidden) return;
    bar.value = Math.min(1, part / whole);
    write(said, text(part, whole));
  };
  return made;
}

const percent = (part) => `${Math.round(part * 100)} %`;

function device() {
  const name = element("h3");
  const facts = element("p");
  const out = element("p", { class: "warning" });
  const meters = [
    meter("Memory", (it) => it.vram_used_bytes, (it) => it.vram_total_bytes, (part, whole) => `${bytes(part)} of ${bytes(whole)}`),
    meter("At work", (it) => it.utilisation, () => 1, percent),
  ];
  const made = element("li", { class: "device" }, name, facts, ...meters, out);
  made.update = (it) => {
    write(name, it.name ? `${it.device}: ${it.name}` : `${it.device} (${it.backend})`);
    const sensors = [it.driver, it.temperature_c === null ? "" : `${number(Math.round(it.temperature_c))} °C`, it.power_w === null ? "" : `${number(it.power_w)} W`].filter(Boolean);
    const models = it.models.length ? `has ${it.models.map((name) => (it.model_bytes[name] ? `${name} (${bytes(it.model_bytes[name])})` : name)).join(", ")}` : "has no model loaded";
    write(facts, `${[`${number(it.running)} of ${number(it.slots)} places taken`, ...sensors].join(", ")}; ${models}.`);
    for (const one of meters) one.update(it);
    out.hidden = !it.taken_out;
    write(out, it.taken_out ? `Taken out: ${it.taken_out}. Enable lets it work again.` : "");
  };
  return made;
}

/** A device that does nothing here, and what to do about it. */
function unused() {
  const name = element("h3");
  const reason = element("p");
  const hint = element("p");
  const line = element("code");
  hint.append("Try: ", line);
  const made = element("li", { class: "device unused" }, name, reason, hint);
  made.update = (it) => {
    write(name, `${it.id}: ${it.name}, not used`);
    write(reason, `${it.reason}.`);
    hint.hidden = !it.hint;
    write(line, it.hint ?? "");
  };
  return made;
}

function card(may) {
  const name = element("h2");
  const state = element("p");
  const devices = element("ul", { class: "devices" });
  const others = element("ul", { class: "devices" });
  const id = () => made.dataset.id;
  const drain = button("Let it leave", async () => {
    if (!(await confirmed(`${id()} finishes what it has and leaves the cluster.`, "Let it leave"))) return;
    if (await attempt(() => call("POST", `workers/${encodeURIComponent(id())}/shutdown`))) say(`${id()} leaves`);
  });
  const enable = button("Enable its devices", async () => {
    const done = await attempt(() => call("POST", `workers/${encodeURIComponent(id())}/enable`));
    if (done) say(`${count(done.enabled.length, "device")} of ${id()} may work again`);
  });
  const made = element("li", { class: "card" }, name, state, devices, others, may("admin") ? element("p", { class: "buttons" }, drain, enable) : null);
  made.update = (worker) => {
    made.dataset.id = worker.id;
    made.className = `card ${worker.state}`;
    write(name, worker.id);
    const seen = worker.last_seen_ms > 3000 ? `, heard of ${duration(worker.last_seen_ms / 1000)} ago` : "";
    write(state, `${STATES[worker.state]}; ${count(worker.completed, "task")} done, ${number(worker.queued)} waiting here${seen}; by ${worker.transport}; version ${worker.version}.`);
    keyed(devices, worker.devices, (it) => it.device, device);
    keyed(others, worker.unused, (it) => it.id, unused);
    drain.disabled = worker.state !== "ready";
    enable.hidden = !worker.devices.some((it) => it.taken_out);
  };
  return made;
}

const isLoopback = (place) => /^(127\.|\[::1\])/.test(place);

function told(made) {
  const [place = "HOST", ...others] = made.addresses;
  const shown = element("pre", { class: "wrap", tabindex: "0" }, `radeon-cluster join ${place} ${made.token}`);
  const copy = button("Copy the command", async () => {
    // Browsers have a clipboard only where the page came by TLS or from this machine.
    getSelection().selectAllChildren(shown);
    const copied = await navigator.clipboard?.writeText(shown.textContent).then(() => true, () => false);
    say(copied ? "The command is in the clipboard" : "The command is selected: copy it with Ctrl+C");
  });
  const checks = [
    "The other machine has radeon-cluster of the same version.",
    `Nothing between the two blocks UDP to ${place}.${others.length ? ` This machine is also ${others.join(", ")}.` : ""}`,
    "Their clocks are not minutes apart: certificates have times.",
    `The token works ${count(made.uses, "time")} and for ${duration(made.expires_in_s)}; make another when it is over.`,
    "radeon-cluster doctor, on that machine, says which of its cards work.",
  ];
  return [
    isLoopback(place) ? element("p", { class: "warning" }, "Other machines cannot reach this coordinator: it listens on this machine alone. Stop it, then start it with: radeon-cluster start --quic 0.0.0.0:8443") : null,
    element("p", {}, "Run this on the other machine:"),
    shown,
    element("p", { class: "buttons" }, copy),
    made.qr_svg ? picture(made.qr_svg, "The command as a code for a camera") : null,
    element("p", {}, "It appears among the machines within seconds. Where it does not:"),
    element("ul", {}, ...checks.map((text) => element("li", {}, text))),
  ];
}

function join(refresh) {
  const uses = element("input", { type: "number", min: "1", max: "1000", value: "1" });
  const ttl = select([["900", "a quarter of an hour"], ["3600", "an hour"], ["86400", "a day"], ["604800", "a week"]], "3600");
  const result = element("div", { "aria-live": "polite" });
  const submit = async (event) => {
    event.preventDefault();
    const json = { uses: Number(uses.value), ttl_s: Number(ttl.value) };
    const made = await attempt(() => call("POST", "tokens", { json }));
    if (!made) return shown.close();
    result.replaceChildren(...told(made).filter(Boolean));
    await attempt(refresh);
  };
  const form = element("form", { submit }, field("Machines that may join with it", uses), field("It works for", ttl), element("p", { class: "buttons" }, element("button", { type: "submit", class: "main" }, "Make a token")));
  const shown = dialog("Add a machine", form, result);
}

export async function show(place, { every, signal, may }) {
  const none = element("p", { hidden: true }, "No machine is there.");
  const cards = element("ul", { class: "cards" });
  const tokens = table("Join tokens", ["Token", "State", "Uses left", "Works for", "Action"]);
  const refresh = async () => {
    const all = await get("tokens", { signal });
    tokens.region.hidden = !all.length;
    keyed(tokens.body, all, (it) => it.id, ({ id }) => {
      const revoke = button("Take back", async () => {
        if (await attempt(() => call("DELETE", `tokens/${encodeURIComponent(id)}`))) say(`token ${id} lets nobody in any more`);
        await attempt(refresh);
      });
      return textRow([(it) => it.id, (it) => it.state.replace("_", " "), (it) => `${it.uses_left} of ${it.uses}`, (it) => duration(it.expires_in_s)], [revoke]);
    });
  };
  const add = button("Add a machine", () => join(refresh), { class: "main" });
  place.append(may("admin") ? element("p", { class: "buttons" }, add) : "", none, cards);
  if (may("admin")) {
    place.append(tokens.region);
    every(10_000, refresh);
  }
  await every(1000, async () => {
    const workers = await get("workers", { signal });
    none.hidden = workers.length > 0;
    keyed(cards, workers, (it) => it.id, () => card(may));
  });
}

