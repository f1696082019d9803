// What the server knows, as JSON.

export class ServerError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export async function ask(path, parameters = {}, signal) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== null && value !== "") query.set(name, String(value));
  }
  let response;
  try {
    response = await fetch(`/api/${path}?${query}`, { signal, headers: { Accept: "application/json" } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("the server does not answer. Was it stopped? Start it again: tokpress view", 0);
  }
  const reply = await response.json();
  if (!response.ok) throw new ServerError(reply.error, response.status);
  return reply;
}
