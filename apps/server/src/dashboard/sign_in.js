// Signing in with a key.

import { get, keep } from "./api.js";
import { attempt, element, field } from "./dom.js";

export const title = "Sign in";

export function show(place, { signedIn }) {
  const input = element("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, size: "40" });
  const submit = async (event) => {
    event.preventDefault();
    keep(input.value.trim());
    const known = await attempt(() => get("session"));
    if (known) await attempt(signedIn);
    else keep(null);
  };
  place.append(
    element(
      "form",
      { submit, class: "narrow" },
      field("API key", input, "It begins with lgp_ and is kept in this tab alone."),
      element("p", { class: "buttons" }, element("button", { type: "submit", class: "main" }, "Sign in")),
    ),
    element("h2", {}, "Without a key"),
    element("p", {}, "On the machine that runs the coordinator: ", element("code", {}, "radeon-cluster dashboard"), " opens this page and signs you in."),
    element("p", {}, "For somebody else: ", element("code", {}, "radeon-cluster keys create --role submit"), " makes a key."),
  );
  input.focus();
}
