// Numbers, shares, durations and instants as people read them.

const SHORT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const WHOLE = new Intl.NumberFormat("en");

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
  if (number > 0 && number < 10) return number.toFixed(number < 1 ? 2 : 1);
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
  if (us < 1_000) return `${us} µs`;
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
