"use strict";
const $ = (id) => document.getElementById(id);
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c6bb1", "#a6761d"];
let model = null, shown = [], picture = null, asking = 0;

// Small tools. Whatever comes from the server is set as text, never as markup.
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") Object.assign(element.style, value);
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, "");
    else if (value !== false && value != null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child != null).map((child) => (typeof child === "number" ? String(child) : child)));
  return element;
}
const percent = (value) => (value >= 0.9995 && value < 1 ? ">99.9 %" : value > 0 && value < 0.0005 ? "<0.1 %" : `${(100 * value).toFixed(1)} %`);
const figure = (value) => (Array.isArray(value) ? value.map(figure).join(", ") : Number(value.toPrecision(4)).toString());
const colour = (task) => COLOURS[Math.max(0, model.tasks.findIndex((entry) => entry.name === task)) % COLOURS.length];
const swatch = (background) => make("span", { class: "swatch", style: { background } });

async function ask(path, options = {}) {
  const token = sessionStorage.getItem("token");
  const headers = { ...(options.headers || {}), ...(token ? { Authorization: `Bearer ${token}` } : {}) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch {
    throw new Error("the server cannot be reached");
  }
  const content = await response.json();
  if (response.status === 401) {
    $("token").hidden = false;
    $("main").hidden = true;
  }
  if (!response.ok) throw new Error(content.error);
  return content;
}

// The model.
async function load() {
  model = await ask("/model");
  $("token").hidden = true;
  $("main").hidden = false;
  document.title = `${model.name} · metareplay`;
  $("name").textContent = model.name;
  const count = model.tasks.length;
  const kind = model.problem === "regression" ? "Predicts numbers" : `Tells ${model.classes.length} classes apart`;
  $("lead").textContent = `${kind}; learned ${count === 1 ? "one task" : `${count} tasks one after another`}. ${model.method}, ${model.network}.`;
  const task = $("task").value;
  $("task").replaceChildren(make("option", { value: "" }, "inferred from the input"), ...model.tasks.map((entry) => make("option", { value: entry.name }, entry.name)));
  $("task").value = model.tasks.some((entry) => entry.name === task) ? task : "";
  showTasks();
  showTabs();
  showFields();
  await Promise.all([showAudit(), showJob()]);
}

function showTasks() {
  $("tasks").replaceChildren(...model.tasks.map((task) => {
    const classes = task.classes.map((label) => make("span", { class: "chip" }, String(label)));
    const size = task.statistics_bytes == null ? "–" : `${Math.round(task.statistics_bytes / 1024)} KiB`;
    return make("tr", {}, make("th", { scope: "row" }, swatch(colour(task.name)), `\u00a0${task.name}`),
      make("td", {}, classes.length ? make("div", { class: "chips" }, ...classes) : "numbers"), make("td", { class: "number" }, size));
  }));
}

async function showAudit() {
  const audit = await ask("/audit");
  $("audit-note").textContent = audit.note;
  $("audit").replaceChildren(make("ul", { class: "bars" }, ...audit.tasks.map((task) =>
    bar(task.task, task.change == null ? "–" : percent(task.change), task.change || 0, colour(task.task), false))));
}

// Ways to ask.
function ways() {
  const image = model.image, drawable = image && image.mode === "L" && Math.max(image.height, image.width) <= 64;
  const rows = model.columns || model.input_shape.length === 1;
  return [drawable && ["draw", "Draw"], rows && ["row", "Type a row"], ["file", "Drop a file"]].filter(Boolean);
}

function showTabs() {
  const known = ways(), selected = known.some(([name]) => name === $("tabs").dataset.selected) ? $("tabs").dataset.selected : known[0][0];
  $("tabs").replaceChildren(...known.map(([name, title]) => make("button", { type: "button", role: "tab", "data-name": name, "aria-controls": `pane-${name}`, onclick: () => select(name) }, title)));
  select(selected);
  const image = model.image;
  $("file").accept = image ? ".png,.jpg,.jpeg,.csv" : ".csv,.tsv";
  $("drop-title").textContent = image ? "Drop images here" : "Drop a CSV file here";
  $("drop-note").textContent = !image ? "or choose one; a header with the names of the columns, one line per input"
    : image.resize ? "PNG or JPEG, or choose files" : `PNG or JPEG of ${image.width} × ${image.height} pixels, or choose files`;
}

function select(name) {
  $("tabs").dataset.selected = name;
  for (const button of $("tabs").children) button.setAttribute("aria-selected", String(button.dataset.name === name));
  for (const pane of ["draw", "row", "file"]) $(`pane-${pane}`).hidden = pane !== name;
}

function showFields() {
  const columns = model.columns || (model.input_shape.length === 1 && model.input_shape[0] <= 24
    ? Array.from({ length: model.input_shape[0] }, (_, index) => ({ name: `input ${index + 1}`, typical: model.typical && model.typical[index] })) : null);
  const old = new Map([...$("fields").querySelectorAll("[data-name]")].map((field) => [field.dataset.name, field.value]));
  $("row-note").hidden = !(columns || []).some((column) => column.typical != null);
  if (!columns) {
    $("fields").replaceChildren(make("label", { class: "whole" }, `${model.input_shape[0]} numbers, separated by commas`, make("textarea", { rows: 4, "data-name": "" })));
    return;
  }
  $("fields").replaceChildren(...columns.map((column) => {
    const facts = { "data-name": column.name, required: !model.gaps };
    const field = column.values ? make("select", facts, ...column.values.map((value) => make("option", {}, value)))
      : make("input", { ...facts, type: column.date ? "date" : "number", step: "any", inputmode: column.date ? null : "decimal", value: column.typical });
    if (old.has(column.name)) field.value = old.get(column.name);
    return make("label", {}, column.name, field);
  }));
}

function typedRow() {
  const fields = [...$("fields").querySelectorAll("[data-name]")];
  if (fields.length === 1 && !fields[0].dataset.name) return fields[0].value.split(/[\s,;]+/).filter(Boolean).map(Number);
  const values = fields.map((field) => (field.value === "" ? null : field.type === "number" ? Number(field.value) : field.value));
  return model.columns ? Object.fromEntries(fields.map((field, index) => [field.dataset.name, values[index]])) : values;
}

async function predict(body, type, image = null) {
  const number = ++asking, task = $("task").value;
  try {
    const answer = await ask(`/predict${task ? `?task=${encodeURIComponent(task)}` : ""}`, { method: "POST", body, headers: type ? { "Content-Type": type } : {} });
    if (number !== asking) return; // a later question was asked meanwhile
    picture = image;
    showAnswer(answer);
  } catch (problem) {
    if (number === asking) showError(problem.message);
  }
}
const predictRow = () => predict(JSON.stringify({ rows: [typedRow()] }), "application/json");

async function predictFiles(files) {
  if (!files.length) return;
  select("file");
  const images = [...files].every((file) => /\.(png|jpe?g)$/i.test(file.name));
  if (!images && files.length > 1) return showError("drop one CSV file, or images only");
  if (!images && !/\.(csv|tsv|txt)$/i.test(files[0].name)) return showError(`${files[0].name} is neither CSV nor a PNG or JPEG image`);
  if (!images) return predict(await files[0].arrayBuffer(), "text/csv");
  const form = new FormData();
  for (const file of files) form.append("file", file);
  return predict(form, null, (index) => URL.createObjectURL(files[index]));
}

// The answer.
function showError(message) {
  $("error").textContent = message;
  $("error").hidden = false;
  for (const id of ["result", "empty"]) $(id).hidden = true;
  $("rows").replaceChildren();
  $("warnings").replaceChildren();
}

function showAnswer(answer) {
  shown = answer.predictions;
  for (const id of ["error", "empty"]) $(id).hidden = true;
  $("warnings").replaceChildren(...answer.warnings.map((text) => make("p", { class: "warning" }, text)));
  showRow(0);
  $("rows").replaceChildren();
  if (shown.length > 1) $("rows").append(table());
}

function table() {
  const open = (index) => () => {
    showRow(index);
    for (const [row, element] of [...$("rows").querySelectorAll("tbody tr")].entries()) element.setAttribute("aria-selected", String(row === index));
    if ($("answer").getBoundingClientRect().top < 0) $("answer").scrollIntoView({ block: "start" });
  };
  const rows = shown.slice(0, 500).map((row, index) => make("tr", { tabindex: 0, "aria-selected": String(index === 0), onclick: open(index),
    onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(index)(); } } },
  make("td", {}, row.file || index + 1), make("th", { scope: "row" }, headline(row)), make("td", {}, swatch(colour(row.task)), `\u00a0${row.task}`),
  make("td", { class: "number" }, row.probabilities ? percent(Math.max(...Object.values(row.probabilities))) : `± ${figure(row.std)}`),
  make("td", { class: row.known === false ? "number unknown" : "number" }, row.known === false ? "unknown" : "")));
  const names = ["", model.problem === "regression" ? "Value" : "Label", "Task", "Sure", ""];
  const more = shown.length > 500 ? make("p", { class: "note" }, `The first 500 of ${shown.length} rows.`) : null;
  return make("div", { class: "scroll" }, make("table", {}, make("thead", {}, make("tr", {}, ...names.map((name, index) => make("th", { class: index > 2 ? "number" : null }, name)))), make("tbody", {}, ...rows)), more);
}

