// A room or a chat in Converse, which does what it is told.
//
//   node told.mjs '{"url": …, "jid": …, "password": …, "websocket": …, "room": …, "nick": …, "contact": …, "out": …, "chromium": …}'
//
// Each line on stdin is an array: the name of what is to be done, and its arguments. The answer is a line on
// stdout as soon as it is done: the name again, or what went wrong.

import { choose, end, ENTRY, given, lines, login, message, page, pause, picture, react, SETTLED_MS, type } from "./browser.mjs";

const INPUT = ".chat-toolbar .fileupload";

const does = {
  say: type,
  shows: message,
  picture,
  react,

  async mention(nick, text) {
    await page.focus(ENTRY);
    await page.keyboard.type(`@${nick.slice(0, 4)}`);
    await page.waitForSelector(".suggestion-box__results:not([hidden]) li", { visible: true });
    await page.keyboard.press("Tab");
    await page.waitForFunction((entry, nick) => document.querySelector(entry).value.includes(nick), {}, ENTRY, nick);
    await page.keyboard.type(text);
    await page.keyboard.press("Enter");
  },

  async reply(words, text) {
    await choose(words, "reply");
    await type(text);
  },

  async retract(words) {
    await choose(words, "retract");
    await (await page.waitForSelector(".modal.show button[type=submit]", { visible: true })).click();
    await page.waitForSelector(".modal.show", { hidden: true });
  },

  async send(file) {
    await (await page.waitForSelector(INPUT)).uploadFile(file);
  },

  async image(name) {
    const loaded = (name) =>
      [...document.querySelectorAll(".chat-msg img.chat-image")].some((each) => each.src.includes(name) && each.naturalWidth > 0);
    await page.waitForFunction(loaded, {}, name);
    await pause(SETTLED_MS);
  },
};

try {
  await login();
  const open = ({ room, nick, contact }) =>
    room ? window.client.api.rooms.open(room, { nick }, true) : window.client.api.chats.open(contact, {}, true);
  await page.evaluate(open, given);
  await page.waitForSelector(ENTRY);
  console.log("opened");
  for await (const line of lines) {
    const [name, ...values] = JSON.parse(line);
    const failed = await does[name](...values).then(() => "", String);
    console.log(failed.replaceAll("\n", " ") || name);
  }
  await end();
} catch (error) {
  await end(error);
}
