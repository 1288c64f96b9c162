// The runs and members of a federation, as its host answers them to whoever has a token.

import { ask, at, button, happened, locked, lost, made, opened, post, refill, Refused, row, say, stateClass, whenUnlocked } from "./parts.js";
import { whenSubmitted } from "./submit.js";
import { moment } from "./words.js";

const AGAIN = 2000; // milliseconds between two looks
const MORE = 5; // looks between two at members and at what was done
const NAMED = 5; // members that a cell names
let looks = 0;

function few(names) {
  if (names.length <= NAMED) return names.join(", ");
  return `${names.slice(0, NAMED).join(", ")} and ${names.length - NAMED} more`;
}

function line(run, mayChange) {
  const link = made("a", run.name);
  link.href = `/runs/${encodeURIComponent(run.name)}/`;
  const state = [made("span", run.state, `pill ${stateClass(run.state)}`)];
  if (run.why) state.push(made("span", run.why, "why"));
  const refused = run.refused.map((each) => `${each.member} (${each.reason})`);
  const cells = [link, state, `${run.applied} of ${run.updates}`, few(run.members), few(refused), run.researcher];
  return row(mayChange ? [...cells, acts(run)] : cells);
}

function acts(run) {
  if (["ended", "stopped", "failed"].includes(run.state)) return [];
  const stops = button("Stop", () => stop(run.name), `Stop the run ${run.name}`, run.name);
  const waits = run.members.length > 0 && run.applied === 0 && run.state === "waiting";
  return waits ? [button("Begin now", () => begin(run.name), `Begin the run ${run.name} now`, run.name), stops] : [stops];
}

async function stop(name) {
  const reason = prompt(`Why does ${name} end? Its members are told. What it has trained stays.`, "enough");
  if (reason === null) return;
  await act(name, "stop", { reason: reason || "enough" });
}

const begin = (name) => act(name, "begin", {});

async function act(name, action, body) {
  try {
    const run = await post(`/v1/runs/${encodeURIComponent(name)}/${action}`, body);
    say(at("said"), `${run.name}: ${run.state}${run.why ? `, ${run.why}` : ""}`);
    await refresh();
  } catch (error) {
    say(at("said"), error.message);
  }
}

function heard(member) {
  if (member.revoked) return `revoked ${moment(member.revoked)}`;
  if (member.left) return `left ${moment(member.left)}`;
  return member.last_heard ? moment(member.last_heard) : "never";
}

function certificate({ certificate_until: until }) {
  if (until === null) return "";
  return until * 1000 < Date.now() ? `ended ${moment(until)}` : moment(until);
}

function showMembers(members) {
  refill(at("members").tBodies[0], members.map((member) =>
    row([member.name, member.id, moment(member.since), heard(member), member.version, certificate(member)])));
  at("members-empty").hidden = members.length > 0;
}

const short = (value) => (/^[0-9a-f]{64}$/.test(value) ? `${value.slice(0, 16)}…` : value);

function showAudit(entries, members) {
  const names = new Map(members.map(({ id, name }) => [id, `${name} (${id})`]));
  happened(at("audit"), entries.map(({ at: when, who, did, ...what }) => {
    const more = Object.entries(what).filter(([, value]) => value !== "" && value !== null);
    return [moment(when), `${names.get(who) ?? who} ${did}${more.map(([key, value]) => `, ${key} ${short(value)}`).join("")}`];
  }));
}

async function refresh() {
  const me = await ask("/v1/me");
  const mayChange = me.right !== "reader";
  say(at("me"), `as ${me.name}, ${me.right}`);
  at("start").hidden = at("acts").hidden = !mayChange;
  at("done").hidden = me.right !== "operator";
  const runs = await ask("/v1/runs");
  refill(at("runs").tBodies[0], [...runs].reverse().map((run) => line(run, mayChange)));
  at("runs-empty").hidden = runs.length > 0;
  if (looks % MORE === 0) await refreshRest(me);
}

async function refreshRest(me) {
  const { members } = await ask("/v1/members");
  showMembers(members);
  if (me.right === "operator") showAudit(await ask("/v1/audit"), members);
}

async function look() {
  try {
    await refresh();
    looks += 1;
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
whenSubmitted(() => { looks = 0; return refresh(); });
look();
