// Trying a model: a picture or numbers in, its answer, its time and its device out.

import { get, request } from "./api.js";
import { attempt, element, field, row, select, table, write } from "./dom.js";
import { ms, number } from "./format.js";
import { fromPicture, fromText, largest, pictured, sizes } from "./tensors.js";

export const title = "Try a model";
const SHOWN = 5;
const VALUES = 64;

const nameOf = ({ name, version }) => `${name}/${version}`;

/** The digits' model takes ink as numbers to 16, others brightness up to 1. */
const usual = (model) => (model.name === "digits" ? { scale: 16, invert: true } : { scale: 1, invert: false });

function pictureField(input, model) {
  const { scale, invert } = usual(model);
  const file = element("input", { type: "file", accept: "image/*" });
  const most = element("input", { type: "number", step: "any", value: String(scale) });
  const dark = element("input", { type: "checkbox", checked: invert });
  const preview = element("div", { class: "preview" });
  const drop = element("div", { class: "drop" }, field(`${input.name}: a picture`, file, "Choose one, drop it here, or paste it."), preview);
  const take = (files) => {
    const [picture] = [...files].filter((it) => it.type.startsWith("image/"));
    if (!picture) return;
    const moved = new DataTransfer();
    moved.items.add(picture);
    file.files = moved.files;
    file.dispatchEvent(new Event("change", { bubbles: true }));
  };
  drop.addEventListener("dragover", (event) => event.preventDefault());
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    take(event.dataTransfer.files);
  });
  const made = element("div", { paste: (event) => take(event.clipboardData.files) }, drop, field("The value of the brightest pixel", most), field("Dark counts as bright, as ink on paper", dark));
  made.read = () => {
    if (!file.files.length) throw new Error(`${input.name} has no picture yet`);
    const how = { scale: Number(most.value), invert: dark.checked };
    return fromPicture(file.files[0], input, how, (canvas) => preview.replaceChildren(canvas));
  };
  return made;
}

function textField(input) {
  const area = element("textarea", { rows: "4", cols: "40", spellcheck: "false" });
  const shape = sizes(input);
  const many = shape.reduce((all, size) => all * size, 1);
  if (many <= 4096 && input.datatype !== "BYTES") area.value = JSON.stringify(Array(many).fill(input.datatype === "BOOL" ? false : 0));
  const made = element("div", {}, field(`${input.name}: ${input.datatype} [${shape.join(", ")}]`, area, "A list of values, or lists of lists."));
  made.read = () => {
    try {
      return fromText(area.value, input);
    } catch (error) {
      throw new Error(error instanceof SyntaxError ? `${input.name} is no list of values: ${error.message}` : error.message);
    }
  };
  return made;
}

function shown(output, labels) {
  const shape = `${output.name} ${output.datatype} [${output.shape.join(", ")}]`;
  const isList = output.data.length > 1 && output.shape.filter((size) => size > 1).length === 1;
  if (isList && typeof output.data[0] === "number") {
    const best = largest(output.data, SHOWN);
    const named = labels.length === output.data.length;
    const rows = best.map(({ at, value }) => row(String(at), ...(named ? [labels[at]] : []), number(value)));
    return table(`${shape}, the ${best.length} largest`, ["Place", ...(named ? ["Class"] : []), "Value"], ...rows).region;
  }
  const values = output.data.slice(0, VALUES).map((value) => (typeof value === "number" ? number(value) : String(value)));
  const more = output.data.length > VALUES ? ` … of ${number(output.data.length)}` : "";
  return element("div", {}, element("h2", {}, shape), element("pre", { class: "wrap" }, values.join(", ") + more));
}

/** Which place of a list is the largest, in a sentence. */
function answer(outputs, labels) {
  const [first] = outputs;
  if (!first || typeof first.data[0] !== "number" || first.data.length < 2 || first.shape.filter((size) => size > 1).length !== 1) return "";
  const { at } = largest(first.data, 1)[0];
  const named = labels.length === first.data.length ? `: ${labels[at]}` : "";
  return `The largest value of ${first.name} is at place ${at}${named}. `;
}

/** What a model's classes are called, where it says so. */
async function labelsOf(model) {
  model.labels ??= (await get(`models/${encodeURIComponent(model.name)}/versions/${model.version}`)).labels ?? [];
  return model.labels;
}

async function run(model, fields, said, results) {
  const inputs = await Promise.all(fields.map((one) => one.read()));
  const began = performance.now();
  const path = `v2/models/${encodeURIComponent(model.name)}/versions/${model.version}/infer`;
  const answered = await request("POST", path, { json: { inputs } });
  const { outputs } = await answered.json();
  const whole = performance.now() - began;
  const labels = await labelsOf(model);
  const [worker, device, times] = ["lgp-worker", "lgp-device", "server-timing"].map((name) => answered.headers.get(name));
  const [, inModel] = /model[^,]*;dur=([\d.]+)/.exec(times ?? "") ?? [];
  const place = [device, worker && `of ${worker}`].filter(Boolean).join(" ");
  const time = inModel ? `${ms(Number(inModel))} in the model, ${ms(whole)} with the way there and back` : ms(whole);
  write(said, `${answer(outputs, labels)}It took ${time}${place ? `, on ${place}` : ""}.`);
  results.replaceChildren(...outputs.map((output) => shown(output, labels)));
}

export async function show(place, { rest }) {
  const models = (await get("models")).filter((it) => it.state === "ready");
  if (!models.length) return place.append(element("p", {}, "No model is ready: ", element("a", { href: "#/models" }, "Models"), " says why."));
  const chosen = models.find((it) => nameOf(it) === rest) ?? models[0];
  const which = select(models.map((it) => [nameOf(it), nameOf(it)]), nameOf(chosen), { change: () => choose() });
  const fields = element("div");
  const said = element("p", { class: "lead", role: "status" });
  const results = element("div");
  let inputs = [];
  const choose = () => {
    const model = models.find((it) => nameOf(it) === which.value);
    inputs = model.inputs.map((input) => (pictured(input) ? pictureField(input, model) : textField(input)));
    fields.replaceChildren(...inputs);
    write(said, "");
    results.replaceChildren();
  };
  const submit = async (event) => {
    event?.preventDefault();
    await attempt(() => run(models.find((it) => nameOf(it) === which.value), inputs, said, results));
  };
  // A picture is all that such a model needs.
  fields.addEventListener("change", () => inputs.length === 1 && inputs[0].querySelector("input[type=file]")?.files.length && submit());
  const form = element("form", { submit }, field("Model", which), fields, element("p", { class: "buttons" }, element("button", { type: "submit", class: "main" }, "Run")));
  place.append(form, said, results);
  choose();
}
