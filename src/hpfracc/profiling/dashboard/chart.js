// The canvases: a flame chart of one lane, the time line of all, and memory. They share one window of time.

const ROW = 21, AXIS = 24, LANE = 24, GUTTER = 132, MOST_DEPTH = 40;

function colours() {
  const style = getComputedStyle(document.documentElement);
  const get = (name) => style.getPropertyValue('--' + name).trim();
  const found = { ink: get('ink'), soft: get('soft'), rule: get('rule'), field: get('field'), panel: get('panel'), bar: get('bar-ink'), match: get('match'), accent: get('accent'), line: get('line'), line2: get('line2'), idle: get('idle'), device: get('device') };
  for (const kind of KINDS) found[kind] = get(kind);
  return found;
}

function prepare(canvas, height) {
  const width = Math.max(50, canvas.clientWidth), scale = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + 'px';
  }
  const pen = canvas.getContext('2d');
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.font = '12px system-ui, sans-serif';
  pen.textBaseline = 'middle';
  return [pen, width];
}

function niceStep(span, width) {
  const rough = span / Math.max(2, width / 95), power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= rough);
}

function drawAxis(pen, view, zero, left, width, height, ink) {
  const step = niceStep(view.to - view.from, width - left), scale = (width - left) / (view.to - view.from);
  pen.fillStyle = ink.soft;
  pen.strokeStyle = ink.rule;
  pen.lineWidth = 1;
  for (let tick = Math.ceil((view.from - zero) / step) * step; tick <= view.to - zero; tick += step) {
    const x = Math.round(left + (zero + tick - view.from) * scale) + 0.5;
    pen.beginPath();
    pen.moveTo(x, AXIS - 5);
    pen.lineTo(x, height);
    pen.stroke();
    const text = seconds(Math.abs(tick) < step / 1e6 ? 0 : tick);
    if (x + 4 + pen.measureText(text).width < width) pen.fillText(text, x + 4, AXIS / 2);
  }
}

class Chart {
  constructor(profile, told) {
    this.profile = profile;
    this.told = told;
    this.from = profile.begin;
    this.to = profile.finish;
    this.lane = profile.lanes.length ? profile.lanes.reduce((best, lane) => (!lane.isDevice && lane.depth.size > best.depth.size ? lane : best)) : null;
    this.selected = -1;
    this.hovered = -1;
    this.wanted = null;
    this.matches = [];
    this.waiting = false;
    this.band = null;
  }

  get span() { return this.to - this.from; }

  show(from, to) {
    const { begin, finish } = this.profile, least = 20;
    const width = Math.min(Math.max(to - from, least), finish - begin);
    this.from = Math.min(Math.max(from, begin), finish - width);
    this.to = this.from + width;
    this.redraw();
  }

  showAll() { this.show(this.profile.begin, this.profile.finish); }

  zoom(factor, at) {
    const place = at === undefined ? (this.from + this.to) / 2 : at;
    this.show(place - (place - this.from) * factor, place + (this.to - place) * factor);
  }

  pan(part) { this.show(this.from + part * this.span, this.to + part * this.span); }

  fill(at) {
    if (at < 0 || !this.lane) return;
    const from = this.lane.start[at], to = this.lane.end[at], margin = (to - from) * 0.03;
    this.show(from - margin, to + margin);
  }

  reveal(at) {
    // Bring a span into sight, wide enough to be seen.
    const from = this.lane.start[at], to = this.lane.end[at];
    if (to - from < this.span / 400) this.show((from + to) / 2 - (to - from) * 20, (from + to) / 2 + (to - from) * 20);
    else if (to < this.from || from > this.to) this.show(from - this.span / 3, from + (this.span * 2) / 3);
    else this.redraw();
  }

  select(at) {
    this.selected = at;
    this.told(at);
    if (at >= 0) this.reveal(at); else this.redraw();
  }

  choose(lane) {
    this.lane = lane;
    this.select(-1);
    this.find(this.words || '');
  }

  find(words) {
    this.words = words.trim().toLowerCase();
    this.wanted = null;
    this.matches = [];
    if (this.words && this.lane) {
      this.wanted = new Uint8Array(this.profile.names.length);
      this.profile.names.forEach((name, number) => { this.wanted[number] = name.toLowerCase().includes(this.words) ? 1 : 0; });
      for (const row of this.lane.rows) for (const at of row) if (this.wanted[this.profile.name[at]]) this.matches.push(at);
      this.matches.sort((a, b) => this.lane.start[a] - this.lane.start[b]);
    }
    this.redraw();
    return this.matches.length;
  }

