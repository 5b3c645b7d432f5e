// A skill in JavaScript, as a component: it rolls dice, with random numbers of the host. The engine
// is a snapshot, so its own Math.random() would return the same numbers in every call.

import log from "xmpp-agent:skill/log@0.1.0";
import random from "xmpp-agent:skill/random@0.1.0";

export function execute(text) {
  const { dice } = JSON.parse(text);
  const found = /^([1-9][0-9]?)d([1-9][0-9]{0,2})$/.exec(dice);
  if (!found) {
    return { tag: "invalid-parameter", val: ["dice", "write it like 2d6: how many dice, and their sides"] };
  }
  const [count, sides] = [Number(found[1]), Number(found[2])];
  const rolls = Array.from({ length: count }, () => roll(sides));
  log.write("debug", `rolled ${dice}`);
  const total = rolls.reduce((sum, each) => sum + each, 0);
  return { tag: "json", val: JSON.stringify({ rolls, total }) };
}

// Two bytes of random for each attempt; those that would favour the low numbers are dropped.
function roll(sides) {
  const most = 65536 - (65536 % sides);
  for (;;) {
    const [high, low] = random.bytes(2);
    const number = high * 256 + low;
    if (number < most) return (number % sides) + 1;
  }
}
