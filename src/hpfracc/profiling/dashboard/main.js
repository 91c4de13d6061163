// Puts the page together, and listens.

let profile = null, chart = null, table = null;

function say(text) { put($('message'), text); }

function load(packed) {
  profile = new Profile(packed);
  $('empty').hidden = true;
  $('loaded').hidden = false;
  $('compare').hidden = true;
  put($('file-label'), 'Compare with another');
  fillFacts(profile);
  fillCards(profile);
  fillBreakdown(profile);
  fillBottlenecks(profile);
  fillMemory(profile);
  fillDecisions(profile);
  fillLegend(profile);
  table = new SpanTable(profile);
  chart = new Chart(profile, (at) => put($('selection'), ...describe(profile, at)));
  put($('lane'), ...profile.lanes.map((lane, number) => element('option', { value: number }, lane.label)));
  if (chart.lane) $('lane').value = String(profile.lanes.indexOf(chart.lane));
  chart.select(-1);
}

async function open(file) {
  try {
    const given = JSON.parse(await file.text());
    const packed = packDocument(given);
    say('');
    if (profile === null) {
      load(packed);
      put(document.querySelector('h1'), file.name);
    } else {
      showComparison(profile, new Profile(packed), file.name);
    }
  } catch (error) {
    say(file.name + ' cannot be shown: ' + (error instanceof SyntaxError ? 'it is not valid JSON' : error.message));
  }
}

function listenToFiles() {
  let depth = 0;
  const hasFiles = (event) => event.dataTransfer && [...event.dataTransfer.types].includes('Files');
  addEventListener('dragenter', (event) => { if (hasFiles(event)) { depth++; $('drop').hidden = false; } });
  addEventListener('dragleave', () => { depth = Math.max(0, depth - 1); if (!depth) $('drop').hidden = true; });
  addEventListener('dragover', (event) => event.preventDefault());
  addEventListener('drop', (event) => {
    event.preventDefault();
    depth = 0;
    $('drop').hidden = true;
    if (event.dataTransfer && event.dataTransfer.files.length) open(event.dataTransfer.files[0]);
  });
  $('file').addEventListener('change', (event) => { if (event.target.files.length) open(event.target.files[0]); event.target.value = ''; });
  $('compare-close').addEventListener('click', () => { $('compare').hidden = true; });
}

function timeAt(canvas, event) { return chart.from + (event.offsetX / canvas.clientWidth) * chart.span; }

function spanAt(canvas, event) {
  if (!chart || !chart.lane || event.offsetY < AXIS) return -1;
  const depth = Math.floor((event.offsetY - AXIS) / ROW), time = timeAt(canvas, event);
  return depth < MOST_DEPTH ? chart.lane.at(depth, time) : -1;
}