  nextMatch(back) {
    if (!this.matches.length) return;
    const here = this.matches.indexOf(this.selected), count = this.matches.length;
    const next = here < 0 ? (back ? count - 1 : 0) : (here + (back ? count - 1 : 1)) % count;
    this.select(this.matches[next]);
  }

  step(move) {
    const lane = this.lane;
    if (!lane || !lane.rows.length) return;
    if (this.selected < 0) { this.select(lane.rows[0][Math.min(lane.after(lane.rows[0], this.from), lane.rows[0].length - 1)]); return; }
    const depth = lane.depth.get(this.selected), row = lane.rows[depth];
    if (move === 'parent' || move === 'child') {
      const other = lane.rows[depth + (move === 'child' ? 1 : -1)];
      if (!other) return;
      if (move === 'parent') { const at = lane.at(depth - 1, lane.start[this.selected]); if (at >= 0) this.select(at); return; }
      const place = lane.after(other, lane.start[this.selected]);
      if (place < other.length && lane.start[other[place]] < lane.end[this.selected]) this.select(other[place]);
      return;
    }
    let place = lane.after(row, lane.start[this.selected]);
    while (place < row.length && row[place] !== this.selected) place++;
    const next = row[place + (move === 'next' ? 1 : -1)];
    if (next !== undefined) this.select(next);
  }

  redraw() {
    if (this.waiting) return;
    this.waiting = true;
    requestAnimationFrame(() => { this.waiting = false; this.draw(); });
  }

  draw() {
    const begun = performance.now();
    this.drawFlame($('flame-canvas'));
    this.drawTimeline($('timeline-canvas'));
    this.drawMemory($('memory-canvas'));
    this.lastFrame = performance.now() - begun;
  }

  drawFlame(canvas) {
    const lane = this.lane, ink = colours(), depth = lane ? Math.min(MOST_DEPTH, lane.rows.length) : 1;
    const height = AXIS + Math.max(4, depth) * ROW + 6, [pen, width] = prepare(canvas, height);
    const scale = width / this.span, perPixel = 1 / scale, p = this.profile;
    pen.fillStyle = ink.field;
    pen.fillRect(0, 0, width, height);
    drawAxis(pen, this, p.begin, 0, width, height, ink);
    if (!lane) return;
    for (let row = 0; row < depth; row++) {
      const y = AXIS + row * ROW;
      lane.visible(row, this.from, this.to, perPixel, (at, from, to, many) => {
        const x = Math.max(0, (from - this.from) * scale), right = Math.min(width, (to - this.from) * scale);
        const wide = Math.max(1, right - x - (right - x > 3 ? 1 : 0));
        const kind = lane.isDevice ? 'device' : p.kindOf(at);
        const hit = this.wanted !== null && this.wanted[p.name[at]];
        pen.globalAlpha = this.wanted !== null && !hit && !many ? 0.35 : 1;
        pen.fillStyle = hit ? ink.match : ink[kind] || ink.span;
        pen.fillRect(x, y, wide, ROW - 2);
        if (!hit && p.shade[p.name[at]]) {
          pen.globalAlpha *= 0.07 * p.shade[p.name[at]];
          pen.fillStyle = ink.ink;
          pen.fillRect(x, y, wide, ROW - 2);
          pen.globalAlpha = this.wanted !== null && !many ? 0.35 : 1;
        }
        if (p.rare[at] && p.rare[at].error && wide > 2) { pen.fillStyle = ink.fallback; pen.fillRect(x, y + ROW - 5, wide, 3); }
        if (wide > 34) {
          pen.fillStyle = ink.bar;
          pen.save();
          pen.beginPath();
          pen.rect(x, y, wide - 4, ROW);
          pen.clip();
          const name = p.nameOf(at), time = '  ' + seconds(to - from);
          const length = pen.measureText(name).width;
          pen.fillText(name, x + 5, y + (ROW - 2) / 2);
          if (length + pen.measureText(time).width + 14 < wide) { pen.globalAlpha *= 0.7; pen.fillText(time, x + 5 + length, y + (ROW - 2) / 2); }
          pen.restore();
        }
        pen.globalAlpha = 1;
      });
      for (const [at, line] of [[this.hovered, 1], [this.selected, 2]]) {
        if (at >= 0 && lane.depth.get(at) === row) {
          pen.strokeStyle = ink.ink;
          pen.lineWidth = line;
          pen.strokeRect((lane.start[at] - this.from) * scale + 0.5, y + 0.5, Math.max(2, (lane.end[at] - lane.start[at]) * scale - 1), ROW - 3);
        }
      }
    }
    if (lane.rows.length > depth) { pen.fillStyle = ink.soft; pen.fillText((lane.rows.length - depth) + ' levels deeper are not drawn', 6, height - 8); }
  }

