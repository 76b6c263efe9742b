// Draws charts and the tables of workloads from the embedded JSON, and makes tabs, filters, sorting, the theme and the download work.
// Text from reports only ever becomes a text node or an attribute's value.
"use strict";
(() => {
  const parse = (id) => JSON.parse(document.getElementById(id).textContent);
  const legend = parse("legend");
  const metricOf = new Map(legend.metrics.map((metric) => [metric.key, metric]));
  const modeName = new Map(legend.modes);
  const SVG = "http://www.w3.org/2000/svg";
  const ALL = "";
  // As many builds are shown together at first.
  const FEW_BUILDS = 4;
  // Charts of single workloads, where no group has a mean; more would hide the rest, and the tables have them all.
  const MOST_CHARTS = 24;

  // --- elements ---

  const fillIn = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") node.addEventListener(name, value);
      else node.setAttribute(name, value === true ? "" : String(value));
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  };
  const el = (tag, attributes = {}, ...children) => fillIn(document.createElement(tag), attributes, children);
  const svg = (tag, attributes = {}, ...children) => fillIn(document.createElementNS(SVG, tag), attributes, children);

  // --- numbers: the rules of figures.rs ---

  const known = (value) => typeof value === "number" && Number.isFinite(value);
  const significant = (value) => {
    if (!known(value)) return "–";
    if (value === 0) return "0";
    return value.toFixed(Math.min(12, Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value))))));
  };
  const SCALES = {
    seconds: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]],
    bytes: [[1073741824, "GiB"], [1048576, "MiB"], [1024, "KiB"]],
    count: [[1e9, "G"], [1e6, "M"], [1e3, "k"]],
  };
  const quantity = (kind, value) => {
    if (!known(value)) return "–";
    if (value === 0 && kind === "seconds") return "0 s";
    const scale = SCALES[kind].find(([size]) => Math.abs(value) >= size);
    if (scale) return `${significant(value / scale[0])} ${scale[1]}`;
    if (kind === "seconds") return `${significant(value / 1e-9)} ns`;
    return kind === "bytes" ? `${value} B` : String(value);
  };
  // `1.2 to 1.3 ms`, the unit once where both have the same.
  const span = (low, high) => {
    const [first, unit] = low.split(" ");
    return high.endsWith(` ${unit}`) ? `${first} to ${high}` : `${low} to ${high}`;
  };
  const ratio = (value) => `${significant(value)} ×`;

  // --- scales of charts: fractions of the width ---

  const niceStep = (span) => {
    const power = 10 ** Math.floor(Math.log10(span));
    return [1, 2, 5, 10].map((step) => step * power).find((step) => span / step <= 6);
  };
  // Bars of ratios on a logarithmic scale grow from native's 1, on a linear one from 0.
  const scaleOf = (rows, relative, wanted) => {
    const values = rows.flatMap((row) => [row.value, row.low, row.high]).filter((value) => known(value) && value > 0);
    if (relative) values.push(1);
    const least = Math.min(...values);
    const most = Math.max(...values);
    const logarithmic = relative && least > 0 && (wanted === "log" || (wanted === ALL && most / least > 6));
    if (logarithmic) {
      const low = Math.log(Math.min(least, 0.95)) - 0.03;
      const high = Math.log(Math.max(most, 1.05)) + 0.03;
      const at = (value) => (Math.log(value) - low) / (high - low);
      const all = [];
      for (let power = -3; power <= 5; power++) for (const digit of [1, 2, 5]) all.push(digit * 10 ** power);
      const inside = all.filter((tick) => at(tick) >= 0 && at(tick) <= 1);
      const ticks = inside.length > 9 ? inside.filter((tick) => /^[10.]+$/.test(String(tick))) : inside;
      return { at, ticks, base: 1, logarithmic };
    }
    const top = Math.max(most, Number.MIN_VALUE) * 1.02;
    const step = niceStep(top);
    const ticks = [];
    for (let tick = 0; tick <= top && ticks.length < 12; tick += step) ticks.push(Number(tick.toPrecision(6)));
    return { at: (value) => value / top, ticks, base: 0, logarithmic };
  };
  const percent = (fraction) => `${Math.min(100, Math.max(0, fraction * 100)).toFixed(3)}%`;

  const barSvg = (row, scale, classes, { height = 26, bar = 12, grid = true, one = false } = {}) => {
    const middle = height / 2;
    const node = svg("svg", { height, "aria-hidden": "true", focusable: "false" });
    if (grid) for (const tick of scale.ticks) node.append(svg("line", { class: "grid", x1: percent(scale.at(tick)), x2: percent(scale.at(tick)), y1: 0, y2: height }));
    const from = Math.min(scale.at(scale.base), scale.at(row.value));
    const to = Math.max(scale.at(scale.base), scale.at(row.value));
    node.append(svg("rect", { class: `fill ${classes}`, x: percent(from), width: percent(to - from), y: middle - bar / 2, height: bar }));
    if (one) node.append(svg("line", { class: "one", x1: percent(scale.at(1)), x2: percent(scale.at(1)), y1: 0, y2: height }));
    if (known(row.low) && known(row.high) && row.high > row.low) {
      const [low, high] = [percent(scale.at(row.low)), percent(scale.at(row.high))];
      const cap = bar / 3;
      node.append(
        svg("line", { class: "range whisker", x1: low, x2: high, y1: middle, y2: middle }),
        svg("line", { class: "range", x1: low, x2: low, y1: middle - cap, y2: middle + cap }),
        svg("line", { class: "range", x1: high, x2: high, y1: middle - cap, y2: middle + cap }),
      );
    }
    return node;
  };

  // --- sorting ---

  const sortKey = (cell) => {
    if (!cell || cell.dataset.sort === "") return null;
    if (cell.dataset.sort !== undefined) return Number(cell.dataset.sort);
    return cell.textContent.trim().toLowerCase();
  };
  const compareKeys = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  const sortable = (table) => {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, column) => {
      const first = table.tBodies[0].rows[0];
      if (first && first.cells[column] && first.cells[column].classList.contains("number")) heading.classList.add("number");
      const button = el("button", { type: "button", click: () => {
        const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
        for (const other of headings) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", direction);
        const sign = direction === "ascending" ? 1 : -1;
        const rows = [...table.tBodies[0].rows].map((row) => ({ row, key: sortKey(row.cells[column]) }));
        // What has no figure comes last, whichever the direction.
        rows.sort((a, b) => (a.key === null || b.key === null ? (a.key === null) - (b.key === null) : sign * compareKeys(a.key, b.key)));
        table.tBodies[0].append(...rows.map(({ row }) => row));
      } }, ...heading.childNodes);
      heading.append(button);
    });
  };

  // --- one report ---

  // One sample has no interval; a file's size needs none.
  const alone = (series, metric) => series.samples.length === 1 && metric.key !== "size_bytes";
  const inOrder = (values) => [...new Set(values)];
  const keyOf = (...names) => JSON.stringify(names);

  class Panel {
    constructor(node) {
      this.node = node;
      this.report = parse(node.dataset.json);
      this.drawn = node.querySelector(".drawn");
      this.place = node.id.replace("report-", "");
      if (!this.report) return;
      const { report } = this;
      this.subjects = new Map(report.subjects.map((subject) => [subject.name, subject]));
      this.cells = new Map(report.cells.map((cell) => [keyOf(cell.workload, cell.build, cell.subject), cell]));
      // Native programs are builds of their own, which no guest runs: their figures stand beside each of the guests' builds.
      const isNative = (name) => Boolean(this.subjects.get(name)) && this.subjects.get(name).mode === "native";
      this.nativeCells = new Map();
      for (const cell of report.cells) if (isNative(cell.subject) && !cell.failure) this.nativeCells.set(keyOf(cell.workload, cell.subject), cell);
      const ofGuests = new Set(report.cells.filter((cell) => !isNative(cell.subject)).map((cell) => keyOf(cell.workload, cell.build)));
      this.workloads = report.workloads.filter((workload) => !ofGuests.size || ofGuests.has(keyOf(workload.name, workload.build)));
      this.groups = inOrder(this.workloads.map((workload) => workload.group));
      this.builds = inOrder(this.workloads.map((workload) => workload.build));
      const present = new Set(report.cells.flatMap((cell) => Object.keys(cell.metrics)));
      this.metrics = legend.metrics.filter((metric) => present.has(metric.key));
      this.modes = legend.modes.map(([mode]) => mode).filter((mode) => report.subjects.some((subject) => subject.mode === mode));
      this.native = report.subjects.find((subject) => subject.name === "native") || report.subjects.find((subject) => subject.mode === "native");
      this.verdicts = new Map(report.summary.comparisons.map((one) => [keyOf(one.group, one.build, one.workload, one.metric, one.subject), one]));
      this.baseline = report.summary.comparisons.length ? report.summary.comparisons[0].baseline : "mote";
      this.state = {
        group: this.groups.length ? this.groups[0] : ALL,
        build: this.builds.length > FEW_BUILDS && this.builds.includes("stock") ? "stock" : ALL,
        metric: this.metrics.length ? this.metrics[0].key : ALL,
        scale: ALL,
        modes: new Set(this.modes),
        text: "",
      };
      this.build();
      this.draw();
    }

    build() {
      const select = (field, label, options) => {
        const node = el("select", { name: field, change: () => { this.state[field] = node.value; this.settle(field); this.draw(); } },
          ...options.map(([value, text]) => el("option", { value, selected: this.state[field] === value }, text)));
        return el("label", { class: "field" }, label, node);
      };
      const search = el("input", { type: "search", name: "text", size: 14, autocomplete: "off", input: () => { this.state.text = search.value.trim().toLowerCase(); this.draw(); } });
      const modes = el("fieldset", {}, el("legend", {}, "How code is run"),
        ...this.modes.map((mode) => {
          const box = el("input", { type: "checkbox", name: `mode-${mode}`, checked: true, change: () => {
            if (box.checked) this.state.modes.add(mode); else this.state.modes.delete(mode);
            this.draw();
          } });
          return el("label", {}, box, el("i", { class: `mode ${mode}`, "aria-hidden": "true" }), modeName.get(mode));
        }));
      this.filters = el("form", { class: "filters", "aria-label": "Filters", submit: (event) => event.preventDefault() },
        select("group", "Group", [...this.groups.map((name) => [name, name]), [ALL, "All groups"]]),
        select("build", "Build", [...this.builds.map((name) => [name, name]), [ALL, "All builds"]]),
        select("metric", "Metric", [...this.metrics.map((metric) => [metric.key, metric.name]), [ALL, "All metrics"]]),
        select("scale", "Scale", [[ALL, "Automatic"], ["linear", "Linear"], ["log", "Logarithmic"]]),
        el("label", { class: "field" }, "Workload", search),
        modes);
      this.charts = el("div", { class: "charts" });
      this.slower = el("div");
      this.list = el("div");
      const all = el("button", { type: "button", click: () => {
        const boxes = [...this.list.querySelectorAll("details.workload")];
        const open = boxes.some((box) => !box.open);
        for (const box of boxes) box.open = open;
      } }, "Open or close all");
      this.drawn.append(
        this.filters,
        el("section", { id: `report-${this.place}-charts`, class: "chartsection" }, el("h3", {}, "Charts"), this.charts),
        this.slower,
        el("section", { id: `report-${this.place}-workloads` }, el("div", { class: "listhead" }, el("h3", {}, "Workloads"), all), this.list));
    }

    // What was chosen last stays; of the other filters, those give way that would leave nothing.
    settle(changed) {
      const some = () => {
        const { groups, builds, metrics } = this.chosen();
        return this.workloads.some((workload) => groups.includes(workload.group) && builds.includes(workload.build)
          && this.report.subjects.some((subject) => metrics.some((metric) => this.series(workload.name, workload.build, subject.name, metric.key))));
      };
      for (const field of ["build", "metric", "group"].filter((one) => one !== changed)) {
        if (some()) break;
        const offered = [...this.filters.elements[field].options].map((option) => option.value).filter((value) => value !== ALL);
        const before = this.state[field];
        const fits = offered.find((value) => { this.state[field] = value; return some(); });
        this.state[field] = fits === undefined ? before : fits;
        if (fits === undefined && field === "build") this.state.build = ALL;
      }
      for (const field of ["build", "metric", "group"]) this.filters.elements[field].value = this.state[field];
    }

    allows(name) {
      const subject = this.subjects.get(name);
      return Boolean(subject) && this.state.modes.has(subject.mode);
    }

    chosen() {
      const { group, build, metric } = this.state;
      return {
        groups: this.groups.filter((name) => group === ALL || group === name),
        builds: this.builds.filter((name) => build === ALL || build === name),
        metrics: this.metrics.filter((one) => metric === ALL || metric === one.key),
      };
    }

    draw() {
      const open = new Set([...this.list.querySelectorAll("details.workload[open]")].map((box) => box.dataset.key));
      this.drawCharts();
      this.drawSlower();
      this.drawList(open);
    }

    drawCharts() {
      const { groups, builds, metrics } = this.chosen();
      const charts = [];
      for (const group of groups) for (const build of builds) for (const metric of metrics) {
        const means = this.report.summary.means.filter((mean) => mean.group === group && mean.build === build && mean.metric === metric.key);
        if (means.length) {
          const rows = means.filter((mean) => this.allows(mean.subject))
            .map((mean) => ({ subject: mean.subject, value: mean.ratio, low: mean.low, high: mean.high, workloads: mean.workloads }));
          // Who did not finish all that the others finished has a mean over other workloads; native's is over the common ones.
          const common = (means.find((mean) => mean.subject === "native") || means[0]).workloads;
          if (rows.length) charts.push(this.chart({ group, build, metric, workload: null, rows, over: common }));
          continue;
        }
        for (const workload of this.workloads.filter((one) => one.group === group && one.build === build && this.matches(one.name))) {
          const rows = this.report.subjects.filter((subject) => this.allows(subject.name)).flatMap((subject) => {
            const series = this.series(workload.name, build, subject.name, metric.key);
            return series ? [{ subject: subject.name, value: series.median, low: series.low, high: series.high, workloads: 1, alone: alone(series, metric) }] : [];
          });
          if (rows.length) charts.push(this.chart({ group, build, metric, workload: workload.name, rows }));
        }
      }
      const shown = charts.slice(0, MOST_CHARTS);
      if (charts.length > shown.length) shown.push(el("p", { class: "note" }, `${charts.length - shown.length} more charts: narrow the filters to see them, or read the tables.`));
      if (!charts.length) shown.push(el("p", { class: "note empty" }, "No figure passes these filters."));
      this.charts.replaceChildren(...shown);
    }

    matches(workload) {
      return workload.toLowerCase().includes(this.state.text);
    }

    cellOf(workload, build, subject) {
      return this.cells.get(keyOf(workload, build, subject)) || this.nativeCells.get(keyOf(workload, subject));
    }

    series(workload, build, subject, metric) {
      const cell = this.cellOf(workload, build, subject);
      const series = cell && cell.metrics[metric];
      return series && known(series.median) ? series : null;
    }

    chart({ group, build, metric, workload, rows, over = 1 }) {
      const relative = workload === null;
      const write = (value) => (relative ? ratio(value) : quantity(metric.kind, value));
      rows.sort((a, b) => a.value - b.value);
      const scale = scaleOf(rows, relative, this.state.scale);
      const title = `${metric.name}${relative ? ", relative to native" : ""}`;
      const where = [workload || group, `build ${build}`].join(" · ");
      const what = relative
        ? `${over === 1 ? "One workload" : `Geometric mean over ${over} workloads`}; bars ${scale.logarithmic ? "from native, on a logarithmic scale" : "from 0"}; less is better`
        : "Median; less is better";
      const axis = svg("svg", { height: 18, "aria-hidden": "true", focusable: "false" },
        ...scale.ticks.map((tick) => svg("text", { x: percent(scale.at(tick)), y: 13, "text-anchor": "middle" }, relative ? `${tick}×` : quantity(metric.kind, tick).replace(/\.?0+ /, " "))));
      const verdictHeading = relative && rows.some((row) => this.verdict(group, build, null, metric.key, row.subject)) ? `against ${this.baseline}` : "";
      const body = rows.map((row) => {
        const subject = this.subjects.get(row.subject);
        const ours = row.subject === this.baseline;
        const less = row.workloads !== over ? ` (over ${row.workloads})` : "";
        const verdict = this.verdict(group, build, workload, metric.key, row.subject);
        return el("div", { role: "row", "data-subject": row.subject, "data-value": row.value, "data-low": row.low, "data-high": row.high },
          el("div", { role: "rowheader", class: ours ? "name ours" : "name" }, el("i", { class: `mode ${subject.mode}`, title: modeName.get(subject.mode) }), row.subject + less),
          el("div", { role: "cell", class: "bar" }, barSvg(row, scale, `${subject.mode} ${ours ? "ours" : "plain"}`, { one: relative })),
          el("div", { role: "cell", class: "value" }, write(row.value)),
          el("div", { role: "cell", class: "interval" }, relative ? `${significant(row.low)} to ${significant(row.high)}` : row.alone ? "one sample" : span(write(row.low), write(row.high))),
          this.verdictCell(verdict));
      });
      return el("figure", { class: "chart", tabindex: "-1", "data-chart": keyOf(group, build, metric.key), "data-workload": workload, "data-scale": scale.logarithmic ? "log" : "linear" },
        el("figcaption", {}, el("h4", {}, title), el("div", { class: "note" }, `${where} · ${what}`)),
        el("div", { class: "bars", role: "table", "aria-label": `${title}, ${where}` },
          el("div", { role: "rowgroup" },
            el("div", { role: "row", class: "headings" },
              el("div", { role: "columnheader" }, "Subject"),
              el("div", { role: "columnheader", class: "bar", "aria-label": "Bar" }, axis),
              el("div", { role: "columnheader", class: "value" }, relative ? "÷ native" : "median"),
              el("div", { role: "columnheader" }, "95% interval"),
              el("div", { role: "columnheader" }, verdictHeading))),
          el("div", { role: "rowgroup" }, ...body)),
        this.without(group, build, metric, workload, rows));
    }

    verdict(group, build, workload, metric, subject) {
      return this.verdicts.get(keyOf(group, build, workload, metric, subject));
    }

    verdictCell(verdict) {
      if (!verdict) return el("div", { role: "cell", class: "verdict" });
      const title = `${ratio(verdict.ratio)} ${verdict.baseline} (${significant(verdict.low)} to ${significant(verdict.high)})`;
      return el("div", { role: "cell", class: `verdict ${verdict.verdict}`, title }, `${verdict.verdict}, ${significant(verdict.ratio)}`);
    }

    // Who has no figure here, and why.
    without(group, build, metric, workload, rows) {
      const have = new Set(rows.map((row) => row.subject));
      const reasons = [];
      for (const subject of this.report.subjects) {
        if (have.has(subject.name) || !this.allows(subject.name)) continue;
        if (subject.missing) {
          reasons.push([subject.name, subject.missing]);
          continue;
        }
        const failures = this.workloads
          .filter((one) => one.group === group && one.build === build && (workload === null || one.name === workload))
          .map((one) => this.cellOf(one.name, build, subject.name))
          .filter((cell) => cell && cell.failure)
          .map((cell) => `${legend.failures[cell.failure.kind] || cell.failure.kind}: ${cell.failure.reason}`);
        if (failures.length) reasons.push([subject.name, failures[0] + (failures.length > 1 ? ` (and ${failures.length - 1} more)` : "")]);
      }
      if (!reasons.length) return null;
      return el("details", { class: "without" }, el("summary", {}, `Without a figure here: ${reasons.length}`),
        el("ul", {}, ...reasons.map(([name, reason]) => el("li", {}, el("b", {}, name), ` ${reason}`))));
    }

    // The single workloads on which somebody beats the baseline: a mean must not hide them.
    drawSlower() {
      const { groups, builds, metrics } = this.chosen();
      const better = this.report.summary.comparisons
        .filter((one) => one.workload !== null && one.verdict === "faster" && this.allows(one.subject) && this.subjects.get(one.subject).mode !== "native")
        .filter((one) => groups.includes(one.group) && builds.includes(one.build) && metrics.some((metric) => metric.key === one.metric) && this.matches(one.workload))
        .sort((a, b) => a.ratio - b.ratio);
      if (!better.length) {
        this.slower.replaceChildren();
        return;
      }
      const table = el("table", { class: "sortable" },
        el("thead", {}, el("tr", {}, ...["Workload", "Build", "Metric", "Subject"].map((text) => el("th", { scope: "col" }, text)), ...[`÷ ${this.baseline}`, "95% interval"].map((text) => el("th", { scope: "col", class: "number" }, text)))),
        el("tbody", {}, ...better.map((one) => el("tr", {},
          el("th", { scope: "row" }, one.workload), el("td", {}, one.build), el("td", {}, metricOf.get(one.metric).name), el("td", {}, one.subject),
          el("td", { class: "number", "data-sort": one.ratio }, ratio(one.ratio)),
          el("td", { class: "number interval", "data-sort": one.low }, `${significant(one.low)} to ${significant(one.high)}`)))));
      sortable(table);
      this.slower.replaceChildren(el("section", { class: "slower" },
        el("h3", {}, `Where another runtime is ahead of ${this.baseline}`),
        el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Where another runtime is ahead of ${this.baseline}` }, table)));
    }

    drawList(open) {
      const { groups, builds, metrics } = this.chosen();
      const columns = builds.flatMap((build) => metrics.map((metric) => ({ build, metric })));
      const boxes = [];
      const seen = new Set();
      for (const workload of this.workloads) {
        const key = keyOf(workload.group, workload.name);
        if (seen.has(key) || !groups.includes(workload.group) || !this.matches(workload.name)) continue;
        seen.add(key);
        const its = columns.filter(({ build }) => this.workloads.some((one) => one.name === workload.name && one.group === workload.group && one.build === build));
        if (its.length) boxes.push(this.workload(workload, key, its, open));
      }
      // One is open to begin with, so that nobody has to guess what is inside.
      if (!open.size && boxes.length && !this.opened) boxes[0].open = this.opened = true;
      this.list.replaceChildren(...(boxes.length ? boxes : [el("p", { class: "note" }, "No workload passes these filters.")]));
    }

    workload(workload, key, columns, open) {
      const { build, metric } = columns[0];
      const figures = this.report.subjects.filter((subject) => this.allows(subject.name) && subject.mode !== "native")
        .flatMap((subject) => {
          const series = this.series(workload.name, build, subject.name, metric.key);
          return series ? [[subject.name, series.median]] : [];
        }).sort((a, b) => a[1] - b[1]);
      const failed = columns.filter((column) => column.metric === metric)
        .flatMap((column) => this.report.subjects.filter((subject) => this.allows(subject.name) && !subject.missing && (this.cellOf(workload.name, column.build, subject.name) || {}).failure)).length;
      const brief = [
        figures.length ? `least ${metric.name.replace(/^[A-Z](?=[a-z])/, (letter) => letter.toLowerCase())}, ${build}: ${figures[0][0]} ${quantity(metric.kind, figures[0][1])}` : null,
        failed ? `${failed} without a figure` : null,
      ].filter(Boolean).join(" · ");
      const box = el("details", { class: "workload", "data-key": key, open: open.has(key), toggle: () => this.fill(box, workload, columns) },
        el("summary", {}, el("h4", {}, workload.name), el("span", { class: "note" }, brief)));
      return box;
    }

    fill(box, workload, columns) {
      if (!box.open || box.querySelector("table")) return;
      const scales = new Map(columns.map(({ metric }) => [metric, this.tableScale(workload.name, columns.filter((column) => column.metric === metric))]));
      const rows = this.report.subjects.filter((subject) => this.allows(subject.name))
        .filter((subject) => columns.some(({ build }) => this.cellOf(workload.name, build, subject.name)))
        .map((subject) => el("tr", { "data-subject": subject.name },
          el("th", { scope: "row" }, el("i", { class: `mode ${subject.mode}`, title: modeName.get(subject.mode) }), subject.name),
          ...columns.map((column) => this.cell(workload.name, column, subject, scales.get(column.metric)))));
      const many = new Set(columns.map(({ metric }) => metric)).size > 1;
      const table = el("table", { class: "sortable figures" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Subject"),
          ...columns.map(({ build, metric }) => el("th", { scope: "col", class: "number", "data-build": build, "data-metric": metric.key }, many ? `${build}, ${metric.name}` : build)))),
        el("tbody", {}, ...rows));
      sortable(table);
      const label = `${workload.name}, ${[...new Set(columns.map(({ metric }) => metric.name))].join(", ")}`;
      box.append(el("p", { class: "note" }, many ? "Medians with 95% intervals." : `${columns[0].metric.name}: ${columns[0].metric.meaning}. Medians with 95% intervals.`),
        el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, table));
    }

    // One for all builds, so that their bars can be compared.
    tableScale(workload, columns) {
      const rows = columns.flatMap(({ build, metric }) => this.report.subjects.filter((subject) => this.allows(subject.name))
        .flatMap((subject) => this.series(workload, build, subject.name, metric.key) || []))
        .map((series) => ({ value: series.median, low: series.low, high: series.high }));
      return rows.length ? scaleOf(rows, false, "linear") : null;
    }

    cell(workload, { build, metric }, subject, scale) {
      const cell = this.cellOf(workload, build, subject.name);
      if (cell && cell.failure) {
        return el("td", { class: "failure", "data-sort": "" },
          el("span", { class: "failed" }, legend.failures[cell.failure.kind] || cell.failure.kind), el("span", { class: "small" }, cell.failure.reason));
      }
      const series = this.series(workload, build, subject.name, metric.key);
      if (!series) return el("td", { class: "number none", "data-sort": "" }, "–");
      const native = this.native && this.series(workload, build, this.native.name, metric.key);
      const interval = alone(series, metric) ? "one sample" : span(quantity(metric.kind, series.low), quantity(metric.kind, series.high));
      const outliers = series.outliers.length ? `, ${series.outliers.length} outlier${series.outliers.length > 1 ? "s" : ""}` : "";
      return el("td", { class: "number", "data-sort": series.median, title: `${series.samples.length} samples: ${series.samples.map((sample) => quantity(metric.kind, sample)).join(", ")}` },
        native && native.median > 0 ? el("span", { class: "small ratio" }, `${ratio(series.median / native.median)} native`) : null,
        el("span", { class: "value" }, quantity(metric.kind, series.median)),
        el("span", { class: "small" }, interval + outliers),
        barSvg({ value: series.median, low: series.low, high: series.high }, scale, `${subject.mode} ${subject.name === this.baseline ? "ours" : "plain"}`, { height: 10, bar: 6, grid: false }));
    }

    // Shows the chart that a sentence rests on.
    show(chart) {
      const [group, build, metric] = JSON.parse(chart);
      Object.assign(this.state, { group, build, metric, text: "", modes: new Set(this.modes) });
      for (const field of ["group", "build", "metric"]) this.filters.elements[field].value = this.state[field];
      this.filters.elements.text.value = "";
      for (const mode of this.modes) this.filters.elements[`mode-${mode}`].checked = true;
      this.draw();
      const found = [...this.charts.querySelectorAll("figure.chart")].find((figure) => figure.dataset.chart === keyOf(group, build, metric));
      if (found) {
        found.focus({ preventScroll: true });
        found.scrollIntoView({ block: "start" });
      }
    }
  }

  // --- tabs ---

  const tabs = [...document.querySelectorAll('[role="tab"]')];
  const panels = new Map();
  const panelOf = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
  const open = (tab) => {
    for (const other of tabs) {
      other.setAttribute("aria-selected", String(other === tab));
      other.tabIndex = other === tab ? 0 : -1;
      panelOf(other).hidden = other !== tab;
    }
    const panel = panelOf(tab);
    if (panel.dataset.json && !panels.has(panel.id)) panels.set(panel.id, new Panel(panel));
    return panels.get(panel.id);
  };
  // The address of what is shown, to be kept or passed on.
  const choose = (tab) => {
    try { history.replaceState(null, "", `#${panelOf(tab).id}`); } catch { /* A convenience. */ }
    return open(tab);
  };
  for (const tab of tabs) {
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      const to = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : step ? (tabs.indexOf(tab) + step + tabs.length) % tabs.length : null;
      if (to === null) return;
      event.preventDefault();
      tabs[to].focus();
      choose(tabs[to]);
    });
  }
  for (const link of document.querySelectorAll("a.figure")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const panel = choose(document.getElementById(`tab-${link.dataset.report}`));
      if (panel) panel.show(link.dataset.chart);
    });
  }

  // --- theme: automatic, light, dark ---

  const THEMES = ["automatic", "light", "dark"];
  const toggle = document.getElementById("theme");
  const setTheme = (theme) => {
    if (theme === "automatic") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    toggle.textContent = `Theme: ${theme}`;
    toggle.dataset.theme = theme;
    try { localStorage.setItem("mote-lab-theme", theme); } catch { /* A file may have no storage. */ }
  };
  let remembered = null;
  try { remembered = localStorage.getItem("mote-lab-theme"); } catch { /* As above. */ }
  setTheme(THEMES.includes(remembered) ? remembered : "automatic");
  toggle.addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(toggle.dataset.theme) + 1) % THEMES.length]));

  // --- the JSON as it was embedded: parsing and writing it again would round large integers ---

  for (const button of document.querySelectorAll("button.download")) {
    button.addEventListener("click", () => {
      const url = URL.createObjectURL(new Blob([document.getElementById(button.dataset.json).textContent], { type: "application/json" }));
      el("a", { href: url, download: button.dataset.file }).click();
      setTimeout(() => URL.revokeObjectURL(url), 10000);
    });
  }

  for (const table of document.querySelectorAll("table.sortable")) sortable(table);

  // A link to a panel or to a part of one opens its tab.
  const follow = () => {
    const id = location.hash.slice(1);
    const panel = id && document.getElementById(id.replace(/^(report-\d+)-\w+$/, "$1"));
    const tab = panel && tabs.find((one) => panelOf(one) === panel);
    if (!tab) return false;
    open(tab);
    const part = document.getElementById(id);
    if (part && part !== panel) {
      const closed = part.querySelector("details:not([open])");
      if (closed && id.endsWith("-modules")) closed.open = true;
      part.scrollIntoView({ block: "start" });
    }
    return true;
  };
  addEventListener("hashchange", follow);
  if (!follow() && tabs.length) open(tabs[0]);
})();
