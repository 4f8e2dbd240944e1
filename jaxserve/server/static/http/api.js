// HTTP requests to this page's server, with errors translated into messages for users.

/** A failed request. message: for users; isRefusal: the request must change; field: the setting at fault, if named. */
export class Problem extends Error {
  constructor(message, { isRefusal = false, field = null } = {}) {
    super(message);
    this.isRefusal = isRefusal;
    this.field = field;
  }
}

/** Fetches a path relative to the page's, and throws a `Problem` unless the response is successful. */
export async function ask(path, options = {}) {
  let response;
  try {
    // Without the page's credentials (user:key@host), with which browsers refuse to fetch.
    response = await fetch(new URL(path, location.origin + location.pathname), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw await problemOf(response);
  return response;
}

async function problemOf(response) {
  const { status } = response;
  const error = await response.json().then((body) => body.error ?? {}, () => ({}));
  const wait = Number(response.headers.get("Retry-After"));
  const later = wait > 0 ? `Try again in ${wait} s.` : "Try again in a moment.";
  const said = error.message ? `${error.message}.`.replace(/([.!?])\.$/, "$1") : `It answered with status ${status}.`;
  if (status === 401) return new Problem("The server needs its key: reload the page and log in.");
  if (error.code === "context_length_exceeded") {
    return new Problem(`The conversation has grown too long for the model. ${said}`, { isRefusal: true });
  }
  if (status === 429 || status === 503) return new Problem(`Not now: ${said} ${later}`);
  if (status >= 500) return new Problem(`The server failed. ${said}`);
  return new Problem(`The server refused this. ${said}`, { isRefusal: true, field: error.param });
}
