// Numbers and times as people read them.

const UNITS = ["bytes", "KB", "MB", "GB", "TB"];

export function bytes(count) {
  if (count === null || count === undefined) return "unknown";
  let at = 0;
  while (count >= 1000 && at < UNITS.length - 1) {
    count /= 1000;
    at += 1;
  }
  return `${at && count < 100 ? count.toFixed(1) : Math.round(count)} ${UNITS[at]}`;
}

export function number(value) {
  if (value === null || value === undefined) return "–";
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) < 100 ? 3 : 4 });
}

export function ms(value) {
  if (value === null || value === undefined) return "–";
  if (value >= 60_000) return duration(value / 1000);
  return value >= 1000 ? `${number(value / 1000)} s` : `${number(value)} ms`;
}

export function duration(seconds) {
  const parts = [[86_400, "d"], [3_600, "h"], [60, "min"], [1, "s"]];
  const at = parts.findIndex(([length]) => seconds >= length);
  if (at < 0) return "0 s";
  const [length, unit] = parts[at];
  const whole = Math.floor(seconds / length);
  const rest = parts[at + 1] ? Math.floor((seconds - whole * length) / parts[at + 1][0]) : 0;
  return rest ? `${whole} ${unit} ${rest} ${parts[at + 1][1]}` : `${whole} ${unit}`;
}

export const time = (ms) => new Date(ms).toLocaleTimeString("en-GB");

export const moment = (seconds) => (seconds ? new Date(seconds * 1000).toLocaleString("en-GB") : "never");

export const count = (many, one, more = `${one}s`) => `${number(many)} ${many === 1 ? one : more}`;
