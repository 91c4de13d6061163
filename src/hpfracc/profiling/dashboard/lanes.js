// The spans of one lane, put into rows by depth. A row is in order and free of overlaps, so bisection finds a place in it.

class Lane {
  constructor(label, short, isDevice, places, start, end) {
    this.label = label;
    this.short = short;
    this.isDevice = isDevice;
    this.start = start;
    this.end = end;
    this.rows = [];
    this.depth = new Map();
    const order = Int32Array.from(places).sort((a, b) => start[a] - start[b] || end[b] - end[a] || a - b);
    const open = [];
    this.total = 0;
    for (const at of order) {
      while (open.length && end[open[open.length - 1]] <= start[at]) open.pop();
      // What outlives the span around it goes below everything that is still open.
      let depth = open.length;
      while (this.rows[depth] && this.rows[depth].length && end[this.rows[depth][this.rows[depth].length - 1]] > start[at]) depth++;
      if (!this.rows[depth]) this.rows[depth] = [];
      this.rows[depth].push(at);
      this.depth.set(at, depth);
      if (depth === 0) this.total += end[at] - start[at];
      open.push(at);
    }
    for (let depth = 0; depth < this.rows.length; depth++) if (!this.rows[depth]) this.rows[depth] = [];
  }

  // First place in a row whose span ends after `time`.
  after(row, time) {
    let low = 0, high = row.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[row[middle]] > time) high = middle; else low = middle + 1;
    }
    return low;
  }

  at(depth, time) {
    const row = this.rows[depth];
    if (!row) return -1;
    const place = this.after(row, time);
    return place < row.length && this.start[row[place]] <= time ? row[place] : -1;
  }

  // Calls `draw(span, from, to, many)` for what is to be seen: spans narrower than a pixel are told once a pixel.
  visible(depth, from, to, perPixel, draw) {
    const row = this.rows[depth];
    let place = this.after(row, from);
    while (place < row.length && this.start[row[place]] < to) {
      const span = row[place];
      if (this.end[span] - this.start[span] >= perPixel) {
        draw(span, this.start[span], this.end[span], false);
        place++;
        continue;
      }
      const pixel = this.start[span] + perPixel;
      const next = Math.max(place + 1, this.after(row, pixel));
      draw(span, this.start[span], pixel, next - place > 1);
      place = next;
    }
  }
}
