// The frame: which view is shown, the token, and whether the server answers.

import { connection, enter, forget, hasToken, isToken } from "./api.js";
import { h, link } from "./dom.js";
import { fleetView } from "./fleet.js";
import { groupView } from "./group.js";
import { serviceView } from "./service.js";
import { tableView } from "./table.js";
import { tablesView } from "./tables.js";

const VIEWS = { "": serviceView, tables: tablesView, table: tableView, group: groupView, fleet: fleetView };
const TITLES = { "": "Service", tables: "Tables", table: "Table", group: "File group", fleet: "Fleet" };
const main = document.getElementById("main");
let ending = new AbortController();
let shown = { name: null, change: null };

function navigation(name) {
  const under = name === "table" || name === "group" ? "tables" : name;
  const entries = [["", "Service"], ["tables", "Tables"], ["fleet", "Fleet"]].map(([to, text]) => {
    const entry = link(text, to);
    if (to === under) entry.setAttribute("aria-current", "page");
    return entry;
  });
  document.getElementById("nav").replaceChildren(...entries);
}

function route(event) {
  const [, name = "", query = ""] = location.hash.match(/^#\/([^?]*)(?:\?(.*))?$/) || [];
  if (location.hash === "#main") return;
  const view = Object.hasOwn(VIEWS, name) ? VIEWS[name] : null;
  const parameters = Object.fromEntries(new URLSearchParams(query));
  if (event && name === shown.name && shown.change?.(parameters)) return;
  ending.abort(new DOMException("the view was left", "AbortError"));
  ending = new AbortController();
  navigation(name);
  document.title = `${view ? TITLES[name] : "Not found"} – Strandline`;
  const place = h("div", { class: "view" });
  main.replaceChildren(place);
  shown = { name, change: null };
  if (view) shown.change = view(place, parameters, ending.signal);
  else place.append(h("h1", {}, "Not found"), h("p", {}, "There is no such page. ", link("Go to the service", "")));
  // Where the reader went, not where the page began: a screen reader reads the new heading.
  if (event) main.focus();
}

function askForToken() {
  const shown = document.getElementById("token");
  const message = connection.refused ? "The server refused this token. Check it, and that it is the one of this server." : "";
  if (shown) {
    shown.querySelector(".wrong").textContent = message;
    return;
  }
  const input = h("input", { id: "token-text", type: "password", autocomplete: "off", required: true, "aria-describedby": "token-wrong" });
  // A browser may close it at Escape although that was prevented.
  const again = () => { if (dialog.isConnected) dialog.showModal(); };
  const dialog = h("dialog", { id: "token", "aria-labelledby": "token-title", oncancel: (event) => event.preventDefault(), onclose: again },
    h("form", { method: "dialog", onsubmit: (event) => {
      event.preventDefault();
      const token = input.value.trim();
      if (!isToken(token)) {
        dialog.querySelector(".wrong").textContent = "No token has spaces, or characters other than letters, digits and signs of ASCII.";
        return;
      }
      dialog.close();
      dialog.remove();
      enter(token);
    } },
    h("h2", { id: "token-title" }, "Token"),
    h("p", {}, "This server answers bearers of its token: the one in the file of --token-file. It is kept until this tab is closed."),
    h("label", { for: "token-text" }, "Token"), input,
    h("p", { class: "wrong", id: "token-wrong", role: "alert" }, message),
    h("button", { class: "primary" }, "Continue")));
  document.body.append(dialog);
  dialog.showModal();
}

function tell() {
  const place = document.getElementById("connection");
  document.body.classList.toggle("lost", connection.state === "lost");
  if (connection.state === "locked") askForToken();
  if (connection.state === "live") {
    place.replaceChildren(h("span", { class: "dot good" }), "Live", ...(hasToken() ? [h("button", { type: "button", class: "plain", onclick: forget }, "Forget token")] : []));
  } else if (connection.state === "lost") {
    const seconds = Math.max(0, Math.ceil((connection.retryAt - Date.now()) / 1000));
    place.replaceChildren(h("span", { class: "dot bad" }), seconds ? `The server doesn’t answer. Next try in ${seconds} s` : "The server doesn’t answer. Trying …");
  } else {
    place.replaceChildren(h("span", { class: "dot warn" }), "Token wanted");
  }
}

connection.addEventListener("change", tell);
setInterval(() => { if (connection.state === "lost") tell(); }, 500);
addEventListener("hashchange", route);
tell();
route();
