// Calls of the API, the same that other programs use. The key is kept for this tab, and no longer.

const ROOT = new URL(".", document.baseURI);
const CLUSTER = "api/v1/cluster/";
const KEPT = "radeon-cluster.key";

/** An answer that is no success: what was wrong, and what to do. */
export class Refusal extends Error {
  constructor(status, code, message, hint) {
    super(message);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }
}

export const key = () => sessionStorage.getItem(KEPT);

export function keep(key) {
  if (key) sessionStorage.setItem(KEPT, key);
  else sessionStorage.removeItem(KEPT);
}

async function refusal(answer) {
  const text = await answer.text();
  try {
    const { error } = JSON.parse(text);
    if (typeof error === "string") return new Refusal(answer.status, "refused", error);
    // How programs send a key says nothing to whoever has typed a wrong one.
    const hint = answer.status === 401 && key() ? null : error.hint;
    return new Refusal(answer.status, error.code, error.message, hint);
  } catch {
    return new Refusal(answer.status, "refused", `the server answers ${answer.status} ${answer.statusText}`);
  }
}

/** The answer to a request of a path that is relative to the page. */
export async function request(method, path, { body, json, headers = {}, signal } = {}) {
  const sent = { method, headers: { ...headers }, body, signal, cache: "no-store" };
  if (key()) sent.headers.Authorization = `Bearer ${key()}`;
  if (json !== undefined) {
    sent.headers["Content-Type"] = "application/json";
    sent.body = JSON.stringify(json);
  }
  let answer;
  try {
    answer = await fetch(new URL(path, ROOT), sent);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refusal(0, "unreachable", "the server does not answer", "see whether radeon-cluster still runs there");
  }
  if (answer.ok) return answer;
  const refused = await refusal(answer);
  if (answer.status === 401 && key()) document.dispatchEvent(new CustomEvent("signed-out", { detail: refused }));
  throw refused;
}

/** What a route of the cluster answers. */
export async function call(method, path, options) {
  return (await request(method, CLUSTER + path, options)).json();
}

export const get = (path, options) => call("GET", path, options);

/** Hands the events of the cluster to `each` as they happen, until the signal ends it. */
export async function events(each, signal) {
  let after = "";
  while (!signal.aborted) {
    try {
      const answer = await request("GET", `${CLUSTER}events${after && `?after=${after}`}`, { signal });
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = "";
      for (;;) {
        const { value, done } = await reader.read();
        if (done) break;
        const blocks = (rest + value).split("\n\n");
        rest = blocks.pop();
        for (const block of blocks) {
          const fields = Object.fromEntries(block.split("\n").map((line) => line.split(/: (.*)/s)));
          if (fields.id) after = fields.id;
          if (fields.data) each(JSON.parse(fields.data));
        }
      }
    } catch (error) {
      if (signal.aborted || error.status === 401 || error.status === 403) return;
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}
