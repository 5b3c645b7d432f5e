// Drives Converse in Chromium by the DevTools protocol: types and clicks as a person does.
//
// The argument of the program is an object: {"url": …, "jid": …, "password": …, "websocket": …, "out": …, "chromium": …}

import { createInterface } from "node:readline";
import puppeteer from "puppeteer-core";

export const given = JSON.parse(process.argv[2]);
export const SETTLED_MS = 700; // what moves or fades has come to rest
export const ENTRY = "textarea.chat-textarea";
const MARGIN = 14; // between the head and the first message
export const VIEWPORT = { width: 860, height: 720, deviceScaleFactor: 2 };

export const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
export const browser = await puppeteer.launch({
  executablePath: given.chromium,
  args: ["--no-sandbox", "--lang=en", "--force-color-profile=srgb", "--hide-scrollbars", "--ignore-certificate-errors", "--disable-web-security"],
  defaultViewport: VIEWPORT,
});
export const page = await browser.newPage();
page.setDefaultTimeout(60_000);

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function type(text) {
  await page.focus(ENTRY);
  await page.keyboard.type(text);
  await page.keyboard.press("Enter");
}

// The newest message with these words in it, as soon as it is there.
export async function message(words) {
  const find = (words) =>
    [...document.querySelectorAll("converse-chat-message")]
      .reverse()
      .find((each) => each.querySelector(".chat-msg__text")?.textContent.includes(words));
  return (await page.waitForFunction(find, {}, words)).asElement();
}

// Chooses an action from the menu of the newest message with these words in it. The menu itself stays closed:
// it closes when the message moves or is corrected meanwhile.
export async function choose(words, action) {
  const item = await (await message(words)).waitForSelector(`.chat-msg__action-${action}`);
  await item.evaluate((button) => button.click());
}

// Reacts with a thumb up, the first one that is offered, to the newest message with these words in it.
export async function react(words) {
  await choose(words, "reaction");
  const thumb = await (await message(words)).waitForSelector(".reaction-item");
  await thumb.evaluate((button) => button.click());
}

// The window is made as high as the messages are, from the one with this text on if it is given.
export async function picture(file, text) {
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
  for (let rest; text && (rest = await page.evaluate(above, text, MARGIN)) > 0; await pause(SETTLED_MS)) {
    height -= rest;
    await page.setViewport({ ...VIEWPORT, height });
  }
  await page.screenshot({ path: file });
  await page.setViewport(VIEWPORT);
}

export async function login() {
  const secrets = { jid: given.jid, password: given.password, websocket: given.websocket };
  await page.goto(`${given.url}/converse.html#${new URLSearchParams(secrets)}`);
  await page.waitForFunction(() => window.client?.api.connection.connected());
}

// Leaves the browser; what went wrong is shown in a picture.
export async function end(error) {
  if (error) {
    await page.screenshot({ path: `${given.out}/converse-failed.png` });
    console.error(String(error));
    process.exitCode = 1;
  }
  await browser.close();
  process.exit();
}
