// The way in: a token, exchanged for a cookie that scripts cannot read. Nothing is kept here.

import { post } from "./api.js";
import { h, put } from "./dom.js";

/** Show the form in `root`; `onDone()` once the service has accepted the token. */
export function mountSignIn(root, { onDone }) {
  const token = h("input", { id: "token", type: "password", required: true, autocomplete: "current-password", spellcheck: "false", "aria-describedby": "token-help" });
  const problem = h("p", { class: "problem", role: "alert" });
  const button = h("button", { type: "submit", class: "button primary" }, "Sign in");

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      await post("login", { token: token.value });
      onDone();
    } catch (error) {
      problem.textContent = error.status === 401 ? "That is not a token of this service." : error.message;
      button.disabled = false;
      token.select();
    }
  }

  put(root, h("form", { class: "signin", onsubmit: submit },
    h("h1", { tabindex: "-1" }, "Sign in"),
    // For password managers, which keep a secret under a name.
    h("input", { class: "hidden", autocomplete: "username", value: "daco", readonly: true, tabindex: "-1", "aria-hidden": "true" }),
    h("label", { for: "token" }, "Your token"), token,
    h("p", { class: "muted", id: "token-help" }, "Whoever runs daco gave it to you. It says who you are and what you may do."),
    problem, button));
  token.focus();
}
