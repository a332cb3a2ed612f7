// Where a model's time and memory go.

import { call, get } from "./api.js";
import { dialog, element, row, say, table } from "./dom.js";
import { bytes, count, ms, number } from "./format.js";

const NODES = 200;
const SVG = "http://www.w3.org/2000/svg";

function drawn(name, attributes, ...children) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const share = (part, whole) => (whole > 0 ? `${number((100 * part) / whole)} %` : "–");

/** The sums of `value` by `key`, the largest first. */
function sums(items, key, value) {
  const all = new Map();
  for (const item of items) all.set(key(item), (all.get(key(item)) ?? 0) + value(item));
  return [...all].sort(([, a], [, b]) => b - a);
}

export async function profile(path) {
  say("A run is measured …");
  const { worker, device, model, model_ms, nodes } = await call("POST", `${path}/profile`);
  say("");
  const total = nodes.reduce((sum, it) => sum + it.ms, 0);
  const [most] = [...nodes].sort((a, b) => b.ms - a.ms);
  const top = most ? ` Most of it, ${share(most.ms, total)}, goes to ${most.op} ${most.name}.` : "";
  const said = element("p", {}, `A run of zeros took ${ms(model_ms)} on ${device} of ${worker}, ${count(nodes.length, "node")} of it ${ms(total)}.${top}`);
  const operators = sums(nodes, (it) => it.op, (it) => it.ms).map(([op, time]) => row(op, number(nodes.filter((it) => it.op === op).length), ms(time), share(time, total)));
  const slow = [...nodes].sort((a, b) => b.ms - a.ms).slice(0, NODES).map((it) => row(it.name || "–", it.op, ms(it.start_ms), ms(it.ms), share(it.ms, total)));
  const byOperator = table("By operator", ["Operator", "Nodes", "Time", "Share"], ...operators);
  const byNode = table("By node, the slowest first", ["Node", "Operator", "Begins at", "Time", "Share"], ...slow);
  dialog(`Where the time of ${model} goes`, said, byOperator.region, byNode.region);
}

/** Each tensor as a box: from left to right the steps of a run, from bottom to top the bytes of the block. */
function picture({ placed, steps, arena_bytes }) {
  const [width, height] = [720, 320];
  const x = (step) => (step / Math.max(1, steps)) * width;
  const y = (at) => height - (at / Math.max(1, arena_bytes)) * height;
  const boxes = placed.map(({ name, op, bytes: size, offset, first, last }, at) => {
    const text = drawn("title", {}, `${name} (${op}): ${bytes(size)}, steps ${first} to ${last}`);
    return drawn("rect", { class: `box box-${at % 4}`, x: x(first), y: y(offset + size), width: Math.max(1, x(last + 1) - x(first)), height: Math.max(0.5, y(offset) - y(offset + size)) }, text);
  });
  const label = `${count(placed.length, "tensor")} in a block of ${bytes(arena_bytes)}, over ${count(steps, "step")}`;
  return drawn("svg", { class: "plan", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...boxes);
}

export async function plan(path) {
  say("The memory is planned …");
  const planned = await get(`${path}/plan`);
  say("");
  const { weights_bytes, input_bytes, output_bytes, arena_bytes, scratch_bytes, peak_bytes, naive_bytes, lower_bound_bytes, placed, peak_node } = planned;
  const saved = arena_bytes ? ` Its tensors share one block of ${bytes(arena_bytes)}; each in a place of its own they would take ${bytes(naive_bytes)}, and less than ${bytes(lower_bound_bytes)} is not possible.` : "";
  const said = element("p", {}, `On the processor a run on one thread takes ${bytes(peak_bytes)} at most, ${bytes(weights_bytes)} of it weights.${saved}${peak_node ? ` The most is in use at node ${peak_node}.` : ""}`);
  const parts = [["Weights", weights_bytes], ["Inputs", input_bytes], ["Outputs", output_bytes], ["Tensors between nodes", arena_bytes], ["What one node takes besides", scratch_bytes]];
  const sizes = table("Parts", ["Part", "Size", "Share"], ...parts.map(([name, size]) => row(name, bytes(size), share(size, peak_bytes))));
  const largest = [...placed].sort((a, b) => b.bytes - a.bytes).slice(0, NODES);
  const tensors = table("Tensors between nodes, the largest first", ["Tensor", "Made by", "Size", "Lives in steps", "Begins at byte"], ...largest.map((it) => row(it.name, it.op, bytes(it.bytes), `${it.first} to ${it.last}`, number(it.offset))));
  const seen = placed.length ? [element("p", { class: "hint" }, "From left to right the steps of a run, from bottom to top the block's bytes: each box is a tensor while it is needed."), picture(planned)] : [];
  dialog(`Where the memory of ${planned.model} goes`, said, ...seen, sizes.region, tensors.region);
}
