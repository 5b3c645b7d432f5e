// A chat with the agent in Converse, for the pictures of the documentation.
//
//   node converse.mjs '{"url": …, "jid": …, "password": …, "websocket": …, "contact": …, "out": …, "chromium": …}'
//
// A line on stdout names what has to happen elsewhere; a line on stdin says that it has.

import { choose, end, ENTRY, given, lines, login, message, page, pause, picture, react, SETTLED_MS, type, VIEWPORT } from "./browser.mjs";

const QUESTION_IS_READ_MS = 3_500; // a yes before that is not taken for certain
const COMMANDS = "converse-adhoc-commands";

async function elsewhere(what) {
  console.log(what);
  await lines.next();
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
  await message(words);
  await pause(QUESTION_IS_READ_MS);
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
  await page.evaluate((jid) => window.client.api.chats.open(jid, {}, true), given.contact);
  await page.waitForSelector(ENTRY);
  await addContact();
  await type("Good evening!");
  await message("What can I do for you?");
  await contact();
  await form();

  await asked("Please empty my folder Archive.", "folder *Archive*?");
  await type("ok");
  await message("Archive is empty.");
  await picture(`${given.out}/converse-ok.png`, "Good evening!");

  await asked("And Drafts.", "folder *Drafts*?");
  await choose("folder *Drafts*?", "reply");
  await type("yes");
  await message("Drafts is empty.");
  await picture(`${given.out}/converse-reply.png`, "And Drafts.");

  await asked("And Newsletters, too.", "folder *Newsletters*?");
  await react("folder *Newsletters*?");
  await message("Newsletters is empty.");
  await picture(`${given.out}/converse-reaction.png`, "And Newsletters, too.");

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
  await picture(`${given.out}/converse-encrypted.png`, "How is the weather in Verona?");
  await end();
} catch (error) {
  await end(error);
}
