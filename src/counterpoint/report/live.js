// Keeps the page of a run in progress up to date: asks for a few words each two seconds, for the page when it changed.
"use strict";
(() => {
  const strip = document.getElementById("live");
  let version = strip.dataset.version;
  let numLost = 0;

  const tell = (state) => {
    strip.className = `live state-${state.state}`;
    document.title = document.title.replace(/: [^:]*$/, `: ${state.state}`);
    const lines = document.getElementById("live-lines");
    // Nodes that say the same stay: readers of the screen hear changes only.
    const old = [...lines.children];
    if (old.length !== state.lines.length) lines.replaceChildren(...state.lines.map(() => document.createElement("li")));
    state.lines.forEach((words, place) => {
      const line = lines.children[place];
      if (line.textContent !== words) line.textContent = words;
    });
    const note = document.getElementById("live-note");
    if (note.textContent !== state.note) note.textContent = state.note;
  };

  // The new sections take the place of the old ones in one step; what was opened and read stays where it is.
  const redraw = async () => {
    const answer = await fetch("./", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    const main = document.querySelector("main");
    const numbered = (root) => [...root.querySelectorAll("details")];
    const path = (each) => `${each.closest("section").id} ${each.querySelector("summary").textContent}`;
    const opened = new Set(numbered(main).filter((each) => each.open).map(path));
    const next = document.importNode(fresh.querySelector("main"), true);
    for (const each of numbered(next)) if (opened.has(path(each))) each.open = true;
    const top = scrollY;
    main.replaceWith(next);
    scrollTo({ top, behavior: "instant" });
    version = fresh.getElementById("live").dataset.version;
  };

  const poll = async () => {
    try {
      const answer = await fetch("state.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const state = await answer.json();
      numLost = 0;
      tell(state);
      if (state.version !== version) await redraw();
    } catch {
      numLost += 1;
      if (numLost === 3) {
        const lines = [...document.getElementById("live-lines").children].map((line) => line.textContent);
        tell({ state: "lost", lines, note: "counterpoint watch does not answer any more; this page is as it was last." });
      }
    }
    setTimeout(poll, document.hidden ? 10000 : 2000);
  };
  setTimeout(poll, 1000);
})();
