// Runs a skill of an agent: node caller.js JID AGENT SKILL [NAME=VALUE]...
//
// The password is in the variable PASSWORD, and the variable SERVICE names another server than that
// of the JID, such as xmpp://127.0.0.1:5222. npm install @xmpp/client

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { client, jid, xml } from "@xmpp/client";

const EXECUTE = "urn:fluux:agent:0#execute";
const TASK = "urn:fluux:agent:0#task";
const CONFIRM = "urn:fluux:agent:0#confirm";
const ENDED = ["completed", "failed", "cancelled", "rejected"];

const [account, agent, skill, ...params] = process.argv.slice(2);
const { local, domain } = jid(account);
const xmpp = client({
  service: process.env.SERVICE ?? `xmpp://${domain}:5222`,
  domain,
  username: local,
  password: process.env.PASSWORD,
  timeout: 30_000, // milliseconds
});

// What the agent sends, and nobody else; `next` waits for it.
const heard = [];
let wake = () => {};
xmpp.on("stanza", (stanza) => {
  if (stanza.is("message") && jid(stanza.attrs.from ?? account).bare().toString() === agent) {
    heard.push(stanza);
    wake();
  }
});

async function next(seconds) {
  if (heard.length === 0) {
    let timer;
    await new Promise((resolve) => {
      wake = resolve;
      timer = setTimeout(resolve, seconds * 1000);
    });
    clearTimeout(timer);
  }
  return heard.shift();
}

// Sends an IQ; returns the payload of its result, or throws its error.
async function ask(type, payload) {
  const answer = await xmpp.iqCaller.request(xml("iq", { type, to: agent }, payload));
  return answer.getChildElements()[0];
}

// Executes the skill and waits for its end; returns an exit code.
async function run() {
  // With the same `request`, this may be sent again if the answer is lost: it runs once.
  const attributes = { xmlns: EXECUTE, skill, request: randomUUID() };
  const children = params.map((one) => {
    const at = one.indexOf("=");
    return xml("param", { name: one.slice(0, at) }, one.slice(at + 1));
  });
  const answer = await ask("set", xml("execute", attributes, ...children));
  if (answer.is("result", EXECUTE)) return show(answer);
  console.log("accepted");
  return follow(answer.attrs.task, Number(answer.attrs["poll-after"] ?? 5));
}

// Follows a task to its end, by its messages, and by asking if none comes.
async function follow(id, seconds) {
  let revision = 0;
  for (;;) {
    const message = await next(seconds);
    const confirm = message?.getChild("confirm", CONFIRM);
    if (confirm?.attrs.task === id) {
      await decide(confirm, message.getChildText("body"));
      continue;
    }
    const news = message
      ? message.getChild("task", TASK)
      : await ask("get", xml("task", { xmlns: TASK, id }));
    // Of another task, or it was heard before.
    if (news?.attrs.id !== id || Number(news.attrs.revision) <= revision) continue;
    revision = Number(news.attrs.revision);
    console.log(news.attrs.state);
    const result = news.getChild("result", EXECUTE);
    if (result) return show(result);
    if (ENDED.includes(news.attrs.state)) {
      console.log(news.getChild("failure")?.getChildText("text") ?? "");
      return 1;
    }
  }
}

// Has a person answer. The digest makes the answer one to exactly what was shown.
async function decide(confirm, question) {
  console.log(question);
  const terminal = createInterface({ input: process.stdin });
  const [said] = await Promise.race([once(terminal, "line"), once(terminal, "close")]);
  terminal.close();
  const value = said === "yes" ? "approve" : "deny";
  const attributes = { xmlns: CONFIRM, id: confirm.attrs.id, value };
  await ask("set", xml("decision", attributes, confirm.getChild("hash", "urn:xmpp:hashes:2")));
}

// Prints the outputs of a result; returns an exit code.
function show(result) {
  for (const output of result.getChildren("output")) console.log(output.text());
  return result.attrs["is-error"] === "true" ? 1 : 0;
}

xmpp.on("error", () => {}); // start() and request() say it
try {
  await xmpp.start();
  await xmpp.send(xml("presence"));
  process.exitCode = await run();
} catch (error) {
  console.log(error.message);
  process.exitCode = 1;
}
await xmpp.stop();
