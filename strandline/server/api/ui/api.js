// Reads of `/v2`. A caller sees a value or a `Failure`: a missing token is asked for, and a server
// that doesn't answer is asked again, until the caller's signal ends the wait.

const KEY = "strandline.token";
const WAITS_S = [1, 2, 4, 8, 15];
/** Routes that answer in this time, however slow storage is; a connection that lasts longer is dead. */
const BOUNDED = new Set(["status", "tables", "watch"]);
const BOUND_MS = 60_000;

/** An answer of 400 and more. */
export class Failure extends Error {
  constructor(status, answer, requestId) {
    super(answer.error || `The server answered ${status}.`);
    Object.assign(this, { status, code: answer.code || String(status), requestId });
    Object.assign(this, { hint: answer.hint, allowed: answer.allowed, waitS: 0 });
  }
}

/** What the page knows of its server: `live`, `lost` or `locked`, told as events of the name `change`. */
export const connection = Object.assign(new EventTarget(), { state: "live", retryAt: 0, refused: false });

function become(state, more = {}) {
  if (connection.state === state && !more.retryAt) return;
  Object.assign(connection, { state }, more);
  connection.dispatchEvent(new Event("change"));
}

let unlocked = null;
let unlock = null;
let lost = 0;
let again = null;

/** Whether a text can be a token at all: others can't be sent. */
export const isToken = (text) => /^[!-~]+$/.test(text);

/** Takes the token that the reader typed. */
export function enter(token) {
  sessionStorage.setItem(KEY, token);
  become("live");
  unlock?.();
  unlocked = unlock = null;
}

export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/** Forgets the token, for instance at a shared screen. */
export function forget() {
  sessionStorage.removeItem(KEY);
  location.reload();
}

function locked(refused) {
  unlocked ??= new Promise((resolve) => { unlock = resolve; });
  become("locked", { refused });
  return unlocked;
}

/** Waits, for all that the server left without an answer, until it is time to ask again. */
function pause() {
  if (again === null) {
    const waitS = WAITS_S[Math.min(lost, WAITS_S.length - 1)];
    lost += 1;
    become("lost", { retryAt: Date.now() + 1000 * waitS });
    again = sleep(waitS).then(() => { again = null; });
  }
  return again;
}

/** Waits for what `begin` starts, or for the signal's end; `begin` returns what undoes it. */
function waiting(signal, begin) {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const end = () => { undo(); reject(signal.reason); };
    const undo = begin(() => { signal?.removeEventListener("abort", end); resolve(); });
    signal?.addEventListener("abort", end, { once: true });
  });
}

export function sleep(seconds, signal) {
  return waiting(signal, (done) => {
    const timer = setTimeout(done, 1000 * seconds);
    return () => clearTimeout(timer);
  });
}

/** Waits until the page is in front: one that nobody sees asks nothing. */
export function visible(signal) {
  if (!document.hidden) return Promise.resolve();
  return waiting(signal, (done) => {
    document.addEventListener("visibilitychange", done, { once: true });
    return () => document.removeEventListener("visibilitychange", done);
  });
}

/**
 * Returns the answer of a route as a value.
 *
 * Throws a `Failure`, or the signal's reason once it is aborted.
 */
export async function read(route, parameters, signal) {
  for (;;) {
    signal.throwIfAborted();
    // A server that was away says at once that it is back: a change would be waited for before that.
    const now = connection.state === "lost" && "timeout" in parameters ? { timeout: 0 } : {};
    const given = Object.entries({ ...parameters, ...now }).filter(([, value]) => value !== null && value !== undefined);
    const url = `../v2/${route}?${new URLSearchParams(given)}`;
    const token = sessionStorage.getItem(KEY);
    const headers = { Accept: "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) };
    const late = new AbortController();
    const timer = BOUNDED.has(route) ? setTimeout(() => late.abort(), BOUND_MS) : 0;
    let response;
    let text;
    try {
      response = await fetch(url, { headers, signal: AbortSignal.any([signal, late.signal]), cache: "no-cache", credentials: "omit" });
      text = await response.text();
    } catch (error) {
      signal.throwIfAborted();
      await pause();
      continue;
    } finally {
      clearTimeout(timer);
    }
    if (response.status === 401) {
      // Another reading may have asked for the token and got it meanwhile.
      if (token === sessionStorage.getItem(KEY)) {
        sessionStorage.removeItem(KEY);
        await locked(token !== null);
      }
      continue;
    }
    if (response.status === 502 || response.status === 504) {
      await pause();
      continue;
    }
    lost = 0;
    if (connection.state === "lost") become("live");
    const answer = parsed(text);
    if (response.ok && answer !== null) return answer;
    const failure = new Failure(response.status, answer || { error: text.slice(0, 300) }, response.headers.get("x-request-id"));
    failure.waitS = Number(response.headers.get("retry-after")) || 0;
    throw failure;
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/**
 * Calls `told` whenever a table's state is another than the one given, until the signal ends it.
 *
 * `idle` is called while the state remains, each 30 s: for what changes without a commit.
 */
export async function watch(table, state, signal, told, idle = () => {}) {
  while (!signal.aborted) {
    try {
      await visible(signal);
      const answer = await read("watch", { table, after: state, timeout: 30 }, signal);
      if (answer.changed && answer.state !== state) {
        state = answer.state;
        await told();
      } else {
        await idle();
      }
    } catch (failure) {
      if (signal.aborted) return;
      if (!(failure instanceof Failure)) throw failure;
      await sleep(Math.max(5, failure.waitS), signal).catch(() => {});
    }
  }
}

/** Calls `told` every few seconds while the page is in front, until the signal ends it. */
export async function poll(seconds, signal, told) {
  try {
    for (;;) {
      await visible(signal);
      await told();
      await sleep(seconds, signal);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Groups the samples of a metric by a label's value, or by several joined; adds them up. */
export function sums(servers, metric, ...labels) {
  const found = new Map();
  for (const server of servers) {
    for (const sample of server.metrics?.[metric]?.samples || []) {
      if (sample.name && sample.name !== metric) continue;
      const key = labels.map((label) => sample.labels[label] ?? "").join(" · ");
      found.set(key, (found.get(key) || 0) + sample.value);
    }
  }
  return found;
}

export const total = (map) => [...map.values()].reduce((sum, value) => sum + value, 0);
