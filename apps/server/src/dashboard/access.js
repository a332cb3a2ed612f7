// Keys: who may do what.

import { call, get } from "./api.js";
import { attempt, button, confirmed, dialog, element, field, keyed, picture, say, select, table, textRow } from "./dom.js";
import { moment } from "./format.js";

export const title = "Keys";
const ROLES = [
  ["infer", "infer: health, metadata and inference"],
  ["submit", "submit: also tasks, and looking at everything"],
  ["admin", "admin: everything"],
];

function create(refresh) {
  const role = select(ROLES, "infer");
  const note = element("input", { type: "text", maxlength: "64", autocomplete: "off" });
  const ttl = select([["", "for good"], ["86400", "for a day"], ["2592000", "for 30 days"], ["31536000", "for a year"]], "2592000");
  const submit = async (event) => {
    event.preventDefault();
    const json = { role: role.value, note: note.value, ttl_s: ttl.value ? Number(ttl.value) : null };
    const made = await attempt(() => call("POST", "keys", { json }));
    if (!made) return;
    form.reset();
    dialog("The key, shown this once", element("pre", { class: "wrap", tabindex: "0" }, made.key), element("p", {}, "Programs send it as Authorization: Bearer KEY."));
    await attempt(refresh);
  };
  const form = element(
    "form",
    { submit },
    field("Role", role),
    field("Whom or what it is for", note),
    field("It works", ttl),
    element("p", { class: "buttons" }, element("button", { type: "submit", class: "main" }, "Make a key")),
  );
  return element("details", {}, element("summary", {}, "Make a key"), form);
}

/** Signs another device in, by its camera. */
async function elsewhere() {
  const json = { page: document.baseURI.split("#")[0] };
  const made = await attempt(() => call("POST", "sign-ins", { json }));
  if (!made) return;
  dialog(
    "Sign in on a phone",
    element("p", {}, "The phone's camera reads this. It works once, within two minutes, and the phone may then do what you may."),
    made.qr_svg ? picture(made.qr_svg, "The link as a code for a camera") : null,
    element("pre", { class: "wrap", tabindex: "0" }, made.link),
    element("p", {}, "Where the page does not open there, the coordinator listens on this machine alone, or a firewall is in the way. Stop it, then start it with: radeon-cluster start --http 0.0.0.0:8000 --tls self-signed. The phone then asks whether it may trust the cluster's own authority."),
  );
}

export async function show(place, { every, signal, may }) {
  place.append(element("p", { class: "buttons" }, button("Sign in on a phone", elsewhere)));
  if (!may("admin")) return place.append(element("p", {}, "Only administrators see keys. radeon-cluster dashboard signs in as one, on the machine of the coordinator."));
  const none = element("p", {}, "There is no key but the one of this machine's owner, in local.key of the data folder.");
  const { region, body } = table("API keys", ["Key", "Role", "For", "Models", "Made", "Works until", "Action"]);
  const refresh = async () => {
    const keys = await get("keys", { signal });
    none.hidden = keys.length > 0;
    region.hidden = !keys.length;
    keyed(body, keys, (it) => it.id, ({ id, note }) => {
      const revoke = button("Revoke", async () => {
        if (!(await confirmed(`Programs with key ${id}${note ? ` (${note})` : ""} are refused from now on.`, "Revoke it"))) return;
        if (await attempt(() => call("DELETE", `keys/${encodeURIComponent(id)}`))) say(`key ${id} is revoked`);
        await attempt(refresh);
      }, { class: "danger" });
      const until = (it) => (it.expires_s ? moment(it.expires_s) : "for good");
      return textRow([(it) => it.id, (it) => it.role, (it) => it.note || "–", (it) => it.models?.join(", ") ?? "all", (it) => moment(it.created_s), until], [revoke]);
    });
  };
  place.append(create(refresh), none, region);
  await every(5000, refresh);
}
