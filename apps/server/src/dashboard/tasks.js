// Tasks: which there are, what became of each, and why it ran where it did.

import { call, get, request } from "./api.js";
import { attempt, button, confirmed, dialog, element, field, keyed, row, say, select, table, textRow, write } from "./dom.js";
import { count, ms, number } from "./format.js";

export const title = "Tasks";
const PAGE = 50;
const STATES = ["queued", "running", "succeeded", "failed", "cancelled"];
const OPEN = ["queued", "running"];
const ENDED_BADLY = ["failed", "cancelled"];

const COLUMNS = [
  ["Model", (it) => it.model],
  ["State", (it) => it.state],
  ["Priority", (it) => it.priority],
  ["Worker", (it) => it.worker ?? "–"],
  ["Tries", (it) => number(it.attempts)],
  ["Waited", (it) => ms(it.queued_ms)],
  ["In the model", (it) => ms(it.model_ms)],
];

function facts(task) {
  const all = [
    ["State", task.state],
    ["Model", task.variant ? `${task.model}, answered by ${task.variant}` : task.model],
    ["Priority", task.priority],
    ["Kept through a crash", task.durable ? "yes" : "no"],
    ["Worker", task.worker ?? "none yet"],
    ["Device", task.device ?? "–"],
    ["Tries", number(task.attempts)],
    ["Waited", ms(task.queued_ms)],
    ["In the model", ms(task.model_ms)],
    ["Besides the model", ms(task.overhead_ms)],
    ["Depends on", task.depends_on.join(", ") || "nothing"],
    ["Outputs", task.outputs?.map((it) => `${it.name} ${it.datatype} [${it.shape.join(", ")}]`).join("; ") || "none"],
  ];
  if (task.error) all.push(["Error", `${task.error.code}: ${task.error.message}`]);
  return element("dl", { class: "facts" }, ...all.flatMap(([name, text]) => [element("dt", {}, name), element("dd", {}, text)]));
}

async function details(id, refresh) {
  const path = `tasks/${encodeURIComponent(id)}`;
  const [task, why] = await Promise.all([get(path), get(`${path}/why`)]);
  const decisions = table("What was decided about it", ["After", "What"], ...why.decisions.map(({ at_ms, what }) => row(ms(at_ms), what)));
  const cancel = button("Cancel the task", async () => {
    if (!(await confirmed(`Task ${id} ends without a result.`, "Cancel it"))) return;
    if (await attempt(() => call("DELETE", path))) say(`task ${id} is cancelled`);
    shown.close();
    await attempt(refresh);
  });
  const retry = button("Run it again", async () => {
    const made = await attempt(() => call("POST", `${path}/retry`));
    shown.close();
    if (made) say(`task ${made.task_id} runs task ${id} again`);
    await attempt(refresh);
  });
  const fits = OPEN.includes(task.state) ? cancel : ENDED_BADLY.includes(task.state) ? retry : null;
  const buttons = fits && element("p", { class: "buttons" }, fits);
  const shown = dialog(`Task ${id}`, facts(task), decisions.region, ...(buttons ? [buttons] : []));
}

export async function show(place, { every, signal, rest }) {
  const filter = { state: "", model: "" };
  let after = [];
  const state = select([["", "any"], ...STATES.map((it) => [it, it])], "", { change: () => again({ state: state.value }) });
  const model = element("input", { type: "search", autocomplete: "off", change: () => again({ model: model.value.trim() }) });
  const said = element("p", { role: "status" });
  const { region, body } = table("Tasks, the newest first", ["Task", ...COLUMNS.map(([name]) => name)]);
  const newer = button("Newer", () => turn(after.slice(0, -1)));
  const older = button("Older", () => turn([...after, older.dataset.after]));
  const again = (change) => {
    Object.assign(filter, change);
    return turn([]);
  };
  const turn = (to) => {
    after = to;
    return attempt(refresh);
  };
  const make = ({ task_id }) => {
    // The button says the same as the text, so that it stays, and keeps the focus.
    const made = textRow([(it) => it.task_id, ...COLUMNS.map(([, read]) => read)]);
    const open = button(task_id, () => attempt(() => details(task_id, refresh)), { class: "link" });
    const update = made.update;
    made.update = (task) => {
      update(task);
      made.className = task.state;
      if (!open.parentNode) made.cells[0].replaceChildren(open);
    };
    return made;
  };
  const refresh = async () => {
    const query = new URLSearchParams({ limit: PAGE });
    for (const [name, value] of Object.entries(filter)) if (value) query.set(name, value);
    if (after.length) query.set("after", after[after.length - 1]);
    const answer = await request("GET", `api/v1/cluster/tasks?${query}`, { signal });
    const tasks = await answer.json();
    const [, next] = /[?&]after=([^&>]+)/.exec(answer.headers.get("link") ?? "") ?? [];
    older.disabled = !next;
    older.dataset.after = next ?? "";
    newer.disabled = !after.length;
    write(said, tasks.length ? `${count(tasks.length, "task")} on page ${after.length + 1}.` : "No tasks like that.");
    region.hidden = !tasks.length;
    keyed(body, tasks, (it) => it.task_id, make);
  };
  place.append(
    element("form", { class: "filter", submit: (event) => event.preventDefault() }, field("State", state), field("Model", model)),
    said,
    region,
    element("p", { class: "buttons" }, newer, older),
  );
  if (rest) attempt(() => details(rest, refresh));
  await every(2000, refresh);
}
