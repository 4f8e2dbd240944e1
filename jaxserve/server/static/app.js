// Creates and connects the parts of the page.

import { ask } from "./api.js";
import { Chat } from "./chat.js";
import { Conversation } from "./conversation.js";
import { EngineView } from "./engine.js";
import { Settings } from "./settings.js";

const PATIENCE_MS = 10_000; // for the response with the model's name
const at = (id) => document.getElementById(id);
const settings = new Settings(at("composer"), localStorage);
const chat = new Chat(at("composer"), at("turns"), new Conversation(sessionStorage), settings);

let asking = null;

/** Shows the server's model, which may still be loading, or have changed after a restart. */
function learn() {
  asking ??= askModel().finally(() => (asking = null));
}

async function askModel() {
  for (;;) {
    try {
      const { data } = await (await ask("v1/models", { signal: AbortSignal.timeout(PATIENCE_MS) })).json();
      const [{ id, max_model_len }] = data;
      chat.setModel(id);
      settings.setContext(max_model_len);
      at("model").textContent = id;
      document.title = `${id} – jaxserve`;
      return;
    } catch (error) {
      at("model").textContent = error.message;
      await new Promise((go) => setTimeout(go, 2000));
    }
  }
}

new EngineView(at("engine"), learn);
if (matchMedia("(pointer: fine)").matches) at("prompt").focus();

chat.show();
learn();
