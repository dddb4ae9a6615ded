// Draws the maps of the samples: zoom, pan, and the sample under the pointer or the keyboard.
"use strict";
(() => {
  const OTHERS = 255, NOBODY = -1, COLOURS = 6, GRID = 4095, MARGIN = 0.04, REACH = 16, MAX_ZOOM = 60, EDGE = 0.01;
  const SVG = "http://www.w3.org/2000/svg";

  const bytes = (text) => Uint8Array.from(atob(text ?? ""), (letter) => letter.charCodeAt(0));
  const unsigned = (text) => new Uint16Array(bytes(text).buffer);
  const signed = (text) => new Int16Array(bytes(text).buffer);

  // Markers around the origin, in the order of the signs of the legend: circle, square, triangle, diamond, cross, star.
  const polygon = (corners, radius, turn) => {
    const path = new Path2D();
    corners.forEach((scale, i) => {
      const angle = turn + (2 * Math.PI * i) / corners.length;
      path.lineTo(radius * scale * Math.cos(angle), radius * scale * Math.sin(angle));
    });
    path.closePath();
    return path;
  };
  const circle = new Path2D();
  circle.arc(0, 0, 1, 0, 2 * Math.PI);
  const cross = new Path2D("M-.4-1.2h.8v.8h.8v.8h-.8v.8h-.8v-.8h-.8v-.8h.8z");
  const up = -Math.PI / 2;
  const MARKERS = [
    circle, polygon([1, 1, 1, 1], 1.25, Math.PI / 4), polygon([1, 1, 1], 1.4, up), polygon([1, 1, 1, 1], 1.4, 0), cross,
    polygon([1, 0.45, 1, 0.45, 1, 0.45, 1, 0.45, 1, 0.45], 1.5, up),
  ];

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };

  const readMap = (root) => {
    const node = root.querySelector(".map-data"), data = node.dataset;
    const names = data.names.split("\n"), neighbours = signed(data.neighbours);
    return {
      names, neighbours,
      numNeighbours: neighbours.length / names.length,
      dominant: signed(data.dominant),
      classes: data.classes === undefined ? [] : data.classes.split("\n"),
      labels: signed(data.labels),
      groups: { class: bytes(data.classGroups), dimension: bytes(data.dimensionGroups), none: null },
      layouts: new Map([...node.children].map((each) => [each.dataset.layout, unsigned(each.dataset.xy)])),
      sheet: data.sheet, columns: Number(data.columns), isPixelated: data.pixelated !== undefined,
    };
  };

  const start = (root) => {
    const map = readMap(root);
    const number = map.names.length;
    const choice = (key) => root.querySelector(`[data-key=${key}]`);
    const view = { zoom: 1, x: 0.5, y: 0.5 };
    let selected = NOBODY, isKept = false, wanted = null, highlighted = null, isDrawing = false;

    // Elements that only a script needs.
    const canvas = make("canvas", { tabindex: 0, role: "application", "aria-label": "Map of the samples; arrow keys go from sample to sample" });
    const buttons = make("div", { class: "map-buttons", role: "group", "aria-label": "Zoom" });
    for (const [sign, words, act] of [["+", "Zoom in", () => zoom(1.5)], ["−", "Zoom out", () => zoom(1 / 1.5)], ["⤢", "Show all", () => reset()]]) {
      const button = make("button", { type: "button", "aria-label": words, title: words }, sign);
      button.addEventListener("click", act);
      buttons.append(button);
    }
    const card = make("div", { class: "map-card", role: "status", "aria-live": "polite" });
    root.querySelector(".map-live").append(make("div", { class: "map-frame" }, canvas, buttons), card);
    const pen = canvas.getContext("2d");

    const picture = (place) => {
      if (map.sheet === undefined) return null;
      const svg = document.createElementNS(SVG, "svg");
      svg.setAttribute("class", map.isPixelated ? "shot pixelated" : "shot");
      svg.setAttribute("role", "img");
      svg.setAttribute("viewBox", `${(place % map.columns) + EDGE} ${Math.floor(place / map.columns) + EDGE} ${1 - 2 * EDGE} ${1 - 2 * EDGE}`);
      const title = document.createElementNS(SVG, "title");
      title.textContent = map.names[place];
      const use = document.createElementNS(SVG, "use");
      use.setAttribute("href", `#${map.sheet}`);
      svg.append(title, use);
      return svg;
    };

    const positions = new Float32Array(2 * number);  // in [0, 1]
    const place = () => map.layouts.get(choice("layout").value).forEach((at, i) => { positions[i] = at / GRID; });
    const side = () => Math.min(canvas.width, canvas.height) * (1 - 2 * MARGIN) * view.zoom;
    const toScreen = (i) => [
      canvas.width / 2 + (positions[2 * i] - view.x) * side(), canvas.height / 2 - (positions[2 * i + 1] - view.y) * side(),
    ];

    const draw = () => {
      isDrawing = false;
      const style = getComputedStyle(root);
      const colour = (name) => style.getPropertyValue(name) && resolve(name);
      const palette = Array.from({ length: COLOURS }, (_, k) => colour(`--run${k + 1}`));
      const [muted, ink, paper] = [colour("--neutral"), colour("--ink"), colour("--sheet")];
      const groups = map.groups[choice("colour").value], ratio = devicePixelRatio || 1;
      const size = ratio * Math.min(7, (number > 2000 ? 2.2 : 3.4) * Math.sqrt(view.zoom));
      pen.setTransform(1, 0, 0, 1, 0, 0);
      pen.clearRect(0, 0, canvas.width, canvas.height);
      const isFaint = (i) => (wanted && !wanted.has(i)) || (highlighted !== null && (groups?.[i] ?? OTHERS) !== highlighted);
      // Faint ones first: what is looked for lies on top.
      for (const isLast of [false, true]) {
        for (let i = 0; i < number; i += 1) {
          if (isFaint(i) === isLast) continue;
          const [x, y] = toScreen(i), group = groups?.[i] ?? OTHERS;
          if (x < -size || y < -size || x > canvas.width + size || y > canvas.height + size) continue;
          const isOther = group === OTHERS;
          pen.globalAlpha = isLast ? (isOther ? 0.65 : 0.9) : 0.13;
          pen.fillStyle = isOther ? muted : palette[group % COLOURS];
          const scale = isOther && groups ? size * 0.7 : size;
          pen.setTransform(scale, 0, 0, scale, x, y);
          pen.fill(isOther ? MARKERS[0] : MARKERS[(group + Math.floor(group / COLOURS)) % MARKERS.length]);
        }
      }
      pen.globalAlpha = 1;
      if (selected !== NOBODY) {
        const [x, y] = toScreen(selected);
        pen.setTransform(1, 0, 0, 1, 0, 0);
        for (const [width, tint] of [[5, paper], [2.5, ink]]) {
          pen.lineWidth = width * ratio;
          pen.strokeStyle = tint;
          pen.beginPath();
          pen.arc(x, y, size + 5 * ratio, 0, 2 * Math.PI);
          pen.stroke();
        }
      }
    };
    // Custom properties hold light-dark(...): only a colour in use is resolved.
    const probe = make("i", { hidden: "" });
    root.append(probe);
    const resolve = (name) => {
      probe.style.color = `var(${name})`;
      return getComputedStyle(probe).color;
    };
    const redraw = () => {
      if (isDrawing) return;
      isDrawing = true;
      requestAnimationFrame(draw);
    };

    const tell = () => {
      card.replaceChildren();
      if (selected === NOBODY) return;
      const name = make("bdi", { class: "name" }, map.names[selected]);
      const told = [];
      if (map.labels.length && map.labels[selected] !== NOBODY) told.push(map.classes[map.labels[selected]]);
      const dim = map.dominant[selected];
      if (dim !== undefined && dim !== NOBODY) told.push(`strongest dimension ${dim}`);
      const near = [...map.neighbours.subarray(selected * map.numNeighbours, (selected + 1) * map.numNeighbours)].filter((i) => i !== NOBODY);
      const shown = map.sheet === undefined ? [near.map((i) => map.names[i]).join(", ")] : near.map(picture);
      card.append(...[picture(selected), name, make("p", {}, told.join(" · "))].filter(Boolean));
      card.append(make("p", { class: "near" }, "Nearest by the embedding"), make("div", { class: "strip" }, ...shown));
    };
    const select = (i, keep) => {
      isKept = keep && i !== NOBODY;
      if (i !== selected) {
        selected = i;
        tell();
      }
      redraw();
    };
    const nearest = (x, y) => {
      let best = NOBODY, least = (REACH * (devicePixelRatio || 1)) ** 2;
      for (let i = 0; i < number; i += 1) {
        if (wanted && !wanted.has(i)) continue;
        const [a, b] = toScreen(i), distance = (a - x) ** 2 + (b - y) ** 2;
        if (distance < least) [best, least] = [i, distance];
      }
      return best;
    };
    const step = (dx, dy) => {
      const [x, y] = selected === NOBODY ? [canvas.width / 2, canvas.height / 2] : toScreen(selected);
      let best = NOBODY, least = Infinity;
      for (let i = 0; i < number; i += 1) {
        if (i === selected || (wanted && !wanted.has(i))) continue;
        const [a, b] = toScreen(i), along = (a - x) * dx + (b - y) * dy, across = Math.abs((a - x) * dy - (b - y) * dx);
        if (selected !== NOBODY && along <= across) continue;
        const distance = selected === NOBODY ? Math.hypot(a - x, b - y) : along + 2 * across;
        if (distance < least) [best, least] = [i, distance];
      }
      if (best === NOBODY) return;
      select(best, true);
      const [a, b] = toScreen(best);
      if (a < 0 || b < 0 || a > canvas.width || b > canvas.height) [view.x, view.y] = [positions[2 * best], positions[2 * best + 1]];
    };

    // The point (x, y) of the screen stays where it is.
    const zoom = (factor, x = canvas.width / 2, y = canvas.height / 2) => {
      const before = side();
      view.zoom = Math.min(MAX_ZOOM, Math.max(1, view.zoom * factor));
      const after = side();
      view.x += (x - canvas.width / 2) * (1 / before - 1 / after);
      view.y -= (y - canvas.height / 2) * (1 / before - 1 / after);
      if (view.zoom === 1) [view.x, view.y] = [0.5, 0.5];
      redraw();
    };
    const pan = (dx, dy) => {
      view.x = Math.min(1, Math.max(0, view.x - dx / side()));
      view.y = Math.min(1, Math.max(0, view.y + dy / side()));
      redraw();
    };
    const reset = () => {
      Object.assign(view, { zoom: 1, x: 0.5, y: 0.5 });
      redraw();
    };

    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [(event.clientX - box.left) * (canvas.width / box.width), (event.clientY - box.top) * (canvas.height / box.height)];
    };
    let dragged = null;
    canvas.addEventListener("pointerdown", (event) => {
      dragged = { at: at(event), moved: 0 };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = at(event);
      if (dragged) {
        dragged.moved += Math.hypot(x - dragged.at[0], y - dragged.at[1]);
        pan(x - dragged.at[0], y - dragged.at[1]);
        dragged.at = [x, y];
      } else if (!isKept) select(nearest(x, y), false);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (dragged && dragged.moved < 6) {
        const hit = nearest(...at(event));
        select(hit, hit !== NOBODY);
      }
      dragged = null;
    });
    canvas.addEventListener("pointercancel", () => { dragged = null; });
    canvas.addEventListener("pointerleave", () => { if (!isKept) select(NOBODY, false); });
    // A page that is scrolled past the map must not stop at it: the wheel zooms once the map has the focus.
    canvas.addEventListener("wheel", (event) => {
      if (document.activeElement !== canvas && !event.ctrlKey) return;
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 400), ...at(event));
    }, { passive: false });
    const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const arrow = ARROWS[event.key], focus = selected === NOBODY ? [] : toScreen(selected);
      if (arrow && event.shiftKey) pan(-arrow[0] * canvas.width * 0.15, -arrow[1] * canvas.height * 0.15);
      else if (arrow) step(...arrow);
      else if (event.key === "+" || event.key === "=") zoom(1.5, ...focus);
      else if (event.key === "-") zoom(1 / 1.5, ...focus);
      else if (event.key === "0") reset();
      else if (event.key === "Enter" && selected !== NOBODY) isKept = true;
      else if (event.key === "Escape") select(NOBODY, false);
      else return;
      event.preventDefault();
    });

    // The legend of what the map is coloured by; its entries show one group alone.
    const legends = [...root.querySelectorAll("[data-legend]")];
    for (const legend of legends) {
      [...legend.querySelectorAll("li")].forEach((item, group) => {
        const isRest = item.querySelector("bdi") === null;
        const button = make("button", { type: "button", "aria-pressed": "false" }, ...item.childNodes);
        button.addEventListener("click", () => {
          const key = isRest ? OTHERS : group;
          highlighted = highlighted === key ? null : key;
          for (const other of legend.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button && highlighted !== null));
          redraw();
        });
        item.append(button);
      });
    }
    const showLegend = () => {
      highlighted = null;
      for (const legend of legends) {
        legend.hidden = legend.dataset.legend !== choice("colour").value;
        for (const button of legend.querySelectorAll("button")) button.setAttribute("aria-pressed", "false");
      }
      redraw();
    };
    const lay = () => {
      place();
      redraw();
    };
    choice("layout").addEventListener("input", lay);
    choice("colour").addEventListener("input", showLegend);
    const searched = map.names.map((name, i) => {
      const label = map.labels.length ? map.labels[i] : NOBODY;
      return label === NOBODY ? name : `${name}\n${map.classes[label]}`;
    });
    let folded = null;
    document.addEventListener("counterpoint-search", (event) => {
      const { query, dim, fold, maps } = event.detail;
      if (query === "") wanted = null;
      else {
        folded ??= searched.map(fold);
        const fits = (i) => folded[i].includes(query) || (dim !== undefined && map.dominant[i] === Number(dim));
        const places = [...map.names.keys()].filter(fits);
        wanted = new Set(places);
        const show = (i) => {
          select(i, true);
          canvas.scrollIntoView({ block: "nearest" });
        };
        maps.push({ places, name: (i) => map.names[i], picture, select: show });
      }
      redraw();
    });

    const resize = () => {
      const ratio = devicePixelRatio || 1, box = canvas.getBoundingClientRect();
      canvas.width = Math.max(1, Math.round(box.width * ratio));
      canvas.height = Math.max(1, Math.round(box.height * ratio));
      redraw();
    };
    new ResizeObserver(resize).observe(canvas);
    new MutationObserver(redraw).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    lay();
    showLegend();
  };
  for (const root of document.querySelectorAll(".map")) start(root);
})();
