// Adds comfort to a page that reads without it: theme, values under the pointer, the current section.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // Theme: follows the system until the reader chooses.
  const themeButton = document.getElementById("theme");
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);
  const remember = (theme) => { try { localStorage.setItem("counterpoint-theme", theme); } catch { /* no storage */ } };
  const recall = () => { try { return localStorage.getItem("counterpoint-theme"); } catch { return null; } };
  const nameTheme = () => {
    const other = isDark() ? "light" : "dark";
    themeButton.textContent = other === "dark" ? "Dark" : "Light";
    themeButton.setAttribute("aria-label", `Switch to ${other} theme`);
  };
  if (["light", "dark"].includes(recall())) root.dataset.theme = recall();
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    nameTheme();
  });
  systemDark.addEventListener("change", nameTheme);
  nameTheme();

  // A link to a folded section or finding opens it and what holds it.
  const openTarget = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target === null) return;
    const own = target.matches("section") ? target.querySelector(":scope > details") : null;
    for (let at = own ?? target; at; at = at.parentElement) if (at instanceof HTMLDetailsElement) at.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", openTarget);
  openTarget();

  // Values under the pointer come from the table of the same figure.
  const readTable = (figure) => {
    const titles = [...figure.querySelectorAll("thead th")].slice(1).map((cell) => cell.textContent);
    return [...figure.querySelectorAll("tbody tr[data-at]")].map((row) => {
      const [head, ...cells] = [...row.cells].map((cell) => cell.textContent);
      return { at: Number(row.dataset.at), text: [head, ...cells.map((cell, i) => `${titles[i]}  ${cell}`)].join("\n") };
    });
  };
  for (const chart of document.querySelectorAll("svg.hover")) {
    const rows = readTable(chart.closest("figure"));
    if (rows.length === 0) continue;
    const edge = Object.fromEntries(["left", "right", "low", "high", "top", "bottom"].map((k) => [k, Number(chart.dataset[k])]));
    const readout = document.createElement("div");
    readout.className = "readout";
    readout.hidden = true;
    chart.parentElement.append(readout);
    const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
    cursor.setAttribute("class", "cursor");
    chart.append(cursor);
    const place = (value) => edge.left + ((value - edge.low) / (edge.high - edge.low)) * (edge.right - edge.left);
    chart.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const scale = box.width / chart.viewBox.baseVal.width;
      const x = (event.clientX - box.left) / scale;
      const row = rows.reduce((best, one) => (Math.abs(place(one.at) - x) < Math.abs(place(best.at) - x) ? one : best));
      readout.textContent = row.text;
      readout.hidden = false;
      cursor.setAttribute("d", `M${place(row.at)} ${edge.top}V${edge.bottom}`);
      const wanted = place(row.at) * scale + 12;
      const fits = wanted + readout.offsetWidth <= chart.parentElement.clientWidth;
      readout.style.left = `${Math.max(0, fits ? wanted : wanted - readout.offsetWidth - 24)}px`;
      readout.style.top = `${edge.top * scale}px`;
    });
    chart.addEventListener("pointerleave", () => {
      readout.hidden = true;
      cursor.removeAttribute("d");
    });
  }

  // The navigation marks the section in view.
  const links = new Map([...document.querySelectorAll("nav a")].map((link) => [link.hash.slice(1), link]));
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((one) => one.isIntersecting)) {
      for (const [name, link] of links) {
        if (name === entry.target.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    }
  }, { rootMargin: "-20% 0px -70% 0px" });
  for (const section of document.querySelectorAll("main > section")) observer.observe(section);
})();