const headline = (row) => (row.mean === undefined ? (Array.isArray(row.label) ? row.label.join(", ") : String(row.label)) : figure(row.mean));

function bar(what, value, share, background, best) {
  return make("li", { class: best ? "best" : null }, make("span", { class: "what", title: what }, what),
    make("span", { class: "track" }, make("span", { class: "fill", style: { width: `${100 * Math.min(1, share)}%`, background } })), make("span", { class: "value" }, value));
}

function bars(title, probabilities, paint) {
  const sorted = Object.entries(probabilities).sort((a, b) => b[1] - a[1]);
  const most = Math.max(2, Math.min(6, sorted.filter(([, value]) => value >= 0.0005).length)), top = sorted.slice(0, most), rest = sorted.slice(most);
  const items = top.map(([name, value], index) => bar(name, percent(value), value, paint(name), index === 0));
  const left = rest.reduce((sum, [, value]) => sum + value, 0);
  if (rest.length) items.push(bar(`${rest.length} ${rest.length === 1 ? "other" : "others"}`, percent(left), left, "var(--aleatoric)", false));
  return [make("h3", {}, title), make("ul", { class: "bars" }, ...items)];
}

function showRow(index) {
  const row = shown[index], parts = [], owner = (label) => model.tasks.find((task) => task.name === row.task && task.classes.map(String).includes(label)) || model.tasks.find((task) => task.classes.map(String).includes(label));
  const spread = row.std === undefined ? null : make("small", {}, ` ± ${figure(row.std)}`);
  const pills = [make("span", { class: "pill", title: "task" }, swatch(colour(row.task)), row.task)];
  if (row.known != null) pills.push(make("span", { class: `pill ${row.known ? "known" : "unknown"}` }, row.known ? "like what it learned" : "unlike anything it learned"));
  const image = picture && picture(index);
  parts.push(make("div", { class: "verdict" }, image ? make("img", { src: image, alt: "" }) : null,
    make("div", {}, make("div", { class: "label" }, headline(row), spread), make("div", { class: "pills" }, ...pills))));
  if (row.known === false) parts.push(make("p", { class: "note" }, "Do not rely on this answer: no task had inputs like this one."));
  if (typeof row.lower === "number") parts.push(make("p", { class: "note" }, `very likely between ${figure(row.lower)} and ${figure(row.upper)}`));
  if (row.probabilities) parts.push(...bars("How likely each class is", row.probabilities, (label) => colour((owner(label) || row).name || row.task)));
  if (row.task_probabilities && model.tasks.length > 1) parts.push(...bars("Which task it belongs to", row.task_probabilities, colour));
  if (row.total !== undefined) parts.push(...uncertainty(row));
  $("result").replaceChildren(...parts);
  $("result").hidden = false;
}

