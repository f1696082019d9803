// The address is the state: every view is drawn from it alone, so that each can be opened again, sent and gone back to.

const listeners = new Set();

export function here() {
  const url = new URL(location.href);
  return { path: url.pathname === "/" ? "/store" : url.pathname, query: Object.fromEntries(url.searchParams) };
}

export function link(path, query) {
  const kept = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== false);
  const search = new URLSearchParams(kept.map(([name, value]) => [name, value === true ? "1" : String(value)])).toString();
  return search ? `${path}?${search}` : path;
}

export function go(address, { replace = false, quiet = false } = {}) {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  if (!quiet) for (const listener of listeners) listener();
}

// The same view with some of its parameters changed. `quiet`: what is shown has changed already.
export function change(parameters, options) {
  const { path, query } = here();
  go(link(path, { ...query, ...parameters }), options);
}

export function start(listener) {
  listeners.add(listener);
  addEventListener("popstate", listener);
  document.addEventListener("click", (event) => {
    const anchor = event.target.closest?.("a[href]");
    if (!anchor || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const url = new URL(anchor.href);
    if (url.origin !== location.origin || anchor.getAttribute("href").startsWith("#")) return;
    event.preventDefault();
    go(url.pathname + url.search);
  });
  listener();
}
