// Shows the API's description. Whatever comes from it is put into the page as text.

const DEPTH_MAX = 6;

/** An element with a text or children. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** What a reference leads to. */
function resolve(api, value) {
  if (!value?.$ref) return value;
  return value.$ref.slice(2).split("/").reduce((place, key) => place?.[key], api);
}

/** The name that a schema goes by. */
const nameOf = (schema) => schema?.$ref?.split("/").pop();

/** A schema in one line or several, with what it is made of. */
function shape(api, schema, depth = 0) {
  const known = resolve(api, schema) ?? {};
  const pad = "  ".repeat(depth + 1);
  if (depth > DEPTH_MAX) return nameOf(schema) ?? "…";
  if (known.oneOf) return known.oneOf.map((one) => shape(api, one, depth)).join(" or ");
  if (known.enum) return known.enum.map((one) => JSON.stringify(one)).join(" | ");
  if (known.items) return `[ ${shape(api, known.items, depth)}, … ]`;
  if (known.properties) {
    const required = new Set(known.required ?? []);
    const lines = Object.entries(known.properties).map(([key, inner]) => {
      const about = inner.description ?? resolve(api, inner)?.description;
      const mark = required.has(key) ? "" : "?";
      return `${pad}${key}${mark}: ${shape(api, inner, depth + 1)}${about ? `  // ${about}` : ""}`;
    });
    return lines.length ? `{\n${lines.join("\n")}\n${"  ".repeat(depth)}}` : "{}";
  }
  if (typeof known.additionalProperties === "object") {
    return `{ NAME: ${shape(api, known.additionalProperties, depth)}, … }`;
  }
  const type = [known.type ?? "any"].flat().join(" or ");
  const bounds = [
    known.minimum !== undefined && `from ${known.minimum}`,
    known.maximum !== undefined && `to ${known.maximum}`,
    known.default !== undefined && `default ${JSON.stringify(known.default)}`,
  ].filter(Boolean);
  return bounds.length ? `${type} (${bounds.join(", ")})` : type;
}

/** Who may use an operation. */
function role(operation) {
  const needs = operation.security ?? [];
  if (!needs.length) return "anybody";
  const open = needs.some((need) => !Object.keys(need).length);
  return needs.flatMap((need) => need.key ?? []).join(", ") + (open ? ", or local" : "");
}

function table(heads, rows) {
  const head = element("tr", {}, ...heads.map((text) => element("th", { scope: "col" }, text)));
  const lines = rows.map((cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, cell))));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...lines));
}

/** The forms of a body. */
function bodies(api, content) {
  return Object.entries(content ?? {}).flatMap(([kind, { schema }]) => {
    const parts = [element("div", {}, element("code", {}, kind))];
    if (!schema) return parts;
    const about = resolve(api, schema)?.description;
    if (about) parts.push(element("div", {}, about));
    parts.push(element("pre", {}, shape(api, schema)));
    const example = resolve(api, schema)?.examples?.[0];
    if (example !== undefined && typeof example === "object") {
      parts.push(element("div", {}, "For example"));
      parts.push(element("pre", {}, JSON.stringify(example)));
    }
    return parts;
  });
}

function details(api, operation) {
  const parts = [];
  if (operation.parameters) {
    const rows = operation.parameters.map((parameter) => [
      element("code", {}, parameter.name),
      parameter.in,
      shape(api, parameter.schema),
      parameter.description ?? "",
    ]);
    parts.push(element("h3", {}, "Parameters"), table(["Name", "In", "Type", "What"], rows));
  }
  if (operation.requestBody) {
    parts.push(element("h3", {}, "Body"), ...bodies(api, operation.requestBody.content));
  }
  parts.push(element("h3", {}, "Answers"));
  const rows = Object.entries(operation.responses).map(([status, given]) => {
    const answer = resolve(api, given);
    const cell = element("div", {}, answer.description);
    // The shape of refusals is the same everywhere.
    if (!given.$ref) cell.append(...bodies(api, answer.content));
    return [element("code", {}, status), cell];
  });
  parts.push(table(["Status", "What"], rows));
  return parts;
}

function route(api, path, method, operation) {
  const head = element(
    "summary",
    {},
    element("span", { class: "role" }, role(operation)),
    element("span", { class: "method" }, method.toUpperCase()),
    element("code", {}, path),
    element("span", { class: "about" }, operation.summary),
  );
  const made = element("details", { id: operation.operationId }, head);
  // Most are never opened.
  made.addEventListener("toggle", () => made.append(...details(api, operation)), { once: true });
  return { made, text: head.textContent.toLowerCase() };
}

function show(api) {
  document.title = `${api.info.title} API`;
  document.getElementById("title").textContent = `${api.info.title} ${api.info.version}`;
  document.getElementById("about").prepend(`${api.info.description} `);
  const main = document.getElementById("routes");
  const groups = api.tags.map((tag) => {
    const section = element("section", {}, element("h2", {}, tag.name), element("p", {}, tag.description));
    const routes = Object.entries(api.paths).flatMap(([path, item]) =>
      Object.entries(item)
        .filter(([, operation]) => operation.tags.includes(tag.name))
        .map(([method, operation]) => route(api, path, method, operation)),
    );
    section.append(...routes.map(({ made }) => made));
    main.append(section);
    return { section, routes };
  });
  const filter = document.getElementById("filter");
  const choose = () => {
    const words = filter.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const { section, routes } of groups) {
      for (const { made, text } of routes) made.hidden = !words.every((word) => text.includes(word));
      const left = routes.filter(({ made }) => !made.hidden).length;
      section.hidden = !left;
      shown += left;
    }
    document.getElementById("count").textContent = `${shown} routes`;
  };
  filter.addEventListener("input", choose);
  choose();
  const named = document.getElementById(location.hash.slice(1));
  if (named instanceof HTMLDetailsElement) {
    named.open = true;
    named.scrollIntoView();
  }
}

try {
  const answer = await fetch("/openapi.json");
  if (!answer.ok) throw new Error(`/openapi.json answers ${answer.status}`);
  show(await answer.json());
} catch (error) {
  document.getElementById("routes").append(element("p", { role: "alert" }, `Cannot show it: ${error.message}`));
}
