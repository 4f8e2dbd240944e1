// Creates and connects the parts of the page.

import { Composer } from "./chat/composer.js";
import { Settings } from "./chat/settings.js";
import { Transcript } from "./chat/transcript.js";
import { Conversations } from "./conversations/conversations.js";
import { JsonStorage } from "./dom/json_storage.js";
import { EngineView } from "./engine/engine_view.js";
import { ask } from "./http/api.js";

const PATIENCE_MS = 10_000; // for the response with the model's name
const at = (id) => document.getElementById(id);
const kept = new JsonStorage(() => localStorage);
const tab = new JsonStorage(() => sessionStorage);
const settings = new Settings(at("composer"), kept);
const composer = new Composer(at("composer"), {
  onSend: (message) => conversations.chat.send(message),
  onStop: () => conversations.chat.stop(),
  onProblem: (text) => (at("problem").textContent = text),
});
const transcript = new Transcript(at("turns"));
const conversations = new Conversations(document, kept, tab, { transcript, composer, settings });

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
      conversations.chat.setModel(id);
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

new EngineView(at("engine"), tab, learn);
document.addEventListener("keydown", (event) => event.key === "Escape" && conversations.chat.stop());
conversations.chat.focus();
learn();
