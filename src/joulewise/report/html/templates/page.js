(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("joulewise-data").textContent);
  const status = document.getElementById("status");
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const views = new Map();
  // CSS pixels: below the first, panels are stacked; the width of a sheet of paper; that of an axis.
  const [NARROW, SHEET, AXES] = [480, 640, 80];

  let theme = "light";
  let printing = false;

  const records = ({ columns, rows }) =>
    rows.map((row) => Object.fromEntries(row.map((value, at) => [columns[at], value])));

  // Vega-Lite fits a single view to its container, but not several: these share the width, or are
  // stacked where it is narrow.
  function fitted(spec, width) {
    const across = spec.hconcat && width >= NARROW ? "hconcat" : "vconcat";
    const parts = spec.hconcat || spec.vconcat;
    if (parts) {
      const { hconcat, vconcat, ...rest } = spec;
      const share = across === "hconcat" ? width / parts.length : width;
      return { ...rest, [across]: parts.map((part) => fitted(part, share)) };
    }
    if (spec.spec) return { ...spec, spec: fitted(spec.spec, width / (spec.columns || 1)) };
    return { ...spec, width: Math.max(60, Math.round(width - AXES)) };
  }

  // The complete specification of a figure. In print it is light and as wide as a sheet, whatever
  // the width of the window.
  function completeSpec(id, look, width) {
    const { spec, configs, data: names } = data.charts[id];
    const datasets = {};
    for (const [name, number] of Object.entries(names)) datasets[name] = records(data.tables[number]);
    const isSingle = spec.width === "container";
    const drawnWidth = look === "print" ? SHEET : width;
    const printed = look === "print" && { width: drawnWidth };
    const own = isSingle ? { ...spec, ...printed } : fitted(spec, drawnWidth);
    return { ...own, config: data.configs[configs[look === "dark" ? "dark" : "light"]], datasets };
  }

  function draw(figure) {
    const look = printing ? "print" : theme;
    const place = figure.querySelector(".chart");
    const isSingle = data.charts[figure.id].spec.width === "container";
    const key = isSingle ? look : `${look} ${place.clientWidth}`;
    const before = views.get(figure);
    if (before && before.key === key) return before.done;
    place.style.minHeight = before ? `${place.offsetHeight}px` : "";
    const mine = { key };
    views.set(figure, mine);
    mine.done = (async () => {
      try {
        // The interpreter in place of eval, which the page's policy forbids.
        const made = await vegaEmbed(place, completeSpec(figure.id, look, place.clientWidth), {
          mode: "vega-lite",
          renderer: "svg",
          actions: false,
          ast: true,
        });
        if (views.get(figure) !== mine) {
          made.finalize();
          return;
        }
        mine.view = made.view;
        // For screen readers it is one picture with a caption and a table, not hundreds of marks.
        const picture = place.querySelector("svg");
        picture.setAttribute("role", "img");
        picture.setAttribute("aria-labelledby", `${figure.id}-title`);
        for (const part of picture.children) part.setAttribute("aria-hidden", "true");
        place.style.minHeight = "";
        figure.dataset.drawn = look;
      } catch (error) {
        figure.dataset.failed = "";
        place.textContent = `This figure could not be drawn (${error.message}); its numbers are below.`;
        console.error(`${figure.id}: ${error.message}`);
      }
    })();
    if (before && before.view) before.view.finalize();
    return mine.done;
  }

  // One after the other, yielding in between: the page stays responsive, and all figures are there
  // for whoever scrolls, prints or takes a screenshot.
  async function drawAll() {
    for (const figure of figures) {
      await draw(figure);
      await new Promise((go) => setTimeout(go));
    }
  }

  addEventListener("joulewise-theme", ({ detail }) => {
    theme = detail;
    drawAll();
  });
  let waits;
  addEventListener("resize", () => {
    clearTimeout(waits);
    waits = setTimeout(drawAll, 200);
  });
  addEventListener("beforeprint", () => {
    printing = true;
    figures.forEach(draw);
  });
  addEventListener("afterprint", () => {
    printing = false;
    drawAll();
  });

  function csv({ columns, rows, source }) {
    const cell = (value) => {
      if (typeof value !== "string") return value ?? "";
      const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value; // or a spreadsheet would run it
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const withSource = source ? (row, at) => [...row, at ? source : "source"] : (row) => row;
    return [columns, ...rows].map(withSource).map((row) => row.map(cell).join(",") + "\n").join("");
  }

  function save(url, name) {
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
    status.textContent = `${name} is being saved`;
  }
  const saveText = (text, name, type) => save(URL.createObjectURL(new Blob([text], { type })), name);

  async function saveFigure(id, form) {
    const { file } = data.charts[id];
    if (form === "json") {
      return saveText(JSON.stringify(completeSpec(id, "print"), null, 1), `${file}.vl.json`, "application/json");
    }
    const figure = document.getElementById(id);
    await draw(figure);
    return save(await views.get(figure).view.toImageURL(form, 2), `${file}.${form}`);
  }

  async function copy(button) {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      status.textContent = "Copied";
      button.firstChild.textContent = "Copied";
      setTimeout(() => (button.firstChild.textContent = "Copy"), 2000);
    } catch {
      getSelection().selectAllChildren(code); // to be copied with one key
      status.textContent = "The command is selected; copy it";
    }
  }

  addEventListener("click", ({ target }) => {
    const button = target.closest("button");
    if (!button) return;
    const { table, figure, form, result, copy: command } = button.dataset;
    if (table !== undefined) saveText(csv(data.tables[table]), `${data.tables[table].file}.csv`, "text/csv");
    if (figure !== undefined) saveFigure(figure, form);
    if (result !== undefined) {
      saveText(JSON.stringify(data.result, null, 2) + "\n", "result.json", "application/json");
    }
    if (command !== undefined) copy(button);
  });
})();
