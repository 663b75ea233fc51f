/** Asks the server: computations whose news come as a stream, and the pages that come of them. */

/**
 * @typedef {{name: string, text: string, note: string, on: boolean, group: string}} Choice
 * @typedef {{models: {name: string, target: boolean, where: string}[], methods: Choice[], run: boolean, sample: string,
 *   longest_text: number, directions: number[]}} Site
 * @typedef {{state: string, before: number, what: string, done: number, total: number}} News
 */

/** This tab's own word, by which the server gives every tab its turn. */
const client = Array.from(crypto.getRandomValues(new Uint8Array(8)), (byte) => byte.toString(16).padStart(2, "0")).join(
  "",
);

/** @param {string} path @returns {Promise<any>} */
export async function getJson(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error(await reason(response));
  return response.json();
}

/** What the server says is wrong. @param {Response} response */
async function reason(response) {
  try {
    return String((await response.json()).error);
  } catch {
    return `the server answered ${response.status}`;
  }
}

/**
 * Start a computation. `done` gives the name of the page; it fails with an AbortError if the computation was cancelled.
 * @param {string} path
 * @param {object} question
 * @param {(news: News) => void} onnews
 */
export function startComputing(path, question, onnews) {
  const control = new AbortController();
  /** @type {string|null} */
  let job = null;
  async function follow() {
    const response = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json", "x-identiscope-client": client },
      body: JSON.stringify(question),
      signal: control.signal,
    });
    if (!response.ok || !response.body) throw new Error(await reason(response));
    for await (const { name, data } of events(response.body)) {
      if (name === "job") job = data.job;
      else if (name === "progress") onnews(data);
      else if (name === "done") return /** @type {string} */ (data.page);
      else throw new Error(data.error);
    }
    throw new Error("the server ended before the answer did");
  }
  return {
    done: follow(),
    cancel() {
      // The server would notice that nobody listens; this is for proxies that keep on listening.
      if (job) void fetch(`/api/jobs/${job}`, { method: "DELETE" }).catch(() => {});
      control.abort();
    },
  };
}

/**
 * The events of a stream of `event:` and `data:` lines.
 * @param {ReadableStream<Uint8Array>} stream
 */
async function* events(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
      if (name && data) yield { name, data: JSON.parse(data) };
    }
  }
}

/**
 * The data of a page that the server keeps.
 * @param {string} address  such as `/api/pages/…`
 * @returns {Promise<import("./data.js").PageData>}
 */
export async function openPage(address) {
  return {
    header: { ...(await getJson(address)), live: true },
    chunk: async (name) => {
      const response = await fetch(`${address}/chunks/${encodeURIComponent(name)}`);
      if (!response.ok) throw new Error(await reason(response));
      return new Uint8Array(await response.arrayBuffer());
    },
  };
}
