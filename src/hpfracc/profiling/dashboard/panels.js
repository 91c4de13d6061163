// Everything on the page that is not drawn: cards, bars, what a span says, bottlenecks, decisions.

function fillFacts(profile) {
  const head = profile.head, process = head.process || {};
  const when = new Date((head.begun_unix_ns || 0) / 1e6);
  put($('facts'), [when.toLocaleString(), 'Python ' + process.python, process.system, process.machine].filter(Boolean).join(' · '));
  put($('made'), 'Recorded with hpfracc ' + head.hpfracc + '. This page loads nothing: what it shows is in the file itself.');
}

function fillCards(profile) {
  const head = profile.head, b = head.breakdown, cards = [];
  const add = (number, words) => cards.push(element('div', { class: 'card' }, element('strong', {}, number), element('span', {}, words)));
  add(seconds(b.wall_ns), 'from the first span to the last');
  add(whole(profile.count), head.dropped ? 'spans kept; ' + whole(head.dropped) + ' older ones dropped' : 'spans, none dropped' + (head.open ? '; ' + whole(head.open) + ' still open' : ''));
  for (const [device, row] of Object.entries(b.devices)) add(share(row.utilisation), device + ' busy: ' + seconds(row.busy_ns));
  if (!Object.keys(b.devices).length) add('-', 'device time: none was measured');
  add(seconds(b.transfer_ns), b.moved_bytes ? 'copies, ' + bytes(b.moved_bytes) : 'copies between host and device');
  add(seconds(b.compile_ns), 'first calls of kernels that compile');
  const peak = profile.memory.reduce((most, row) => Math.max(most, row[4] || 0, row[2], row[3]), 0);
  add(peak ? bytes(peak) : '-', peak ? 'most memory that was read' : 'memory was not recorded');
  const errors = Object.values(head.summary).reduce((sum, row) => sum + row.errors, 0);
  if (errors) add(whole(errors), errors === 1 ? 'span ended with an error' : 'spans ended with an error');
  add(seconds(b.overhead_ns), 'the profiler itself, ' + seconds(b.overhead_per_span_ns) + ' a span');
  put($('cards'), ...cards);
}

function stack(label, total, parts) {
  const track = element('div', { class: 'track', role: 'img', 'aria-label': label + ': ' + parts.map((part) => part.name + ' ' + share(part.ns / total)).join(', ') });
  const list = element('ul', { class: 'parts' });
  for (const part of parts) {
    if (!part.ns) continue;
    track.append(element('div', { class: 'part ' + part.kind, width: (100 * part.ns) / total + '%', title: part.name + ': ' + seconds(part.ns) }));
    list.append(element('li', {}, swatch(part.kind), part.name, element('b', {}, share(part.ns / total)), element('span', { class: 'soft' }, seconds(part.ns))));
  }
  return element('div', { class: 'stack' }, element('div', { class: 'label' }, element('b', {}, label), element('span', { class: 'soft' }, seconds(total))), track, list);
}

function fillBreakdown(profile) {
  const b = profile.head.breakdown;
  const parts = [
    { name: 'host', kind: 'host', ns: b.host_ns }, { name: 'copies', kind: 'transfer', ns: b.transfer_ns }, { name: 'compilation', kind: 'compile', ns: b.compile_ns },
    { name: 'profiler', kind: 'overhead', ns: b.overhead_ns }, { name: 'idle', kind: 'idle', ns: b.idle_ns },
  ];
  const total = Math.max(1, parts.reduce((sum, part) => sum + part.ns, 0));
  const bars = [stack(total > b.wall_ns * 1.01 ? 'All threads together' : 'The run', total, parts)];
  for (const [device, row] of Object.entries(b.devices)) {
    bars.push(stack(device, Math.max(1, b.wall_ns), [{ name: 'busy', kind: 'device', ns: row.busy_ns }, { name: 'idle', kind: 'idle', ns: row.idle_ns }]));
  }
  put($('bars'), ...bars);
}

const TIMINGS = { 'at most': 'the device was idle by its end, so this is an upper bound', enqueued: 'the work was only enqueued, and no device time is known', synchronised: 'it waited for its work, so that its duration is the truth', 'no clock': 'no clock for this device', pending: 'the device had not got there' };

