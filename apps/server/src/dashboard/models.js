// Models: which are there, why one is not ready, and adding, loading and removing them.

import { call, get, request } from "./api.js";
import { attempt, button, confirmed, element, field, keyed, say, write } from "./dom.js";
import { bytes, count } from "./format.js";
import { plan, profile } from "./insight.js";

export const title = "Models";

const shape = ({ name, datatype, shape }) => `${name} ${datatype} [${shape.map((it) => (it < 0 ? "any" : it)).join(", ")}]`;

function card(may, refresh) {
  const name = element("h2");
  const state = element("p");
  const reason = element("p", { class: "warning" });
  const takes = element("p");
  let model;
  const path = () => `models/${encodeURIComponent(model.name)}/versions/${model.version}`;
  const does = (text, work, attributes) =>
    button(text, async () => {
      if (await attempt(work)) await attempt(refresh);
    }, attributes);
  const load = does("Load", async () => {
    await call("POST", `${path()}/load`);
    say(`${model.name}/${model.version} is loaded`);
    return true;
  });
  const unload = does("Unload", async () => {
    await call("POST", `${path()}/unload`, { json: {} });
    say(`${model.name}/${model.version} is unloaded; its file stays`);
    return true;
  });
  const remove = does("Remove", async () => {
    if (!(await confirmed(`${model.name}/${model.version} and its file are removed.`, "Remove it"))) return false;
    await call("DELETE", path());
    say(`${model.name}/${model.version} is removed`);
    return true;
  }, { class: "danger" });
  const tried = element("a", {}, "Try it");
  const timed = button("Where its time goes", () => attempt(() => profile(path())));
  const planned = button("Where its memory goes", () => attempt(() => plan(path())));
  const buttons = element("p", { class: "buttons" }, tried, ...(may("admin") ? [timed, planned, load, unload, remove] : []));
  const made = element("li", { class: "card" }, name, state, reason, takes, buttons);
  made.update = (it) => {
    model = it;
    made.className = `card ${it.state}`;
    write(name, `${it.name}, version ${it.version}`);
    const where = it.workers.length ? ` on ${it.workers.join(", ")}` : "";
    write(state, `${it.state}${where}`);
    reason.hidden = !it.reason;
    write(reason, it.reason);
    write(takes, `Takes ${it.inputs.map(shape).join("; ") || "nothing"}. Gives ${it.outputs.map(shape).join("; ") || "nothing"}.`);
    tried.href = `#/try/${encodeURIComponent(`${it.name}/${it.version}`)}`;
    tried.hidden = it.state !== "ready";
    timed.hidden = it.state !== "ready";
    load.hidden = it.state === "ready";
    unload.hidden = it.state !== "ready";
  };
  return made;
}

function adding(refresh) {
  const name = element("input", { type: "text", required: true, autocomplete: "off", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}" });
  const file = element("input", { type: "file", accept: ".onnx", required: true });
  const said = element("p", { role: "status" });
  file.addEventListener("change", () => {
    const stem = file.files[0]?.name.replace(/\.onnx$/i, "").replaceAll(/[^A-Za-z0-9._-]/g, "-");
    if (!name.value && stem) name.value = stem;
  });
  const submit = async (event) => {
    event.preventDefault();
    const [body] = file.files;
    write(said, `${bytes(body.size)} are on their way …`);
    const headers = { "Content-Type": "application/octet-stream" };
    const answer = await attempt(() => request("POST", `api/v1/cluster/models/${encodeURIComponent(name.value)}`, { body, headers }));
    const model = answer && (await answer.json());
    write(said, model ? `${model.name}, version ${model.version}, is ${model.state}. ${model.reason}` : "");
    if (!model) return;
    form.reset();
    await attempt(refresh);
  };
  const form = element(
    "form",
    { submit },
    field("File", file, "An ONNX file whose weights are inside. Others: radeon-cluster models add"),
    field("Name", name, "Letters, digits, dots, dashes and underscores. A name that is there gets a new version."),
    element("p", { class: "buttons" }, element("button", { type: "submit", class: "main" }, "Add")),
    said,
  );
  return element("details", {}, element("summary", {}, "Add a model"), form);
}

export async function show(place, { every, signal, may }) {
  const said = element("p");
  const cards = element("ul", { class: "cards" });
  const refresh = async () => {
    const models = await get("models", { signal });
    const ready = models.filter((it) => it.state === "ready").length;
    write(said, models.length ? `${count(models.length, "version is", "versions are")} here, ${ready} of them ready.` : "There is no model yet.");
    keyed(cards, models, (it) => `${it.name}/${it.version}`, () => card(may, refresh));
  };
  place.append(said, may("admin") ? adding(refresh) : "", cards);
  await every(2000, refresh);
}