function uncertainty(row) {
  const classes = (model.tasks.find((task) => task.name === row.task) || { classes: [0, 1] }).classes.length, most = Math.max(Math.log(Math.max(2, classes)), row.total);
  const parts = [["aleatoric", "in the data itself", "var(--aleatoric)"], ["epistemic", "more data would remove", "var(--epistemic)"]];
  return [make("h3", {}, "How uncertain the model is"),
    make("div", { class: "sure", role: "img", "aria-label": `${figure(row.total)} of at most ${figure(most)} nats` }, ...parts.map(([name, , background]) => make("span", { style: { width: `${(100 * row[name]) / most}%`, background } }))),
    make("div", { class: "legend" }, ...parts.map(([name, words, background]) => make("span", {}, swatch(background), `${words}: ${row[name].toFixed(3)}`)), make("span", {}, `of at most ${most.toFixed(2)} nats`))];
}

// Drawing: white on black; what is drawn is cut out, fitted and centred, as handwritten digits usually are.
const canvas = $("canvas"), pen = canvas.getContext("2d", { willReadFrequently: true });
let last = null, later = null;
function place(event) {
  const box = canvas.getBoundingClientRect(), scale = canvas.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}
function stroke(event) {
  if (!last) return;
  const [x, y] = place(event);
  Object.assign(pen, { lineWidth: 22, lineCap: "round", lineJoin: "round", strokeStyle: "#fff" });
  pen.beginPath();
  pen.moveTo(...last);
  pen.lineTo(x, y);
  pen.stroke();
  last = [x, y];
  clearTimeout(later);
  later = setTimeout(predictDrawing, 250);
}
canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); last = place(event); stroke(event); });
canvas.addEventListener("pointermove", stroke);
for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { last = null; });
function wipe() {
  pen.clearRect(0, 0, canvas.width, canvas.height);
  $("seen").getContext("2d").clearRect(0, 0, $("seen").width, $("seen").height);
}
$("clear").addEventListener("click", wipe);

