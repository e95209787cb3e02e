(() => {
  "use strict";
  const devices = document.getElementById("devices");
  if (!devices) {
    if (document.querySelector("[data-waits]")) setTimeout(() => location.reload(), 1000);
    return;
  }

  const [WIDTH, HEIGHT] = [300, 100];
  const secondsByDevice = new Map(); // of each device its seconds, by their number
  let lastS = null;

  function curve(figure, seconds, limitW, toS, mostS) {
    const minutes = Math.ceil((toS - Math.min(toS, ...seconds.map(([atS]) => atS)) + 1) / 60);
    const windowS = Math.min(60 * minutes, mostS);
    const top = Math.max(limitW || 0, 1, ...seconds.map(([, , , high]) => high)) * 1.05;
    const x = (atS) => (WIDTH * (atS - toS + windowS)) / windowS;
    const y = (watts) => HEIGHT * (1 - watts / top);
    const parts = []; // no line where there is no reading
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

  function show(state) {
    const figures = [...document.querySelectorAll(".curve")];
    if (state.devices.map(({ key }) => key).join() !== figures.map((each) => each.dataset.device).join()) {
      return location.reload(); // a device has appeared
    }
    for (const [id, text] of Object.entries(state.text)) {
      const element = document.getElementById(id);
      if (element && element.textContent !== text) element.textContent = text;
      for (const copy of document.querySelectorAll(`[data-copy-of="${id}"]`)) copy.textContent = text;
    }
    lastS = state.last_s;
    state.devices.forEach(({ key, limit_w, seconds }, number) => {
      const own = secondsByDevice.get(key) || new Map();
      secondsByDevice.set(key, own);
      for (const second of seconds) own.set(second[0], second);
      for (const atS of own.keys()) if (atS <= lastS - state.window_s) own.delete(atS);
      const ordered = [...own.values()].sort((a, b) => a[0] - b[0]);
      curve(figures[number], ordered, limit_w, lastS, state.window_s);
    });
    document.getElementById("ended").hidden = state.is_live;
    return state.is_live;
  }

  async function poll() {
    let again = true;
    try {
      const after = lastS === null ? "" : `?after=${lastS - 5}`; // the last seconds may have changed
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
