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
const COMMANDS = "converse-adhoc-commands";
const MARGIN = 14; // between the head and the first message
const VIEWPORT = { width: 860, height: 720, deviceScaleFactor: 2 };

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const browser = await puppeteer.launch({
  executablePath: given.chromium,
  args: ["--no-sandbox", "--lang=en", "--force-color-profile=srgb", "--hide-scrollbars"],
  defaultViewport: VIEWPORT,
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

// The window is made as high as the messages are, from the one with this text on.
async function picture(name, text) {
  await page.click(ENTRY); // closes menus
  await page.mouse.move(150, 500);
  await pause(SETTLED_MS);
  const above = (text, margin) => {
    const first = [...document.querySelectorAll(".chat-msg")].find(
      (each) => each.querySelector(".chat-msg__text")?.textContent.trim() === text,
    );
    return Math.floor(first.getBoundingClientRect().top - document.querySelector(".chat-head").getBoundingClientRect().bottom - margin);
  };
  let height = VIEWPORT.height;
  for (let rest; (rest = await page.evaluate(above, text, MARGIN)) > 0; await pause(SETTLED_MS)) {
    height -= rest;
    await page.setViewport({ ...VIEWPORT, height });
  }
  await page.screenshot({ path: `${given.out}/converse-${name}.png` });
  await page.setViewport(VIEWPORT);
}

async function form() {
  await page.setViewport({ ...VIEWPORT, height: 760 });
  await page.evaluate(() => window.client.api.modal.show("converse-user-settings-modal"));
  await (await page.waitForSelector("#commands-tab", { visible: true })).click();
  const address = await page.waitForSelector(`${COMMANDS} input[name=jid]`, { visible: true });
  await address.evaluate((field) => { field.value = ""; });
  await address.type(given.contact);
  await page.$eval(`${COMMANDS} form [type=submit]`, (button) => button.click());
  const skill = await page.waitForSelector(`xpath///converse-adhoc-commands//a[normalize-space()='Book a table']`);
  await skill.click();
  const guests = await page.waitForSelector(`${COMMANDS} [name=guests]`, { visible: true });
  await guests.type("4");
  await page.type(`${COMMANDS} [name=time]`, "19:30");
  await page.select(`${COMMANDS} [name=place]`, "On the terrace");
  await page.evaluate(() => document.activeElement.blur());
  await pause(SETTLED_MS);
  await page.$eval(`${COMMANDS} li:has([name=guests])`, (shown) => {
    const body = shown.closest(".modal-body");
    body.scrollTop += shown.getBoundingClientRect().top - body.getBoundingClientRect().top;
    shown.closest(".modal").scrollTop = 0;
  });
  await pause(SETTLED_MS);
  await page.screenshot({ path: `${given.out}/converse-form.png` });
  await page.keyboard.press("Escape");
  await page.waitForSelector(".modal.show", { hidden: true });
  await page.setViewport(VIEWPORT);
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
  await page.setViewport({ ...VIEWPORT, height: 560 });
  await pause(SETTLED_MS);
  await page.screenshot({ path: `${given.out}/converse-contact.png` });
  await page.keyboard.press("Escape");
  await page.waitForSelector(".modal.show", { hidden: true });
  await page.setViewport(VIEWPORT);
}

try {
  await login();
  await addContact();
  await type("Good evening!");
  await message("What can I do for you?");
  await contact();
  await form();

  await asked("Please empty my folder Archive.", "folder *Archive*?");
  await type("ok");
  await message("Archive is empty.");
  await picture("ok", "Good evening!");

  const drafts = await asked("And Drafts.", "folder *Drafts*?");
  await choose(drafts, "reply");
  await type("yes");
  await message("Drafts is empty.");
  await picture("reply", "And Drafts.");

  const news = await asked("And Newsletters, too.", "folder *Newsletters*?");
  await choose(news, "reaction");
  await (await page.waitForSelector(".reaction-item", { visible: true })).click();
  await message("Newsletters is empty.");
  await picture("reaction", "And Newsletters, too.");

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
  await picture("encrypted", "How is the weather in Verona?");
} catch (error) {
  await page.screenshot({ path: `${given.out}/converse-failed.png` });
  console.error(String(error));
  process.exitCode = 1;
}
await browser.close();
process.exit();