function listenToFlame() {
  const canvas = $('flame-canvas'), fingers = new Map();
  let dragged = null, pinch = 0;
  canvas.addEventListener('wheel', (event) => {
    if (!chart) return;
    if (event.ctrlKey || event.metaKey) { event.preventDefault(); chart.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.01), timeAt(canvas, event)); }
    else if (event.deltaX) { event.preventDefault(); chart.pan(event.deltaX / canvas.clientWidth); }
  }, { passive: false });
  canvas.addEventListener('pointerdown', (event) => {
    if (!chart) return;
    canvas.focus({ preventScroll: true });
    fingers.set(event.pointerId, event.clientX);
    dragged = { x: event.clientX, from: chart.from, moved: false };
    if (event.isTrusted) canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (!chart) return;
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, event.clientX);
    if (fingers.size === 2) {
      const [one, two] = [...fingers.values()], apart = Math.abs(one - two);
      if (pinch && apart > 4) chart.zoom(pinch / apart, chart.from + (((one + two) / 2 - canvas.getBoundingClientRect().left) / canvas.clientWidth) * chart.span);
      pinch = apart;
    } else if (dragged) {
      const shift = event.clientX - dragged.x;
      if (Math.abs(shift) > 3) { dragged.moved = true; canvas.classList.add('dragging'); }
      if (dragged.moved) chart.show(dragged.from - (shift / canvas.clientWidth) * chart.span, dragged.from - (shift / canvas.clientWidth) * chart.span + chart.span);
    } else {
      const at = spanAt(canvas, event);
      if (at !== chart.hovered) { chart.hovered = at; put($('selection'), ...describe(profile, at >= 0 ? at : chart.selected)); chart.redraw(); }
    }
  });
  const release = (event) => {
    fingers.delete(event.pointerId);
    pinch = 0;
    if (chart && dragged && !dragged.moved && event.type === 'pointerup') { chart.selected = spanAt(canvas, event); put($('selection'), ...describe(profile, chart.selected)); chart.redraw(); }
    dragged = null;
    canvas.classList.remove('dragging');
  };
  canvas.addEventListener('pointerup', release);
  canvas.addEventListener('pointercancel', release);
  canvas.addEventListener('pointerleave', () => { if (chart && chart.hovered >= 0) { chart.hovered = -1; put($('selection'), ...describe(profile, chart.selected)); chart.redraw(); } });
  canvas.addEventListener('dblclick', (event) => { if (chart) chart.fill(spanAt(canvas, event)); });
  canvas.addEventListener('keydown', (event) => {
    if (!chart || event.ctrlKey || event.metaKey || event.altKey) return;
    const keys = {
      ArrowLeft: () => chart.pan(-0.15), ArrowRight: () => chart.pan(0.15), a: () => chart.pan(-0.15), d: () => chart.pan(0.15),
      '+': () => chart.zoom(0.6), '=': () => chart.zoom(0.6), w: () => chart.zoom(0.6), '-': () => chart.zoom(1 / 0.6), s: () => chart.zoom(1 / 0.6),
      Home: () => chart.showAll(), '0': () => chart.showAll(), ']': () => chart.step('next'), '[': () => chart.step('previous'), ArrowUp: () => chart.step('parent'), ArrowDown: () => chart.step('child'),
      Enter: () => chart.fill(chart.selected), n: () => chart.nextMatch(false), N: () => chart.nextMatch(true), Escape: () => chart.select(-1),
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
  $('zoom-in').addEventListener('click', () => chart && chart.zoom(0.5));
  $('zoom-out').addEventListener('click', () => chart && chart.zoom(2));
  $('zoom-all').addEventListener('click', () => chart && chart.showAll());
  $('lane').addEventListener('change', (event) => chart && chart.choose(profile.lanes[Number(event.target.value)]));
  $('search').addEventListener('input', (event) => {
    if (!chart) return;
    const count = chart.find(event.target.value);
    put($('matches'), event.target.value.trim() ? whole(count) + (count === 1 ? ' span' : ' spans') : '');
  });
  $('search').addEventListener('keydown', (event) => { if (event.key === 'Enter' && chart) { event.preventDefault(); chart.nextMatch(event.shiftKey); } });
}

function listenToTimeline() {
  const canvas = $('timeline-canvas');
  const time = (event) => {
    const left = Math.min(GUTTER, canvas.clientWidth * 0.3), part = (event.offsetX - left) / (canvas.clientWidth - left);
    return profile.begin + Math.min(1, Math.max(0, part)) * (profile.finish - profile.begin);
  };
  canvas.addEventListener('pointerdown', (event) => { if (chart) { chart.band = [time(event), time(event)]; if (event.isTrusted) canvas.setPointerCapture(event.pointerId); } });
  canvas.addEventListener('pointermove', (event) => { if (chart && chart.band) { chart.band[1] = time(event); chart.redraw(); } });
  canvas.addEventListener('pointerup', (event) => {
    if (!chart || !chart.band) return;
    const [one, two] = chart.band, lane = profile.lanes[Math.floor((event.offsetY - AXIS) / LANE)];
    chart.band = null;
    if (lane && lane !== chart.lane) { $('lane').value = String(profile.lanes.indexOf(lane)); chart.choose(lane); }
    if (Math.abs(two - one) > (profile.finish - profile.begin) / 300) chart.show(Math.min(one, two), Math.max(one, two)); else chart.redraw();
  });
}

function listenToTheme() {
  const root = document.documentElement, system = matchMedia('(prefers-color-scheme: dark)');
  let chosen = null;
  const apply = () => { root.dataset.theme = chosen || (system.matches ? 'dark' : 'light'); if (chart) chart.redraw(); };
  $('theme').addEventListener('click', () => { chosen = root.dataset.theme === 'dark' ? 'light' : 'dark'; apply(); });
  system.addEventListener('change', apply);
  addEventListener('beforeprint', () => { root.dataset.theme = 'light'; if (table) { table.shown = 1000; table.fill(); } if (chart) chart.draw(); });
  addEventListener('afterprint', apply);
  apply();
}

listenToTheme();
listenToFiles();
listenToFlame();
listenToTimeline();
$('filter').addEventListener('input', () => table && table.fill());
$('kind').addEventListener('change', () => table && table.fill());
$('more-rows').addEventListener('click', () => table && table.more());
addEventListener('resize', () => chart && chart.redraw());

const written = JSON.parse($('data').textContent);
if (written === null) $('empty').hidden = false; else load(packDocument(written));
// For tests and for the curious: what the page holds, and how long the last frame took to draw.
window.hpfraccProfile = { get profile() { return profile; }, get chart() { return chart; }, load, pack: packDocument, compare: compareProfiles, rankTest };
