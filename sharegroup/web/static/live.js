// Tells the page to look again when the server has looked at all groups. A hidden page has no event stream: a browser
// opens few connections to one host.
(() => {
  let stream = null;
  const listen = () => {
    const wanted = !document.hidden && document.getElementById("live") !== null && localStorage.getItem("pause") !== "yes";
    if (wanted && stream === null) {
      stream = new EventSource("/events");
      stream.addEventListener("look", () => document.body.dispatchEvent(new Event("looked")));
    } else if (!wanted && stream !== null) {
      stream.close();
      stream = null;
    }
  };
  const button = document.getElementById("pause");
  const name = () => {
    const paused = localStorage.getItem("pause") === "yes";
    if (button) {
      button.textContent = paused ? "Go on" : "Pause";
      button.setAttribute("aria-pressed", String(paused));
    }
  };
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => {
      localStorage.setItem("pause", localStorage.getItem("pause") === "yes" ? "no" : "yes");
      name();
      listen();
    });
  }
  document.addEventListener("visibilitychange", listen);
  window.addEventListener("pagehide", () => { if (stream) { stream.close(); stream = null; } });
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