  drawTimeline(canvas) {
    const p = this.profile, ink = colours(), height = AXIS + Math.max(1, p.lanes.length) * LANE + 6;
    const [pen, width] = prepare(canvas, height), left = Math.min(GUTTER, width * 0.3), scale = (width - left) / (p.finish - p.begin), perPixel = 1 / scale;
    pen.fillStyle = ink.field;
    pen.fillRect(0, 0, width, height);
    drawAxis(pen, { from: p.begin, to: p.finish }, p.begin, left, width, height, ink);
    p.lanes.forEach((lane, number) => {
      const y = AXIS + number * LANE;
      pen.fillStyle = lane === this.lane ? ink.ink : ink.soft;
      pen.save();
      pen.beginPath();
      pen.rect(0, y, left - 8, LANE);
      pen.clip();
      pen.fillText(lane.short, 8, y + LANE / 2);
      pen.restore();
      // Two rows show what a lane is about: what is inside its outermost spans lies over them.
      for (let row = 0; row < Math.min(2, lane.rows.length); row++) {
        lane.visible(row, p.begin, p.finish, perPixel, (at, from, to) => {
          pen.fillStyle = lane.isDevice ? ink.device : ink[p.kindOf(at)] || ink.span;
          pen.fillRect(left + (from - p.begin) * scale, y + 3 + row * 6, Math.max(1, (to - from) * scale), LANE - 7 - row * 6);
        });
      }
    });
    const from = this.band ? Math.min(...this.band) : this.from, to = this.band ? Math.max(...this.band) : this.to;
    if (this.band || this.span < (p.finish - p.begin) * 0.999) {
      const x = left + (from - p.begin) * scale, right = left + (to - p.begin) * scale;
      pen.fillStyle = ink.accent;
      pen.globalAlpha = 0.14;
      pen.fillRect(x, 0, Math.max(2, right - x), height);
      pen.globalAlpha = 1;
      pen.strokeStyle = ink.accent;
      pen.strokeRect(x + 0.5, 0.5, Math.max(2, right - x), height - 1);
    }
  }

  drawMemory(canvas) {
    const p = this.profile, series = new Map();
    for (const [at, of, before, after] of p.memory) {
      if (!series.has(of)) series.set(of, []);
      series.get(of).push([p.start[at], before], [p.end[at], after]);
    }
    canvas.hidden = series.size === 0;
    if (!series.size) return;
    const ink = colours(), height = 170, [pen, width] = prepare(canvas, height), left = Math.min(74, width * 0.22);
    let low = Infinity, most = 0;
    for (const points of series.values()) { points.sort((a, b) => a[0] - b[0]); for (const [, value] of points) { most = Math.max(most, value); low = Math.min(low, value); } }
    // A process holds far more than a run adds: the axis begins at nought unless that would flatten everything.
    const bottom = low > most * 0.5 ? low - (most - low) * 0.3 - 1 : 0, rise = (height - AXIS - 14) / Math.max(1, most - bottom);
    const scale = (width - left) / (p.finish - p.begin), y = (value) => height - 6 - (value - bottom) * rise;
    pen.fillStyle = ink.field;
    pen.fillRect(0, 0, width, height);
    drawAxis(pen, { from: p.begin, to: p.finish }, p.begin, left, width, height, ink);
    pen.fillStyle = ink.soft;
    for (const value of [bottom, (bottom + most) / 2, most]) pen.fillText(bytes(Math.max(0, value)), 6, Math.min(height - 9, Math.max(AXIS + 8, y(value))));
    const tones = [ink.line, ink.line2, ink.soft];
    [...series].forEach(([of, points], number) => {
      pen.strokeStyle = tones[number % tones.length];
      pen.lineWidth = 2;
      pen.beginPath();
      let column = -1, highest = 0, lowest = 0, last = 0;
      const flush = () => { if (column >= 0) { pen.lineTo(column, y(lowest)); pen.lineTo(column, y(highest)); pen.lineTo(column, y(last)); } };
      for (const [time, value] of points) {
        const x = Math.round(left + (time - p.begin) * scale);
        if (x !== column) { flush(); if (column >= 0) pen.lineTo(x, y(last)); column = x; highest = lowest = value; }
        highest = Math.max(highest, value);
        lowest = Math.min(lowest, value);
        last = value;
      }
      flush();
      pen.stroke();
      pen.fillStyle = pen.strokeStyle;
      if (series.size > 1) pen.fillText(of, width - pen.measureText(of).width - 8, AXIS + 10 + number * 16);
    });
  }
}
