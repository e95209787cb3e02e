(() => {
  "use strict";
  const devices = document.getElementById("devices");
  if (!devices) {
    if (document.querySelector("[data-waits]")) setTimeout(() => location.reload(), 1000);
    return;
  }

  const [WIDTH, HEIGHT] = [300, 100];
  const kept = new Map(); // of each device its seconds, by their number
  let lastS = null;

  function curve(figure, seconds, limitW, toS, mostS) {
    const minutes = Math.ceil((toS - Math.min(toS, ...seconds.map(([atS]) => atS)) + 1) / 60);
    const windowS = Math.min(60 * minutes, mostS);
    const top = Math.max(limitW || 0, 1, ...seconds.map(([, , , high]) => high)) * 1.05;
    const x = (atS) => (WIDTH * (atS - toS + windowS)) / windowS;
    const y = (watts) => HEIGHT * (1 - watts / top);
    const parts = []; // a time without a reading is no line
    for (const second of seconds) {
      const part = parts.at(-1);
      if (part && second[0] - part.at(-1)[0] <= 2) part.push(second);
      else parts.push([second]);
    }
    const line = (points) => points.map(([at, watts]) => `${x(at).toFixed(1)},${y(watts).toFixed(1)}`).join("L");
    const side = (part, which) => part.map((second) => [second[0], second[which]]);
    const draw = (name, path) => figure.querySelector(name).setAttribute("d", path);
    draw(".mean", parts.map((part) => `M${line(side(part, 1))}`).join(""));
    draw(".band", parts.map((part) => `M${line(side(part, 3))}L${line(side(part, 2).reverse())}Z`).join(""));
    draw(".limit", limitW ? `M0,${y(limitW).toFixed(1)}H${WIDTH}` : "");
    figure.querySelector(".top").textContent = limitW ? `of ${limitW.toFixed(0)} W` : "";
    figure.querySelector(".since").textContent = `${windowS / 60} min ago`;
  }

  function show(told) {
    const figures = [...document.querySelectorAll(".curve")];
    if (told.devices.map(({ key }) => key).join() !== figures.map((each) => each.dataset.device).join()) {
      return location.reload(); // one that slept has woken up
    }
    for (const [id, text] of Object.entries(told.text)) {
      const place = document.getElementById(id);
      if (place && place.textContent !== text) place.textContent = text;
      for (const copy of document.querySelectorAll(`[data-copy-of="${id}"]`)) copy.textContent = text;
    }
    lastS = told.last_s;
    told.devices.forEach(({ key, limit_w, seconds }, number) => {
      const mine = kept.get(key) || new Map();
      kept.set(key, mine);
      for (const second of seconds) mine.set(second[0], second);
      for (const atS of mine.keys()) if (atS <= lastS - told.window_s) mine.delete(atS);
      const ordered = [...mine.values()].sort((a, b) => a[0] - b[0]);
      curve(figures[number], ordered, limit_w, lastS, told.window_s);
    });
    document.getElementById("ended").hidden = told.is_live;
    return told.is_live;
  }

  async function poll() {
    let again = true;
    try {
      const after = lastS === null ? "" : `?after=${lastS - 5}`; // the last ones may have gained
      const answer = await fetch(devices.dataset.now + after);
      if (!answer.ok) throw new Error(answer.status);
      again = show(await answer.json());
      document.getElementById("lost").hidden = true;
      devices.dataset.polled = String(Number(devices.dataset.polled || 0) + 1);
    } catch {
      document.getElementById("lost").hidden = false;
    }
    if (again !== false) setTimeout(poll, document.hidden ? 10000 : 1000);
  }
  poll();
})();
