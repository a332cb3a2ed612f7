// How the cluster does, in one sentence, a few numbers, and two charts.

import { call, events, get } from "./api.js";
import { chart } from "./chart.js";
import { element, keyed, table, textRow, write } from "./dom.js";
import { count, duration, ms, number, time } from "./format.js";

export const title = "Overview";
const EVENTS = 50;
const PRIORITIES = ["critical", "high", "normal", "low", "background"];

function sentence({ workers, tasks, tasks_per_s, latency_ms }) {
  const away = [
    [workers.draining, "leaving"],
    [workers.away, "away for a moment"],
    [workers.lost, "lost"],
  ].filter(([many]) => many);
  const others = away.length ? ` (${away.map(([many, what]) => `${number(many)} ${what}`).join(", ")})` : "";
  if (!workers.ready) return `No worker is ready${others}: tasks wait until one comes. Machines says how to add one.`;
  const work = tasks.running || tasks.queued ? `${count(tasks.running, "task is", "tasks are")} running and ${number(tasks.queued)} waiting` : "Nothing waits";
  const pace = latency_ms.count ? ` Of the latest tasks half took ${ms(latency_ms.p50)} or less, and one in twenty more than ${ms(latency_ms.p95)}; ${number(tasks_per_s)} ended a second.` : "";
  return `${count(workers.ready, "worker is", "workers are")} ready${others}. ${work}.${pace}`;
}

const NUMBERS = [
  ["Workers ready", ({ workers }) => number(workers.ready)],
  ["Running", ({ tasks }) => number(tasks.running)],
  ["Waiting", ({ tasks }) => number(tasks.queued)],
  ["Succeeded", ({ tasks }) => number(tasks.succeeded)],
  ["Failed", ({ tasks }) => number(tasks.failed)],
  ["Tried again", ({ retries }) => number(retries)],
  ["Time in the model, median", ({ model_ms }) => (model_ms.count ? ms(model_ms.p50) : "–")],
  ["Time besides the model, median", ({ overhead_ms }) => (overhead_ms.count ? ms(overhead_ms.p50) : "–")],
  ["Running for", ({ uptime_s }) => duration(uptime_s)],
];

function numbers() {
  const values = NUMBERS.map(() => element("dd", {}, "–"));
  const list = NUMBERS.map(([name], at) => element("div", {}, element("dt", {}, name), values[at]));
  const made = element("dl", { class: "numbers" }, ...list);
  made.update = (stats) => NUMBERS.forEach(([, read], at) => write(values[at], read(stats)));
  return made;
}

const latest = (column) => column[column.length - 1] ?? null;

function charts() {
  return [
    chart("Tasks", "/s", [["ended", (it) => it.ended_per_s]], ({ ended_per_s }) => {
      const most = Math.max(0, ...ended_per_s);
      return `${number(latest(ended_per_s) ?? 0)} tasks a second end at present; the most in this half hour were ${number(most)}.`;
    }),
    chart(
      "Time of a task",
      "ms",
      [
        ["half", (it) => it.latency_ms.p50],
        ["95 of 100", (it) => it.latency_ms.p95],
        ["99 of 100", (it) => it.latency_ms.p99],
      ],
      ({ latency_ms: { p50, p99 } }) => (latest(p50) === null ? "No task has ended yet." : `From its submission to its end half of the latest tasks took up to ${ms(latest(p50))}, 99 of 100 up to ${ms(latest(p99))}.`),
    ),
  ];
}

/** What happened, in words. */
function story({ event, ...about }) {
  const { worker, model, device, reason } = about;
  const model_name = typeof model === "object" && model ? `${model.name}/${model.version}` : model;
  const parts = [event.replaceAll("_", " "), worker, device, model_name, reason].filter((part) => typeof part === "string" && part);
  return parts.join(" · ");
}

function control(standing) {
  const { control } = standing;
  if (!control) return "One coordinator, whose data folder has everything.";
  const others = control.coordinators.length;
  const lead = control.leads ? "this one leads" : "another one leads";
  const trouble = control.trouble ? ` ${control.engine} does not answer: ${control.trouble}. What runs goes on.` : "";
  return `${count(others, "coordinator")} on ${control.engine}, ${lead}.${trouble}`;
}

export async function show(place, { every, signal }) {
  const said = element("p", { class: "lead" });
  const standing = element("p");
  const all = numbers();
  const drawn = charts();
  const waiting = table("Waiting tasks by model", ["Model", "Waiting"]);
  const urgent = table("Waiting tasks by priority", ["Priority", "Waiting"]);
  const none = element("p", {}, "Nothing waits.");
  const happened = table("What happened of late", ["Time", "What"]);
  place.append(said, all, element("div", { class: "charts" }, ...drawn), none, waiting.region, urgent.region, happened.region, standing);
  events((event) => {
    happened.body.prepend(element("tr", {}, element("td", {}, time(event.at_ms)), element("td", {}, story(event))));
    while (happened.body.rows.length > EVENTS) happened.body.lastChild.remove();
  }, signal);
  every(1000, async () => {
    const stats = await get("stats", { signal });
    write(said, sentence(stats));
    all.update(stats);
    const models = Object.entries(stats.queued_by_model);
    none.hidden = models.length > 0;
    waiting.region.hidden = !models.length;
    urgent.region.hidden = !models.length;
    const counted = () => textRow([([name]) => name, ([, many]) => number(many)]);
    keyed(waiting.body, models, ([name]) => name, counted);
    const levels = PRIORITIES.filter((it) => stats.queued_by_priority[it]);
    keyed(urgent.body, levels.map((it) => [it, stats.queued_by_priority[it]]), ([name]) => name, counted);
  });
  every(5000, async () => write(standing, control(await call("POST", "coordinator/start", { signal }))));
  await every(2000, async () => {
    const history = await get("stats/history", { signal });
    drawn.forEach((one) => one.update(history));
  });
}