function describe(profile, at) {
  if (at < 0) return [element('span', { class: 'soft' }, 'Point at a span, or choose one with the keyboard.')];
  const told = [element('b', {}, profile.nameOf(at)), ' (' + profile.kindOf(at) + '): ' + seconds(profile.duration(at)) + ', ' + seconds(profile.own[at]) + ' its own'];
  const part = profile.onDevice.get(at), more = profile.rare[at] || {};
  if (part) {
    told.push('; on ' + part.device + ' ');
    if (part.ns !== null && part.ns !== undefined) told.push(seconds(part.ns));
    else told.push((part.most !== null && part.most !== undefined ? 'at most ' + seconds(part.most) + ': ' : '') + (TIMINGS[part.timing] || part.timing));
  }
  if (more.bytes !== undefined) told.push('; ' + bytes(more.bytes) + ' moved');
  if (more.transfer_ns && profile.kindOf(at) !== 'transfer') told.push('; copies ' + seconds(more.transfer_ns));
  if (more.compile_ns && profile.kindOf(at) !== 'compile') told.push('; compilation ' + seconds(more.compile_ns));
  const read = profile.memoryAt.get(at);
  if (read) told.push('; ' + read[1] + ' memory ' + bytes(read[2]) + ' to ' + bytes(read[3]) + (read[4] ? ', peak ' + bytes(read[4]) : ''));
  if (more.decision !== undefined && profile.head.decisions[more.decision]) told.push('; ran as ' + profile.head.decisions[more.decision].arm);
  if (more.error) told.push('; raised ' + more.error);
  if (more.metadata) told.push(' · ' + Object.entries(more.metadata).map(([key, value]) => key + '=' + (typeof value === 'string' ? value : JSON.stringify(value))).join(', '));
  return told;
}

function fillBottlenecks(profile) {
  const told = new Set(), most = Math.max(...profile.head.bottlenecks.map((row) => row.share), 1e-9);
  put($('bottleneck-list'), ...profile.head.bottlenecks.slice(0, 5).map((row) => {
    const advice = row.advice.filter((text) => !told.has(text));
    advice.forEach((text) => told.add(text));
    const each = row.count === 1 ? 'once' : whole(row.count) + ' times, ' + seconds(row.mean * 1e9) + ' on average';
    return element('li', {},
      element('div', { class: 'fill ' + row.kind, width: (100 * row.share) / most + '%', 'aria-hidden': 'true' }),
      element('span', { class: 'name' }, row.name), element('span', { class: 'number' }, seconds(row.self * 1e9)), element('span', { class: 'number' }, share(row.share)),
      element('span', { class: 'more' }, [each, ...advice].join('. ')));
  }));
  put($('advice-list'), ...profile.head.advice.filter((remark) => !told.has(remark.text)).map((remark) => element('li', {}, element('b', {}, remark.kind), ': ' + remark.text)));
}

function fillMemory(profile) {
  const of = [...new Set(profile.memory.map((row) => row[1]))];
  put($('memory-words'), of.length ? 'Read before and after each span: ' + of.join(', ') + '.' : 'Not recorded. Profiler(memory=True) reads it around every span, memory="device" around those on a device.');
}

function fillDecisions(profile) {
  const decisions = profile.head.decisions, calls = new Map();
  for (const more of Object.values(profile.rare)) if (more.decision !== undefined) calls.set(more.decision, (calls.get(more.decision) || 0) + 1);
  put($('decisions-words'), decisions.length ? 'Each kind of call once, with the arm that did it and why; open one for every arm that was weighed.' : 'No engine call was recorded.');
  put($('decision-list'), ...decisions.slice(0, 200).map((decision, number) => {
    const shape = (decision.shape || []).join(' x ') || 'scalar', count = calls.get(number) || 0;
    const body = element('details', {}, element('summary', {}, element('code', {}, decision.operation), ' of ' + shape + ' ' + decision.dtype + ' by ', element('code', {}, decision.arm), element('span', { class: 'soft' }, ' · ' + (count === 1 ? '1 call' : whole(count) + ' calls') + (decision.explored ? ' · tried to learn' : '') + ((decision.fallbacks || []).length ? ' · after a fallback' : ''))));
    body.append(element('p', {}, decision.reason + '.'));
    for (const fallback of decision.fallbacks || []) body.append(element('p', { class: 'soft' }, fallback.arm + ' ' + fallback.kind + ': ' + fallback.error));
    body.addEventListener('toggle', () => { if (body.open && !body.querySelector('table')) body.append(weighed(decision)); });
    return body;
  }), decisions.length > 200 ? element('p', { class: 'soft' }, 'and ' + whole(decisions.length - 200) + ' more in the file') : null);
}

function weighed(decision) {
  const number = (value) => (value === null || value === undefined ? '-' : seconds(value * 1e9));
  const head = element('tr', {}, ...['arm', 'predicted', 'transfer', 'first call', 'memory', 'samples', 'refused because'].map((name, at) => element('th', { scope: 'col', class: at === 6 ? 'left' : undefined }, name)));
  const rows = (decision.candidates || []).map((row) => element('tr', {}, element('th', { scope: 'row' }, (row.arm === decision.arm ? '> ' : '') + row.arm),
    ...[number(row.total), row.transfer ? number(row.transfer) : '0', row.compile ? number(row.compile) : '0', bytes(row.memory), String(row.samples)].map((text) => element('td', {}, text)), element('td', { class: 'why' }, row.refused || '')));
  return element('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': 'Arms that were weighed' }, element('table', {}, element('thead', {}, head), element('tbody', {}, ...rows)));
}

function fillLegend(profile) {
  const kinds = [...profile.kinds].sort((a, b) => KINDS.indexOf(a) - KINDS.indexOf(b));
  put($('legend'), ...kinds.map((kind) => element('span', {}, swatch(kind), kind)), profile.lanes.some((lane) => lane.isDevice) ? element('span', {}, swatch('device'), 'device at work') : null);
}
