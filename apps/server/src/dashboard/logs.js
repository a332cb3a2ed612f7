// What the processes of this machine have logged, as it comes.

import { get } from "./api.js";
import { element, field, keyed, row, select, table, write } from "./dom.js";
import { count } from "./format.js";

export const title = "Log";
const SHOWN = 500;
const LEVELS = [["trace", "everything"], ["info", "what happens"], ["warn", "warnings and errors"], ["error", "errors alone"]];

function line({ at, level, source, text }) {
  const made = row(at.slice(11, 23), level, source, element("span", { class: "log" }, text));
  made.className = level;
  made.cells[0].title = at;
  return made;
}

export async function show(place, { every, signal, may }) {
  if (!may("admin")) return place.append(element("p", {}, "Only administrators see logs."));
  let lines = [];
  const filter = { level: "info", contains: "" };
  const choose = (change) => {
    Object.assign(filter, change);
    lines = [];
    return refresh();
  };
  const level = select(LEVELS, "info", { change: () => choose({ level: level.value }) });
  const part = element("input", { type: "search", autocomplete: "off", input: () => choose({ contains: part.value.trim() }) });
  const said = element("p", { role: "status" });
  const { region, body } = table("Lines, the newest first", ["Time (UTC)", "Level", "From", "What"]);
  const refresh = async () => {
    const asked = { ...filter };
    const query = new URLSearchParams({ ...asked, limit: String(SHOWN) });
    if (lines.length) query.set("after", lines[lines.length - 1].at);
    const news = await get(`logs?${query}`, { signal });
    // Another choice was made meanwhile.
    if (asked.level !== filter.level || asked.contains !== filter.contains) return;
    lines = [...lines, ...news].slice(-SHOWN);
    write(said, lines.length ? `${count(lines.length, "line")}${lines.length === SHOWN ? ", the latest" : ""}.` : "No lines like that.");
    region.hidden = !lines.length;
    keyed(body, lines.toReversed(), (it) => `${it.at} ${it.source} ${it.text}`, line);
  };
  place.append(element("form", { class: "filter", submit: (event) => event.preventDefault() }, field("Show", level), field("With the text", part)), said, region);
  await every(2000, refresh);
}
