(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("joulewise-data").textContent);
  const said = document.getElementById("said");
  const figures = [...document.querySelectorAll("figure[data-chart]")];
  const views = new Map();
  const [NARROW, SHEET, AXES] = [480, 640, 80]; // CSS pixels

  let theme = "light";
  let printing = false;

  const records = ({ columns, rows }) =>
    rows.map((row) => Object.fromEntries(row.map((value, at) => [columns[at], value])));

  // Vega-Lite fits a single view to its place. Of several it does not: they share it, or stand
  // one below the other where it is narrow.
  function fitted(spec, room) {
    const across = spec.hconcat && room >= NARROW ? "hconcat" : "vconcat";
    const parts = spec.hconcat || spec.vconcat;
    if (parts) {
      const { hconcat, vconcat, ...rest } = spec;
      const share = across === "hconcat" ? room / parts.length : room;
      return { ...rest, [across]: parts.map((part) => fitted(part, share)) };
    }
    if (spec.spec) return { ...spec, spec: fitted(spec.spec, room / (spec.columns || 1)) };
    return { ...spec, width: Math.max(60, Math.round(room - AXES)) };
  }

  // On paper it is light, and as wide as a sheet: the window's width says nothing there.
  function whole(id, look, room) {
    const { spec, configs, data: names } = data.charts[id];
    const datasets = {};
    for (const [name, number] of Object.entries(names)) datasets[name] = records(data.tables[number]);
    const isSingle = spec.width === "container";
    const width = look === "print" ? SHEET : room;
    const own = isSingle ? { ...spec, ...(look === "print" && { width }) } : fitted(spec, width);
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
        const made = await vegaEmbed(place, whole(figure.id, look, place.clientWidth), {
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
        // To who cannot see it, it is one picture with a caption and a table, not hundreds of marks.
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

  // One after the other, with a breath between them: whoever scrolls, prints or takes a picture of
  // the page finds all of them, and the page answers meanwhile.
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
      const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value; // no spreadsheet may run it
      return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    };
    const said = source ? (row, at) => [...row, at ? source : "source"] : (row) => row;
    return [columns, ...rows].map(said).map((row) => row.map(cell).join(",") + "\n").join("");
  }

  function save(url, name) {
    const link = document.createElement("a");
    link.href = url;
    link.download = name;
    link.click();
    said.textContent = `${name} is being saved`;
  }
  const saveText = (text, name, type) => save(URL.createObjectURL(new Blob([text], { type })), name);

  async function saveFigure(id, form) {
    const { file } = data.charts[id];
    if (form === "json") {
      return saveText(JSON.stringify(whole(id, "print"), null, 1), `${file}.vl.json`, "application/json");
    }
    const figure = document.getElementById(id);
    await draw(figure);
    return save(await views.get(figure).view.toImageURL(form, 2), `${file}.${form}`);
  }

  async function copy(button) {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      said.textContent = "Copied";
      button.firstChild.textContent = "Copied";
      setTimeout(() => (button.firstChild.textContent = "Copy"), 2000);
    } catch {
      getSelection().selectAllChildren(code); // then one key does it
      said.textContent = "The command is selected: copy it";
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
