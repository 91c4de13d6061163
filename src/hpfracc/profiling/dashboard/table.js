// Spans by name: sorted by any column, filtered by name and kind.

const COLUMNS = [
  ['span', (row) => row.name, null], ['calls', (row) => row.count, whole], ['total', (row) => row.total, (v) => seconds(v * 1e9)], ['self', (row) => row.self, (v) => seconds(v * 1e9)],
  ['mean', (row) => row.mean, (v) => seconds(v * 1e9)], ['p50', (row) => row.p50, (v) => seconds(v * 1e9)], ['p95', (row) => row.p95, (v) => seconds(v * 1e9)], ['min', (row) => row.min, (v) => seconds(v * 1e9)], ['max', (row) => row.max, (v) => seconds(v * 1e9)],
  ['device', (row) => row.device, (v) => seconds(v * 1e9)], ['copies', (row) => row.transfer, (v) => seconds(v * 1e9)], ['compile', (row) => row.compile, (v) => seconds(v * 1e9)], ['peak', (row) => row.memory_peak, bytes],
];
const AT_ONCE = 200;

class SpanTable {
  constructor(profile) {
    this.all = Object.entries(profile.head.summary).map(([name, row]) => ({ ...row, name }));
    this.sorted = 3;
    this.down = true;
    this.shown = AT_ONCE;
    const kinds = [...new Set(this.all.map((row) => row.kind))].sort();
    put($('kind'), element('option', { value: '' }, 'all'), ...kinds.map((kind) => element('option', { value: kind }, kind)));
    $('filter').value = '';
    this.fill();
  }

  sort(column) {
    this.down = this.sorted === column ? !this.down : column !== 0;
    this.sorted = column;
    this.fill();
    $('span-table').querySelectorAll('thead button')[column].focus();
  }

  rows() {
    const words = $('filter').value.trim().toLowerCase(), kind = $('kind').value, value = COLUMNS[this.sorted][1];
    const kept = this.all.filter((row) => (!kind || row.kind === kind) && row.name.toLowerCase().includes(words));
    const sign = this.down ? -1 : 1;
    return kept.sort((a, b) => {
      const x = value(a), y = value(b);
      if (x === null || x === undefined) return y === null || y === undefined ? 0 : 1; // what is not known stands last
      if (y === null || y === undefined) return -1;
      return typeof x === 'string' ? sign * x.localeCompare(y) : sign * (x - y);
    });
  }

  fill() {
    const rows = this.rows(), seen = rows.slice(0, this.shown);
    const head = element('tr', {}, ...COLUMNS.map(([name], at) => element('th', { scope: 'col', 'aria-sort': at === this.sorted ? (this.down ? 'descending' : 'ascending') : undefined }, element('button', { type: 'button', on: { click: () => this.sort(at) } }, name))));
    const body = seen.map((row) => element('tr', {}, element('th', { scope: 'row' }, element('span', { class: 'named' }, swatch(row.kind), element('span', {}, row.name))),
      ...COLUMNS.slice(1).map(([name, value, show]) => {
        const found = value(row);
        if (name === 'device' && found === null && row.device_at_most !== null) return element('td', { title: TIMINGS['at most'] }, '≤ ' + seconds(row.device_at_most * 1e9));
        return element('td', {}, found === null || found === undefined || ((name === 'copies' || name === 'compile') && !found) ? '-' : show(found));
      })));
    put($('span-table'), element('thead', {}, head), element('tbody', {}, ...body));
    put($('rows-shown'), rows.length === this.all.length ? whole(rows.length) + (rows.length === 1 ? ' name' : ' names') : whole(rows.length) + ' of ' + whole(this.all.length) + ' names');
    $('more-rows').hidden = rows.length <= this.shown;
  }

  more() { this.shown += AT_ONCE; this.fill(); }
}
