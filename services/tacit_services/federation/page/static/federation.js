// The runs of a federation, as its host answers them to whoever has a token.

import { ask, at, locked, lost, made, opened, Refused, say, stateClass, whenUnlocked } from "./parts.js";

const AGAIN = 2000; // milliseconds between two looks
let last = "";

function cells(run) {
  const name = made("th");
  name.scope = "row";
  const link = made("a", run.name);
  link.href = `/runs/${encodeURIComponent(run.name)}/`;
  name.append(link);
  const state = made("td");
  state.append(made("span", run.state, `pill ${stateClass(run.state)}`));
  if (run.why) state.append(made("span", run.why, "why"));
  const updates = made("td", `${run.applied} of ${run.updates}`);
  const refused = run.refused.map((each) => `${each.member} (${each.reason})`);
  return [name, state, updates, made("td", run.members.join(", ")), made("td", refused.join(", ")), made("td", run.researcher)];
}

function show(runs) {
  const text = JSON.stringify(runs);
  if (text === last) return; // who reads with the keyboard keeps their place
  last = text;
  const rows = [...runs].reverse().map((run) => {
    const row = made("tr");
    row.append(...cells(run));
    return row;
  });
  at("runs").tBodies[0].replaceChildren(...rows);
  at("runs-empty").hidden = runs.length > 0;
}

async function look() {
  try {
    const me = await ask("/v1/me");
    say(at("me"), `as ${me.name}, ${me.right}`);
    show(await ask("/v1/runs"));
    opened();
    document.documentElement.dataset.shown = "yes";
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return locked("This is not a token.");
    lost("The host does not answer. What you see is what it last said; this page goes on trying.");
  }
  setTimeout(look, AGAIN);
}

// The runs are shown to everybody who has a token: asked for, and tried with the next look.
whenUnlocked(look);
look();
