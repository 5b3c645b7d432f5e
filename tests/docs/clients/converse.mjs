// Drives Converse in Chromium by the DevTools protocol: types and clicks as a person does, and takes pictures.
//
//   node converse.mjs '{"url": …, "jid": …, "password": …, "websocket": …, "contact": …, "out": …, "chromium": …}'
//
// A line on stdout names what has to happen elsewhere; a line on stdin says that it has.

import { createInterface } from "node:readline";
import puppeteer from "puppeteer-core";

const given = JSON.parse(process.argv[2]);
const QUESTION_IS_READ_MS = 3_500; // a yes before that is not taken for certain
const SETTLED_MS = 700; // what moves or fades has come to rest
const ENTRY = "textarea.chat-textarea";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const browser = await puppeteer.launch({
  executablePath: given.chromium,
  args: ["--no-sandbox", "--lang=en", "--force-color-profile=srgb", "--hide-scrollbars"],
  defaultViewport: { width: 860, height: 560 },
});
const page = await browser.newPage();
page.setDefaultTimeout(30_000);

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function elsewhere(what) {
  console.log(what);
  await lines.next();
}

async function type(text) {
  await page.focus(ENTRY);
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
}

// The newest message with these words in it, as soon as it is there.
async function message(words) {
  const find = (words) =>
    [...document.querySelectorAll("converse-chat-message")]
      .reverse()
      .find((each) => each.querySelector(".chat-msg__text")?.textContent.includes(words));
  return (await page.waitForFunction(find, {}, words)).asElement();
}

async function choose(message, action) {
  await message.hover();
  await (await message.$(".dropdown-toggle")).click();
  const item = await message.waitForSelector(`.chat-msg__action-${action}`, { visible: true });
  await item.click();
}

async function picture(name) {
  await page.click(ENTRY); // closes menus
  await page.mouse.move(150, 500);
  await pause(SETTLED_MS);
  await page.screenshot({ path: `${given.out}/converse-${name}.png` });
}

async function asked(request, words) {
  await type(request);
  const question = await message(words);
  await pause(QUESTION_IS_READ_MS);
  return question;
}

async function login() {
  const secrets = { jid: given.jid, password: given.password, websocket: given.websocket };
  await page.goto(`${given.url}/converse.html#${new URLSearchParams(secrets)}`);
  await page.waitForFunction(() => window.client?.api.connection.connected());
  await page.evaluate((jid) => window.client.api.chats.open(jid, {}, true), given.contact);
  await page.waitForSelector(ENTRY);
}

async function addContact() {
  const add = await page.waitForSelector("xpath///button[normalize-space()='Add']");
  await add.click();
  const submit = await page.waitForSelector(".add-xmpp-contact button[type=submit]", { visible: true });
  await submit.click();
  await page.waitForSelector(".modal.show", { hidden: true });
}

async function contact() {
  await page.click(".chat-head .dropdown-toggle, .chatbox-title__buttons .dropdown-toggle");
  const details = await page.waitForSelector(".show-msg-author-modal, .show-user-details-modal", { visible: true });
  await details.click();
  await page.waitForSelector(".modal.show", { visible: true });
  await pause(SETTLED_MS);
  await page.screenshot({ path: `${given.out}/converse-contact.png` });
  await page.keyboard.press("Escape");
  await page.waitForSelector(".modal.show", { hidden: true });
}

try {
  await login();
  await addContact();
  await type("Good evening!");
  await message("What can I do for you?");
  await contact();

  await asked("Please empty my folder Archive.", "folder *Archive*?");
  await type("ok");
  await message("Archive is empty.");
  await picture("ok");

  const drafts = await asked("And Drafts.", "folder *Drafts*?");
  await choose(drafts, "reply");
  await type("yes");
  await message("Drafts is empty.");
  await picture("reply");

  const news = await asked("And Newsletters, too.", "folder *Newsletters*?");
  await choose(news, "reaction");
  await (await page.waitForSelector(".reaction-item", { visible: true })).click();
  await message("Newsletters is empty.");
  await picture("reaction");

  await type("How is the weather in Verona?");
  await elsewhere("the agent is at work");
  await type("And in Padua?");
  await message("Padua");
  await page.keyboard.press("ArrowUp");
  await page.waitForFunction((entry) => document.querySelector(entry).value.includes("Padua"), {}, ENTRY);
  await page.keyboard.press("End");
  for (const _ of "Padua?") await page.keyboard.press("Backspace");
  await type("Venice?");
  await message("Venice?");
  await elsewhere("the weather is known");
  await message("in Venice, too.");

  await elsewhere("another device has encrypted a message");
  await message("I can't read this message");
  await picture("encrypted");
} catch (error) {
  await page.screenshot({ path: `${given.out}/converse-failed.png` });
  console.error(String(error));
  process.exitCode = 1;
}
await browser.close();
process.exit();
