// A profile in memory: columns, and for each lane its spans by depth, so that drawing finds them by bisection.

const KINDS = ['span', 'call', 'kernel', 'decide', 'import', 'transfer', 'compile', 'fallback', 'batch', 'usage'];

function packDocument(given) {
  // A document, of the page or of a file that was dropped, as columns.
  if (!given || given.format !== 'hpfracc-profile' || !Array.isArray(given.spans)) {
    throw new Error('this is no profile: use a file of profiler.export_json');
  }
  if (given.version !== 1) throw new Error('a profile of version ' + given.version + ', and this page reads version 1');
  const names = new Map(), kinds = new Map(), places = new Map();
  const columns = { name: [], kind: [], parent: [], lane: [], start: [], duration: [], own: [] };
  const devices = [], memory = [], rare = {};
  const number = (map, key) => { if (!map.has(key)) map.set(key, map.size); return map.get(key); };
  given.spans.forEach((span, place) => places.set(span.id, place));
  given.spans.forEach((span, place) => {
    columns.name.push(number(names, String(span.name)));
    columns.kind.push(number(kinds, KINDS.includes(span.kind) ? span.kind : 'span'));
    columns.parent.push(places.has(span.parent) ? places.get(span.parent) : -1);
    columns.lane.push(span.lane);
    columns.start.push(span.start_ns);
    columns.duration.push(span.duration_ns);
    columns.own.push(span.self_ns ?? span.duration_ns);
    if (span.device !== null && span.device !== undefined) {
      devices.push([place, span.device, span.timing, span.device_start_ns ?? null, span.device_ns ?? null, span.device_at_most_ns ?? null]);
    }
    if (span.memory) memory.push([place, span.memory.of, span.memory.before, span.memory.after, span.memory.peak]);
    const more = {};
    for (const key of ['bytes', 'error', 'metadata', 'decision', 'transfer_ns', 'compile_ns', 'device_busy_ns', 'device_idle_ns']) {
      if (key in span) more[key] = span[key];
    }
    if (Object.keys(more).length) rare[place] = more;
  });
  const head = { ...given };
  delete head.spans;
  return { head, names: [...names.keys()], kinds: [...kinds.keys()], columns, devices, memory, rare };
}

class Profile {
  constructor(packed) {
    this.head = packed.head;
    this.names = packed.names;
    this.kinds = packed.kinds;
    this.memory = packed.memory;
    this.rare = packed.rare;
    const c = packed.columns;
    this.count = c.start.length;
    this.name = Int32Array.from(c.name);
    this.kind = Uint8Array.from(c.kind);
    this.parent = Int32Array.from(c.parent);
    this.lane = Int32Array.from(c.lane);
    this.start = Float64Array.from(c.start);
    this.end = Float64Array.from(c.start, (value, at) => value + c.duration[at]);
    this.own = Float64Array.from(c.own);
    // Neighbours of one kind are told apart by three shades of its colour.
    this.shade = Uint8Array.from(this.names, (name) => [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) % 9973, 7) % 3);
    this.onDevice = new Map(packed.devices.map((row) => [row[0], { device: row[1], timing: row[2], start: row[3], ns: row[4], most: row[5] }]));
    this.memoryAt = new Map(packed.memory.map((row) => [row[0], row]));
    this.begin = Infinity;
    this.finish = -Infinity;
    for (let at = 0; at < this.count; at++) {
      if (this.start[at] < this.begin) this.begin = this.start[at];
      if (this.end[at] > this.finish) this.finish = this.end[at];
    }
    for (const part of this.onDevice.values()) {
      if (part.start !== null && part.ns !== null) this.finish = Math.max(this.finish, part.start + part.ns);
    }
    if (!this.count) { this.begin = 0; this.finish = 1; }
    if (this.finish <= this.begin) this.finish = this.begin + 1;
    this.lanes = [...this._hostLanes(), ...this._deviceLanes()];
  }

  nameOf(at) { return this.names[this.name[at]]; }
  kindOf(at) { return this.kinds[this.kind[at]]; }
  duration(at) { return this.end[at] - this.start[at]; }

  _hostLanes() {
    const rows = new Map();
    for (let at = 0; at < this.count; at++) {
      if (!rows.has(this.lane[at])) rows.set(this.lane[at], []);
      rows.get(this.lane[at]).push(at);
    }
    const known = new Map((this.head.lanes || []).map((lane) => [lane.id, lane]));
    const later = (id) => (known.has(id) && known.get(id).thread !== 'MainThread' ? 1 : 0);
    return [...rows.keys()].sort((a, b) => later(a) - later(b) || a - b).map((id) => {
      const lane = known.get(id) || { thread: 'lane ' + id, task: null };
      const label = lane.task === null ? lane.thread : lane.thread + ': ' + lane.task;
      return new Lane(label, lane.task === null ? lane.thread : lane.task, false, rows.get(id), this.start, this.end);
    });
  }

  _deviceLanes() {
    const rows = new Map();
    for (const [at, part] of this.onDevice) {
      if (part.start === null || part.start === undefined || part.ns === null || part.ns === undefined) continue;
      if (!rows.has(part.device)) rows.set(part.device, []);
      rows.get(part.device).push(at);
    }
    return [...rows.keys()].sort().map((device) => {
      const start = new Float64Array(this.count), end = new Float64Array(this.count);
      for (const at of rows.get(device)) {
        const part = this.onDevice.get(at);
        start[at] = part.start;
        end[at] = part.start + part.ns;
      }
      return new Lane(device, device, true, rows.get(device), start, end);
    });
  }
}
