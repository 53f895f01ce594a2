// Tells the page to look again when the server has looked at all groups, and says since when it could not. A hidden page
// has no event stream: a browser opens few connections to one host.
(() => {
  const AGAIN_MS = 5000;
  let stream = null;
  let again = 0;
  let fresh = new Date();
  const stale = document.getElementById("stale");
  const isPaused = () => localStorage.getItem("pause") === "yes";
  const isWanted = () => !document.hidden && document.getElementById("live") !== null && !isPaused();
  const look = () => document.body.dispatchEvent(new Event("looked"));
  const close = () => {
    clearTimeout(again);
    if (stream !== null) {
      stream.close();
      stream = null;
    }
  };
  const listen = () => {
    if (!isWanted()) {
      close();
    } else if (stream === null) {
      stream = new EventSource(document.body.dataset.events);
      stream.addEventListener("look", look);
      // The browser connects again by itself after a cut, and not after a refusal. Either way the page looks once: its
      // own request says whether it is still up to date, and whether the session is over.
      stream.addEventListener("error", () => {
        if (stream.readyState === EventSource.CLOSED) {
          close();
          again = setTimeout(listen, AGAIN_MS);
        }
        look();
      });
    }
  };
  const tell = (status) => {
    if (!stale) return;
    const [text, link] = stale.children;
    const isOver = status === 401;
    const says = `Not refreshed since ${fresh.toISOString().slice(11, 19)} UTC.${isOver ? " The session is over." : ""}`;
    if (text.textContent !== says) text.textContent = says;
    link.hidden = !isOver;
    stale.hidden = false;
    if (isOver) close();
  };
  const away = document.getElementById("away");
  document.addEventListener("htmx:after:request", (event) => {
    const { status, headers } = event.detail.ctx.response;
    const said = decodeURIComponent(headers.get("sharegroup-away") || "");
    if (away && away.textContent !== said) away.textContent = said;
    if (away) away.hidden = !said;
    if (status >= 400) {
      tell(status);
    } else {
      fresh = new Date();
      if (stale) stale.hidden = true;
    }
  });
  document.addEventListener("htmx:error", () => tell(0));
  const button = document.getElementById("pause");
  const name = () => { if (button) button.textContent = isPaused() ? "Go on" : "Pause"; };
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      localStorage.setItem("pause", isPaused() ? "no" : "yes");
      name();
      listen();
      if (!isPaused()) look();
    });
  }
  document.addEventListener("visibilitychange", () => {
    listen();
    if (isWanted()) look();
  });
  window.addEventListener("pagehide", close);
  window.addEventListener("pageshow", listen);
  document.addEventListener("keydown", (event) => {
    const search = document.getElementById("search");
    const typing = event.target.closest && event.target.closest("input, textarea, select");
    if (event.key === "/" && search && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      search.focus();
    }
  });
  name();
  listen();
})();
