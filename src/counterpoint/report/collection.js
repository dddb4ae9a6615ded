// Search over samples and dimensions, and the order of the light table. Tells the maps by events of the document.
"use strict";
(() => {
  const tables = [...document.querySelectorAll(".light-table")];
  const field = document.getElementById("search");
  const found = document.getElementById("found");
  const hits = document.querySelector(".hits");
  const sortBy = document.getElementById("dims-sort");
  const showKind = document.getElementById("dims-kind");
  const ascending = new Set(["dim"]);
  const SHOWN_HITS = 24;
  let query = "";

  const fold = (text) => text.normalize("NFKC").toLocaleLowerCase();
  const plural = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

  // A number is that dimension; other words are looked for in the class and in the names of its samples.
  const wantedDim = () => /^(?:dim(?:ension)?\s*)?(0|[1-9]\d*)$/.exec(query)?.[1];
  const isWanted = (item) => {
    if (query === "") return true;
    const dim = wantedDim();
    if (dim !== undefined) return item.dataset.dim === dim;
    return fold(item.dataset.class ?? "").includes(query) || fold(item.textContent).includes(query);
  };

  const showDims = () => {
    const kind = showKind?.value ?? "all";
    let number = 0;
    for (const table of tables) {
      for (const item of table.children) {
        const isKind = kind === "all" || (item.dataset.kind ?? "").split(" ").includes(kind);
        item.hidden = !(isKind && isWanted(item));
        if (!item.hidden) number += 1;
      }
    }
    const output = document.getElementById("dims-count");
    if (output) output.textContent = `${plural(number, "dimension")} shown`;
    return number;
  };

  sortBy?.addEventListener("change", () => {
    const key = sortBy.value;
    const sign = ascending.has(key) ? 1 : -1;
    for (const table of tables) {
      const items = [...table.children];
      items.sort((a, b) => sign * (a.dataset[key] - b.dataset[key]) || a.dataset.dim - b.dataset.dim);
      table.append(...items);
    }
  });
  showKind?.addEventListener("change", showDims);

  // Every map answers with the samples that fit; those of the first map are listed.
  const search = () => {
    query = fold(field.value.trim());
    const asked = { query, dim: wantedDim(), fold, maps: [] };
    document.dispatchEvent(new CustomEvent("counterpoint-search", { detail: asked }));
    const dims = showDims();
    hits.replaceChildren();
    if (query === "") {
      found.textContent = "";
      return;
    }
    const number = asked.maps.reduce((sum, map) => sum + map.places.length, 0);
    found.textContent = `${plural(number, "sample")}, ${plural(dims, "dimension")}`;
    for (const map of asked.maps) {
      for (const place of map.places.slice(0, SHOWN_HITS - hits.childElementCount)) {
        const button = document.createElement("button");
        button.type = "button";
        const name = document.createElement("span");
        name.textContent = map.name(place);
        button.append(...[map.picture(place), name].filter(Boolean));
        button.addEventListener("click", () => map.select(place));
        const item = document.createElement("li");
        item.append(button);
        hits.append(item);
      }
    }
  };
  let waiting = 0;
  field?.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 80);
  });
  showDims();
})();
