// Joins the parts of the page.

import { ask } from "./api.js";
import { Chat } from "./chat.js";
import { Conversation } from "./conversation.js";
import { EngineView } from "./engine.js";
import { Settings } from "./settings.js";

const at = (id) => document.getElementById(id);
const settings = new Settings(at("composer"), localStorage);
const chat = new Chat(at("composer"), at("turns"), new Conversation(sessionStorage), settings);

new EngineView(at("engine"));
if (matchMedia("(pointer: fine)").matches) at("prompt").focus();

chat.show();

for (let isKnown = false; !isKnown; ) {
  try {
    const { data } = await (await ask("v1/models")).json();
    const [{ id, max_model_len }] = data;
    chat.setModel(id);
    settings.setContext(max_model_len);
    at("model").textContent = id;
    document.title = `${id} – jaxserve`;
    isKnown = true;
  } catch (error) {
    at("model").textContent = error.message; // the model may still be loading
    await new Promise((go) => setTimeout(go, 2000));
  }
}
