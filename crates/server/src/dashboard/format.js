// Numbers, shares, durations and instants as people read them.

const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const WHOLE = new Intl.NumberFormat("en");
const DAY = new Intl.DateTimeFormat("en", { month: "short", day: "numeric" });

/** 1234567 -> "1.2M". `null` means that nothing was measured. */
export function short(number) {
  return number === null || number === undefined ? "–" : SHORT.format(number);
}

/** 1234567 -> "1,234,567". */
export function whole(number) {
  return number === null || number === undefined ? "–" : WHOLE.format(number);
}

/** A rate per second: "0", "0.25", "12", "1.2K". */
export function rate(number) {
  if (number === null || number === undefined) return "–";
  if (number > 0 && number < 10) return Number(number.toFixed(number < 1 ? 2 : 1)).toString();
  return SHORT.format(Math.round(number));
}

/** A share of a whole as a percentage; "–" if the whole is 0. */
export function percent(part, all) {
  if (!all || part === null || part === undefined) return "–";
  const share = (100 * part) / all;
  if (share === 0) return "0%";
  return `${share < 0.01 ? "<0.01" : share.toFixed(share < 10 ? 2 : 1)}%`;
}

/** Microseconds: "90 µs", "1.2 ms", "2.4 s". */
export function latency(us) {
  if (us === null || us === undefined) return "–";
  if (us < 1_000) return `${Math.round(us)} µs`;
  if (us < 1_000_000) return `${(us / 1_000).toFixed(us < 10_000 ? 1 : 0)} ms`;
  return `${(us / 1_000_000).toFixed(1)} s`;
}

/** A duration in milliseconds: "12 s", "4 min", "3 h", "2 d". */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 90) return `${seconds} s`;
  if (seconds < 5_400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3_600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

/** Bytes: "812 B", "1.2 KB", "34 MB". */
export function bytes(number) {
  if (number === null || number === undefined) return "–";
  const units = ["B", "KB", "MB", "GB", "TB"];
  let [value, unit] = [number, 0];
  while (value >= 1_000 && unit < units.length - 1) [value, unit] = [value / 1_000, unit + 1];
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

/** Where something is written: the name of the file without its folder, and the line. */
export function written({ file, line }) {
  return `${file.split("/").pop()}:${line}`;
}

/** The time of day of an instant in milliseconds, in the zone of the browser. */
export function clock(ms, withSeconds = false) {
  const options = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  if (withSeconds) options.second = "2-digit";
  return new Intl.DateTimeFormat("en", options).format(new Date(ms));
}

/** An instant with its day, unless it is today: "14:03:20", "Nov 18, 14:03". */
export function instant(ms, now = Date.now()) {
  const isToday = new Date(ms).toDateString() === new Date(now).toDateString();
  return isToday ? clock(ms, true) : `${DAY.format(new Date(ms))}, ${clock(ms)}`;
}

/** How long from now: "in 4 min", "3 h ago". */
export function fromNow(ms, now = Date.now()) {
  return ms >= now ? `in ${duration(ms - now)}` : `${duration(now - ms)} ago`;
}

/** The numbers of an override as its author wrote them, or as they are if a live change made them. */
export function overrideNumbers({ live, scaled, written, limit }) {
  return live || scaled ? `${written}: ${whole(limit)}${scaled ? ", scaled" : ""}` : written;
}

/** The conditions of a live change as they are written in a request. */
export function conditions(when) {
  const value = (one) => (one !== null && typeof one === "object" ? JSON.stringify(one) : String(one));
  const each = Object.entries(when ?? {}).map(([name, wanted]) => {
    if (wanted?.hashed) return `${name}=(hash ${wanted.hashed.map((hash) => hash.slice(0, 10)).join(", ")})`;
    return `${name}=${Array.isArray(wanted) ? wanted.map(value).join("|") : value(wanted)}`;
  });
  return each.length === 0 ? "all requests" : each.join(" ");
}

/** Parses NAME=VALUE pairs. A name that is repeated has a list of values. */
export function pairs(text) {
  const found = Object.create(null);
  for (const [, name, quoted, plain] of text.matchAll(/([^\s=]+)=(?:"([^"]*)"|(\S*))/g)) {
    const value = quoted ?? plain;
    found[name] = name in found ? [found[name], value].flat() : value;
  }
  return found;
}
