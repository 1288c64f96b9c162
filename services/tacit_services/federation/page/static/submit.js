// A run is started by a run file and the files that it names: they are uploaded, and the host packs them.

import { ask, at, get, made, post, say } from "./parts.js";

const MOST = 1 << 30; // bytes that a browser holds at once

const hexadecimal = (bytes) => [...new Uint8Array(bytes)].map((byte) => byte.toString(16).padStart(2, "0")).join("");

// Upload a file unless the host has it; returns its SHA-256.
async function uploaded(file) {
  if (file.size > MOST) throw new Error(`${file.name}: is too large for a page; use tacit submit`);
  const content = await contentOf(file, "arrayBuffer");
  const digest = hexadecimal(await crypto.subtle.digest("SHA-256", content));
  const path = `/v1/files/${digest}`;
  const here = await get(path, { method: "HEAD" });
  if (!here.ok) await ask(path, { method: "PUT", body: content });
  return digest;
}

async function contentOf(file, kind) {
  try {
    return await file[kind]();
  } catch {
    throw new Error(`${file.name}: has changed since it was chosen, or cannot be read; choose it again`);
  }
}

async function submitted() {
  const [runFile] = at("run-file").files;
  const others = [...at("files").files];
  const files = {};
  for (const [number, file] of others.entries()) {
    say(at("sent"), `Uploads ${file.name}, ${number + 1} of ${others.length} …`);
    files[file.name] = await uploaded(file);
  }
  say(at("sent"), "The host packs it …");
  const name = at("run-name").value.trim();
  return post("/v1/run-files", { text: await contentOf(runFile, "text"), files, ...(name ? { name } : {}) });
}

// All that is wrong, beside the form.
function showFaults(faults) {
  at("faults").hidden = faults.length === 0;
  say(at("faults-title"), faults.length === 1 ? "It was not submitted:" : `It was not submitted. ${faults.length} things are wrong:`);
  at("faults-list").replaceChildren(...faults.map((fault) => made("li", fault)));
}

// Submit what the form has. after: what is then looked at.
export function whenSubmitted(after) {
  at("submit").addEventListener("submit", async (event) => {
    event.preventDefault();
    at("send").disabled = true;
    showFaults([]);
    try {
      const run = await submitted();
      at("submit").reset();
      say(at("sent"), `${run.name} is offered to the members.`);
      await after();
    } catch (error) {
      say(at("sent"), "");
      showFaults(error.faults?.length ? error.faults : [error.message]);
    } finally {
      at("send").disabled = false;
    }
  });
}