function fitted() {
  const side = canvas.width, pixels = pen.getImageData(0, 0, side, side).data, ink = (x, y) => pixels[4 * (y * side + x) + 3];
  let left = side, right = -1, top = side, bottom = -1;
  for (let y = 0; y < side; y++) for (let x = 0; x < side; x++) if (ink(x, y) > 40) { left = Math.min(left, x); right = Math.max(right, x); top = Math.min(top, y); bottom = Math.max(bottom, y); }
  if (right < 0) return null;
  const { width, height } = model.image, room = Math.min(width, height) <= 16 ? 1 : 20 / 28;
  const scale = Math.min((room * width) / (right - left + 1), (room * height) / (bottom - top + 1));
  const grid = new Float64Array(width * height), offset = [(width - scale * (right - left + 1)) / 2, (height - scale * (bottom - top + 1)) / 2];
  for (let y = top; y <= bottom; y++) for (let x = left; x <= right; x++) {
    const column = Math.min(width - 1, Math.floor(offset[0] + scale * (x - left + 0.5))), line = Math.min(height - 1, Math.floor(offset[1] + scale * (y - top + 0.5)));
    grid[line * width + column] += ink(x, y) * scale * scale; // area under one pixel of the model
  }
  return grid;
}

function predictDrawing() {
  const grid = model && fitted();
  if (!grid) return;
  const small = $("seen"), context = small.getContext("2d");
  Object.assign(small, { width: model.image.width, height: model.image.height });
  const image = context.createImageData(small.width, small.height);
  grid.forEach((value, index) => image.data.set([value, value, value, 255].map(Math.round), 4 * index));
  context.putImageData(image, 0, 0);
  small.toBlob((blob) => predict(blob, "image/png", () => small.toDataURL()), "image/png");
}

// Learning a further task.
function showLearn(job) {
  if (model.read_only) return $("learn").replaceChildren();
  if ($("learn").querySelector("form:focus-within")) return;
  const busy = job && ["waiting", "learning"].includes(job.state);
  const status = !job ? null : make("p", { class: job.state === "failed" ? "error" : "note" }, job.state === "failed" ? job.error
    : job.state === "done" ? `${job.name} was learned in ${Math.round(job.seconds)} seconds.` : `Learning ${job.name} … ${Math.round(job.seconds)} seconds so far; the model goes on answering.`);
  if (!model.columns && !model.learns_images) return $("learn").replaceChildren(...(status ? [status] : []));
  if (busy || !$("learn").querySelector("details")) {
    const images = model.learns_images, column = images ? null : make("label", {}, "Column of the labels", make("input", { name: "label", required: true, value: model.label }));
    const form = make("form", { onsubmit: learn, class: images ? "images" : null }, make("label", {}, "Name", make("input", { name: "name", required: true })), column,
      make("label", {}, images ? "Zip: a folder of images for each class" : "CSV file", make("input", { name: "file", type: "file", accept: images ? ".zip" : ".csv", required: true })), make("button", { class: "primary", disabled: busy }, "Learn it"));
    $("learn").replaceChildren(make("details", {}, make("summary", {}, "Learn another task"), form), make("div", { id: "job" }));
  }
  $("learn").querySelector("button").disabled = busy;
  $("job").replaceChildren(...(status ? [status] : []));
}

async function showJob() {
  showLearn((await ask("/jobs")).jobs[0]);
}

async function learn(event) {
  event.preventDefault();
  const form = new FormData(event.target), query = new URLSearchParams({ name: form.get("name") });
  if (!model.learns_images) query.set("label", form.get("label"));
  try {
    showLearn(await ask(`/tasks?${query}`, { method: "POST", headers: { "Content-Type": model.learns_images ? "application/zip" : "text/csv" }, body: await form.get("file").arrayBuffer() }));
  } catch (problem) {
    $("job").replaceChildren(make("p", { class: "error" }, problem.message));
  }
}

// Life.
async function watch() {
  try {
    const health = await ask("/health");
    $("dot").className = "dot live";
    if (model && health.generation !== model.generation) {
      await load();
      $("notice").textContent = `The model was replaced: it has learned ${model.tasks.length} tasks now.`;
      $("notice").hidden = false;
    } else if (model && !model.read_only) await showJob();
  } catch {
    $("dot").className = "dot lost";
  }
}

$("pane-row").addEventListener("submit", (event) => { event.preventDefault(); predictRow(); });
$("file").addEventListener("change", () => { predictFiles($("file").files); $("file").value = ""; });
$("token").addEventListener("submit", (event) => { event.preventDefault(); sessionStorage.setItem("token", $("token-value").value); load().catch((problem) => showError(problem.message)); });
for (const kind of ["dragenter", "dragover", "dragleave", "drop"]) {
  document.addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragenter" || kind === "dragover");
    if (kind === "drop" && model) { predictFiles(event.dataTransfer.files); }
  });
}
load().then(watch).catch(() => {});
setInterval(watch, 3000);
