// Elements, tables and dialogs. Whatever comes from the server is put into the page as text.

/** An element with attributes, of which functions are listeners, and children. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(key, value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

/** Sets a text where it differs: what stays the same is neither drawn nor read out anew. */
export function write(place, text) {
  if (place.textContent !== text) place.textContent = text;
}

/** A table in a region that scrolls by itself, with the body to fill. */
export function table(caption, heads, ...rows) {
  const cells = heads.map((text) => element("th", { scope: "col" }, text));
  const body = element("tbody", {}, ...rows);
  const whole = element("table", {}, element("caption", {}, caption), element("thead", {}, element("tr", {}, ...cells)), body);
  const region = element("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": caption }, whole);
  return { region, body };
}

export function row(...cells) {
  return element("tr", {}, ...cells.map((cell) => element("td", {}, cell)));
}

/**
 * Brings the children of a place in line with items: those that stay are kept and only updated, so that
 * focus, selection and open parts are, too. `make` answers an element with a function `update`.
 */
export function keyed(place, items, keyOf, make) {
  const before = place.keyed ?? new Map();
  const now = new Map();
  let next = place.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const child = before.get(key) ?? make(item);
    child.update?.(item);
    now.set(key, child);
    if (child === next) next = next.nextSibling;
    else place.insertBefore(child, next);
  }
  for (const [key, child] of before) if (!now.has(key)) child.remove();
  place.keyed = now;
}

/** A row of texts that `texts` reads from an item, with buttons at the end. */
export function textRow(texts, buttons = []) {
  const made = row(...texts.map(() => ""), ...(buttons.length ? [buttons] : []));
  made.update = (item) => texts.forEach((text, at) => write(made.cells[at], text(item)));
  return made;
}

export const button = (text, click, attributes = {}) =>
  element("button", { type: "button", click, ...attributes }, text);

/** A field with its label. */
export function field(label, input, hint) {
  const id = `field-${(field.count = (field.count ?? 0) + 1)}`;
  input.id = id;
  const note = hint && element("span", { class: "hint", id: `${id}-hint` }, hint);
  if (note) input.setAttribute("aria-describedby", note.id);
  const named = element("label", { for: id }, label);
  if (input.type === "checkbox") return element("p", { class: "check" }, input, named, note);
  return element("p", { class: "field" }, named, input, note);
}

export function select(options, chosen, attributes = {}) {
  const made = options.map(([value, text]) => element("option", { value, selected: value === chosen }, text));
  return element("select", attributes, ...made);
}

/** A dialog, which is gone once it is closed. */
export function dialog(title, ...content) {
  // The focus begins here and not at what comes later, which would be scrolled to.
  const head = element("h2", { id: "dialog-title", tabindex: "-1", autofocus: true }, title);
  const close = button("Close", () => made.close());
  const made = element("dialog", { "aria-labelledby": "dialog-title" }, head, ...content, element("p", { class: "buttons" }, close));
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  made.showModal();
  return made;
}

/** A picture that the server drew. It has no script: nothing of it runs where it is an image. */
export function picture(svg, alt) {
  const url = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  const made = element("img", { src: url, alt, width: "240", height: "240" });
  made.addEventListener("load", () => URL.revokeObjectURL(url));
  return made;
}

/** Whether a person agrees to what cannot be taken back. */
export function confirmed(question, action) {
  return new Promise((answer) => {
    let agreed = false;
    const go = button(action, () => {
      agreed = true;
      asked.close();
    }, { class: "danger" });
    const asked = dialog("Are you sure?", element("p", {}, question), element("p", { class: "buttons" }, go));
    asked.addEventListener("close", () => answer(agreed));
  });
}

/** Tells what was done, also to a screen reader. */
export function say(text) {
  const place = document.getElementById("said");
  place.textContent = text;
  place.className = text ? "shown" : "";
  clearTimeout(say.timer);
  say.timer = setTimeout(() => say(""), text ? 6000 : 2 ** 30);
}

/** Tells why something was not done, and what to do about it. */
export function explain(error) {
  const place = document.getElementById("trouble");
  place.hidden = !error;
  place.textContent = !error ? "" : error.hint ? `${error.message}; ${error.hint}` : error.message;
}

/** Does something that may be refused; answers nothing where it is. */
export async function attempt(work) {
  try {
    explain(null);
    return await work();
  } catch (error) {
    explain(error);
    return undefined;
  }
}
